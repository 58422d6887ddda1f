"""What environments with legs on the ground share: soft or rigid contact, and bodies from Gymnasium's files.

Soft contact is springs under the feet (`Compliant`) and at the ends of the joints' ranges (`SoftStopMotor`). A policy
learns through it over longer horizons: rigid contact has gradients that jump where a foot sticks or lets go, and none
for a motor that leans against a rigid stop (docs/gradient_care.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from math import radians
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from pullback.core.errors import PullbackError, unknown_name
from pullback.learn.env import Env
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.solvers.pgs import PGS
from pullback.rigid.state import State
from pullback.rigid.world.soft_stop import SoftStopMotor
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.spatial.rotations_torch import quaternion_from_vector, rotate

Tensor = torch.Tensor
Contact = Literal["soft", "rigid"]
CONTACTS = ("soft", "rigid")


class Legged(Env):
    """An environment on the ground, whose `contact` is "soft" or "rigid"."""

    substeps = 8
    stiffness: float = 2e4
    """Of soft contact [N/m]."""
    cfm: float | None = None
    """Softness of rigid contact [1/kg]; None: the default of `PGS`."""
    horizons: ClassVar[Mapping[str, int]] = {"soft": 32, "rigid": 32}
    """Steps that gradients of SHAC pass through, by the contact."""

    def __init__(self, worlds: int = 64, *, contact: Contact = "soft", **options: Any) -> None:
        if contact not in CONTACTS:
            raise unknown_name("contact", contact, list(CONTACTS))
        self.contact = contact
        super().__init__(worlds, **options)

    def suggested(self) -> Mapping[str, Any]:
        """Return settings of SHAC that suit this environment and its contact."""
        return {"horizon": self.horizons[self.contact], **self.shac}

    @property
    def options(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        return {"contact": self.contact}

    def empty_world(self, friction: float) -> World:
        """Return the ground."""
        soft = Compliant(stiffness=self.stiffness, damping=5.0, onset=5e-3, slip_speed=0.1, margin=0.03)
        world = World(gravity=(0.0, 0.0, -9.81), contact=soft if self.contact == "soft" else PGS(cfm=self.cfm))
        world.add_ground(friction=friction)
        return world

    def motors(self, robot: RobotModel, gains: Mapping[str, float] | float) -> dict[str, SoftStopMotor] | None:
        """Return motors with soft stops of gains [N·m] by joint, or one for all; None: those of the description."""
        if self.contact == "rigid":
            return None
        if not isinstance(gains, Mapping):
            return SoftStopMotor.of(robot, gains)
        stops = SoftStopMotor.of(robot)
        # a motor at its strongest leans 0.2 rad into its stop
        return {
            joint: SoftStopMotor(
                gain, stops[joint].lower, stops[joint].upper, stiffness=5.0 * gain, damping=0.05 * gain
            )
            for joint, gain in gains.items()
        }

    def compile(self, world: World) -> Sim:
        """Return the simulation; soft stops are in the place of joint limits."""
        with warnings.catch_warnings():
            # feet are light, and their bounces are not what is looked for
            warnings.filterwarnings("ignore", "contact of .* is over in less than four steps", UserWarning)
            return world.compile(
                dt=self.dt, substeps=self.substeps, dtype=self.dtype, device=self.device,
                without=["limits"] if self.contact == "soft" else [],
            )  # fmt: skip

    def scattered_start(self, joint_noise: float = 0.2) -> tuple[Tensor, Tensor]:
        """Return starts of a floating base as published: within 0.1 m, turned by up to 7.5 degrees, moving a little."""
        position, turn = self.uniform(-0.1, 0.1, 3), self.uniform(-1.0, 1.0, 3)
        turn = turn / turn.norm(dim=1, keepdim=True).clamp(min=1e-6) * self.uniform(0.0, radians(7.5), 1)
        joints = self._rest.q[:, 7:] + self.uniform(-joint_noise, joint_noise, self.sim.nq - 7)
        q = torch.cat([self._rest.q[:, :3] + position, quaternion_from_vector(turn), joints], 1)
        return q, self.uniform(-0.25, 0.25, self.sim.nv)


class Runner(Legged):
    """A floating body that is to run along x, started and seen as in the published short-horizon benchmark."""

    lowest: ClassVar[float]
    """Height [m] of the torso below which an episode ends."""

    def start(self) -> tuple[Tensor, Tensor]:
        """Start above the ground, turned by up to 7.5 degrees, with joints and velocities of some size."""
        return self.scattered_start()

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return height, orientation, velocities in the world's axes, joints, 0.1 their rates, up, heading, action."""
        q, qd = state.q, state.qd
        quat = q[:, 3:7]
        velocity, turning = rotate(quat, qd[:, 3:6]), rotate(quat, qd[:, :3])
        ahead = torch.stack(upright_and_heading(quat), 1)
        return torch.cat([q[:, 2:3], quat, velocity, turning, q[:, 7:], 0.1 * qd[:, 6:], ahead, action], 1)

    def terminated(self, state: State) -> Tensor:
        """End episodes in which the torso is down."""
        return state.q[:, 2] < self.lowest


def upright_and_heading(quat: Tensor) -> tuple[Tensor, Tensor]:
    """Return how far a body's z axis points up and its x axis along x (B,), of unit quaternions xyzw (B, 4)."""
    x, y, z, _ = quat.unbind(1)
    return 1.0 - 2.0 * (x.square() + y.square()), 1.0 - 2.0 * (y.square() + z.square())


def gymnasium_body(name: str) -> RobotModel:
    """Load a body from the files that gymnasium installs."""
    path = gymnasium_file(name)
    with warnings.catch_warnings():
        # the file's ground and the softness of its contacts are left out, and MuJoCo will not read it for ever
        warnings.simplefilter("ignore", UserWarning)
        return load(path)


def gymnasium_file(name: str) -> Path:
    """Return the path of a body's file that gymnasium installs."""
    found = find_spec("gymnasium")
    path = Path(found.origin).parent / "envs/mujoco/assets" / name if found and found.origin else None
    if path is None or not path.is_file():
        raise PullbackError(f"the body is read from gymnasium's {name}: pip install 'pullback[learn,mjcf]'")
    return path
