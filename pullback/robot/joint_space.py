"""The joint space of a robot: coordinates, velocities, limits, moving on the manifold, and what a caller may pass."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import NamedTuple, TypedDict

import numpy as np
import torch

from pullback.core.compiling import leave_graph
from pullback.core.errors import PullbackError, shortened
from pullback.description.joints import KINDS
from pullback.robot.learnable import LearnableLinks
from pullback.robot.manifold import Manifold
from pullback.robot.mujoco_coordinates import from_mujoco, to_mujoco

Tensor = torch.Tensor


class JointLimits(TypedDict):
    """Limits of one joint: [rad or m], [rad/s or m/s], [N·m or N]; infinite where there is none."""

    lower: float
    upper: float
    velocity: float
    effort: float


class NamedState(NamedTuple):
    """A state that the description names: q (nq,), qd (nv,), and the controls (nu,) of its own actuators."""

    q: Tensor
    qd: Tensor
    controls: Tensor


class JointSpace(LearnableLinks):
    """A robot's coordinates q (nq) and velocities (nv), those of `joint_names` in order."""

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return self.model.nq

    @property
    def nv(self) -> int:
        """Number of velocities, forces and accelerations."""
        return self.model.nv

    @property
    def joint_names(self) -> list[str]:
        """The joints whose coordinates make up q, in order."""
        return list(self.model.joint_names)

    @property
    def manifold(self) -> Manifold:
        """What the coordinates are, and how displacements move them."""
        kinds = [KINDS[body.kind] for body in self.model.independent_bodies()]
        return self._cached("manifold", lambda: Manifold(kinds, self.device))

    def get_joint_limits(self) -> list[JointLimits]:
        """Return the limits of each velocity's joint, in order; a floating base and balls have none."""
        limits: list[JointLimits] = []
        for body in self.model.independent_bodies():
            given = body.joint.limits
            for _ in range(KINDS[body.kind].nv):
                one_dof = KINDS[body.kind].nv == 1
                limits.append(
                    {
                        "lower": given.lower if one_dof else -inf,
                        "upper": given.upper if one_dof else inf,
                        "velocity": given.velocity,
                        "effort": given.effort,
                    }
                )
        return limits

    def neutral(self, *batch: int) -> Tensor:
        """Return q of the zero pose, shape (*batch, nq): zeros, and unit quaternions."""
        q = self._like.new_zeros(self.nq)
        for body in self.model.independent_bodies():
            if KINDS[body.kind].turns:
                q[self.model.q_start[body.joint.name] + KINDS[body.kind].nq - 1] = 1.0
        return q.repeat(*batch, 1) if batch else q

    def initial_q(self, *batch: int) -> Tensor:
        """Return q of the pose in which the description has the robot, shape (*batch, nq); else the zero pose."""
        q = self._named(self.model.tree.initial, self.neutral(), self.model.q_start)
        return q.repeat(*batch, 1) if batch else q

    @property
    def actuator_names(self) -> list[str]:
        """The actuators of the description, in its order."""
        return [drive.name for drive in self.model.tree.drives]

    @property
    def keyframes(self) -> dict[str, NamedState]:
        """The states that the description names."""
        found = {}
        for name, key in self.model.tree.keyframes.items():
            q = self._named(key.q, self.initial_q(), self.model.q_start)
            qd = self._named(key.qd, self._like.new_zeros(self.nv), self.model.v_start)
            u = self._like.new_tensor([key.controls.get(actuator, 0.0) for actuator in self.actuator_names])
            found[name] = NamedState(q, qd, u)
        return found

    def from_mujoco(self, qpos: Tensor, qvel: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return q (*batch, nq) and qd (*batch, nv) of MuJoCo's qpos and qvel for the same robot.

        qvel is zero unless given. Of joints that follow others, MuJoCo's coordinates are left out.
        """
        qvel = qpos.new_zeros(*qpos.shape[:-1], self.model.nv_all) if qvel is None else qvel
        q, qd = from_mujoco(self.model, qpos, qvel)
        return q[..., self.model.independent_coordinates()], qd[..., self.model.independent_velocities()]

    def to_mujoco(self, q: Tensor, qd: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return MuJoCo's qpos and qvel, those of joints that follow others included; the inverse of `from_mujoco`."""
        qd = q.new_zeros(*q.shape[:-1], self.nv) if qd is None else qd
        self._flatten(q=(q, self.nq), qd=(qd, self.nv))
        return to_mujoco(self.model, self._coordinates(q), self._velocities(qd))

    def _named(self, values: Mapping[str, np.ndarray], into: Tensor, starts: Mapping[str, int]) -> Tensor:
        """Return coordinates or velocities with those of some joints replaced; joints that follow others have none."""
        into = into.clone()
        for joint, value in values.items():
            if joint in starts:
                into[starts[joint] : starts[joint] + len(value)] = into.new_tensor(value)
        return into

    def random_q(self, *batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Return coordinates drawn within the limits, a turn or a metre where there are none, shape (*batch, nq)."""
        q = self.neutral(*batch)
        for body in self.model.independent_bodies():
            start, nq = self.model.q_start[body.joint.name], KINDS[body.kind].nq
            drawn = torch.rand(*batch, nq, dtype=self.dtype, generator=generator).to(self.device)
            if nq == 1:
                reach = KINDS[body.kind].reach
                lower, upper = max(body.joint.limits.lower, -reach), min(body.joint.limits.upper, reach)
                drawn = lower + (upper - lower) * drawn
            else:
                drawn = 2.0 * drawn - 1.0
                quat = drawn[..., -4:] + 1e-3
                drawn = torch.cat([drawn[..., :-4], quat / torch.linalg.vector_norm(quat, dim=-1, keepdim=True)], -1)
            q[..., start : start + nq] = drawn
        return q

    def integrate(self, q: Tensor, step: Tensor) -> Tensor:
        """Move the coordinates q (*batch, nq) by the displacement step = dt qd (*batch, nv), on the manifold."""
        self._flatten(q=(q, self.nq), step=(step, self.nv))
        return self.manifold.retract(q, step)

    # -- the border ----------------------------------------------------------------------------------------------

    def _flatten(self, **given: tuple[Tensor, int]) -> tuple[torch.Size, list[Tensor]]:
        """Check and flatten tensors (*batch, n) to (B, n), or (1, n) where one has no batch; return also the batch."""
        if torch.compiler.is_compiling():
            self._enter_graph()
        shapes = []
        dtype, device = self._like.dtype, self._like.device
        for name, (x, n) in given.items():
            if not isinstance(x, Tensor):
                raise PullbackError(f"{name} is a {type(x).__name__}; expected a torch tensor of shape (*batch, {n})")
            if x.ndim == 0 or x.shape[-1] != n:
                more = self._mimic_advice(name, x, n)
                raise PullbackError(
                    f"{name} has shape {tuple(x.shape)}; {self.model.tree.name} expects (*batch, {n}){more}"
                )
            if x.dtype != dtype or x.device != device:
                raise PullbackError(
                    f"{name} is {x.dtype} on {x.device}, the robot is {dtype} on {device}; "
                    f"pass {name}.to(robot.device, robot.dtype), or convert the robot"
                )
            shapes.append(x.shape[:-1])
        batch = shapes[0]
        if any(shape != batch for shape in shapes):
            try:
                batch = torch.broadcast_shapes(*shapes)
            except RuntimeError as error:
                pairs = ", ".join(f"{name} {tuple(x.shape)}" for name, (x, _) in given.items())
                raise PullbackError(f"batch dimensions do not broadcast: {pairs}") from error
        return batch, [
            x.reshape(batch.numel(), n) if x.shape[:-1] == batch else _expand(x, batch, n) for x, n in given.values()
        ]

    def _mimic_advice(self, name: str, x: Tensor, n: int) -> str:
        """Return what to do where a tensor has coordinates or velocities of mimic joints too, as those of a world."""
        model = self.model
        if name == "q":
            size, method = model.nq_all, "independent_coordinates"
        else:
            size, method = model.nv_all, "independent_velocities"
        # forces of followers act on their leaders, so they cannot be left out
        if name not in ("q", "qd", "qdd_des", "step") or x.ndim == 0 or x.shape[-1] != size or size == n:
            return ""
        mimics = [body.joint.name for body in model.bodies if body.joint.mimic is not None]
        return (
            f": without its mimic joints ({shortened(', '.join(mimics))}), which are in a world's {name}; "
            f"pass {name}[..., robot.model.{method}()]"
        )

    def _enter_graph(self) -> None:
        """Compute all that is kept, which torch.compile cannot trace; a robot that learns ends the graph."""
        if self.learned:
            leave_graph()
        self._fill_cache()

    def _fill_cache(self) -> bool:
        """Compute all that is kept of a robot that does not learn."""
        raise NotImplementedError

    def _coordinates(self, q: Tensor) -> Tensor:
        """Return the coordinates of all bodies, those of mimic joints included."""
        if self.model.coupling is None:
            return q
        position, offset, _ = self._coupling()
        return q @ position.mT + offset

    def _velocities(self, qd: Tensor) -> Tensor:
        return qd if self.model.coupling is None else qd @ self._coupling()[2].mT

    def _coupling(self) -> tuple[Tensor, Tensor, Tensor]:
        coupling = self.model.coupling
        assert coupling is not None
        matrices = (coupling.position, coupling.offset, coupling.velocity)
        return self._cached("coupling", lambda: tuple(torch.from_numpy(x).to(self._like) for x in matrices))


def _expand(x: Tensor, batch: torch.Size, n: int) -> Tensor:
    return x.reshape(1, n) if x.shape[:-1].numel() == 1 else x.expand(*batch, n).reshape(batch.numel(), n)
