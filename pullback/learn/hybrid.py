"""Hybrid models: a network inside the physics, which adds what a description leaves out.

A residual is a module that sees states and controls and returns a `Correction`: controls as the motors really act
(an actuator network), forces at joints, wrenches on links, friction of shapes. `Hybrid` applies it in every step of a
simulation; gradients of what comes later reach the network through the physics.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pullback.core.errors import PullbackError
from pullback.core.state_file import read_state, write_state
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Status, Trajectory
from pullback.robot.export import export_urdf
from pullback.robot.model import RobotModel

Tensor = torch.Tensor

FORMAT = "pullback hybrid 1"
"""Written into every file of a hybrid model; files with another format are refused."""
WEIGHTS = "residual.pt"
"""The file of a hybrid model's network, beside the descriptions of its robots."""


@dataclass(frozen=True)
class Correction:
    """What a residual changes in one step of B worlds; what is left out stays as the physics has it."""

    control: Tensor | None = None
    """(B, nu): takes the place of the controls."""
    torque: Tensor | None = None
    """(B, nv) [N·m, N]: added at the joints, free bodies' and floating bases' six included."""
    wrenches: Mapping[str, Tensor] = field(default_factory=dict)
    """By link `robot/link` or free body: torque [N·m] about its origin, then force [N], (B, 6) in world axes."""
    friction: Mapping[str, Tensor] = field(default_factory=dict)
    """By shape, as `World.set_shape` names them: the coefficient (B,)."""
    memory: Tensor | None = None
    """(B, n): what the residual remembers; None: what it remembered before."""


class Residual(nn.Module):
    """What a residual has to have: a `forward`, and, if it remembers anything, how much, and where it begins.

    Any module with this `forward` will do; the class is for those that remember.
    """

    def begin(self, state: State) -> Tensor:
        """Return the memory (B, n) that an episode begins with; by default there is none."""
        return state.q.new_zeros(len(state.q), 0)

    def fit_scalers(self, state: State, u: Tensor) -> None:
        """Learn from states and controls (N, ...) of a recording what numbers to expect; by default nothing."""

    def forward(self, state: State, u: Tensor, memory: Tensor) -> Correction:
        """Return what to change in the step from a state under controls (B, nu)."""
        raise NotImplementedError


class Nothing(Residual):
    """Physics alone."""

    def forward(self, state: State, u: Tensor, memory: Tensor) -> Correction:
        """Return no correction."""
        return Correction()


class Hybrid(nn.Module):
    """A simulation with a network inside.

    A step asks the residual, gives joints the velocity that its forces add in that time, dt M⁻¹ (tau + Jᵀ w), and lets
    the simulation do the rest: so forces act on what touches as well. All of it is differentiable.
    """

    def __init__(self, sim: Sim, residual: nn.Module) -> None:
        super().__init__()
        if not isinstance(sim, Sim):
            raise PullbackError(f"sim is a {type(sim).__name__}; give world.compile(...)")
        if not isinstance(residual, nn.Module):
            raise PullbackError(f"residual is a {type(residual).__name__}; give a torch.nn.Module, such as JointTorque")
        self.sim, self.residual = sim, residual
        self._robots: list[RobotModel] | None = None

    def begin(self, state: State) -> Tensor:
        """Return the memory that the residual begins with."""
        return self.residual.begin(state) if isinstance(self.residual, Residual) else state.q.new_zeros(len(state.q), 0)

    def step(self, state: State, u: Tensor, memory: Tensor | None = None) -> tuple[State, Tensor]:
        """Return the state `dt` later under the controls (B, nu), and what the residual remembers then."""
        if memory is None:
            memory = self.begin(state)
        correction = self.correct(state, u, memory)
        for shape, friction in correction.friction.items():
            self.sim.world.set_shape(shape, friction=friction)
        if correction.torque is not None or correction.wrenches:
            state = self._push(state, correction)
        after = self.sim.step(state, u if correction.control is None else correction.control)
        return after, memory if correction.memory is None else correction.memory

    def remember(self, state: State, u: Tensor, memory: Tensor) -> Tensor:
        """Return the memory after a step that was measured, not simulated."""
        found = self.correct(state, u, memory).memory
        return memory if found is None else found

    def rollout(self, state: State, controls: Tensor, memory: Tensor | None = None) -> Trajectory:
        """Step through the controls (T, B, nu) and return all T + 1 states."""
        return rollout(self, state, controls, memory)

    def correct(self, state: State, u: Tensor, memory: Tensor) -> Correction:
        """Return the residual's correction, checked."""
        correction = self.residual(state, u, memory)
        if not isinstance(correction, Correction):
            raise PullbackError(f"the residual returned a {type(correction).__name__}; return a Correction(...)")
        worlds = len(state.q)
        expected = {"control": (correction.control, self.sim.nu), "torque": (correction.torque, self.sim.nv)}
        expected |= {f"wrench on {link!r}": (wrench, 6) for link, wrench in correction.wrenches.items()}
        for name, (value, size) in expected.items():
            if value is not None and tuple(value.shape) != (worlds, size):
                raise PullbackError(f"the residual's {name} is {tuple(value.shape)}; expected {(worlds, size)}")
        return correction

    def _push(self, state: State, correction: Correction) -> State:
        """Return the state with the velocity that forces add in a step."""
        force = torch.zeros_like(state.qd) if correction.torque is None else correction.torque
        for link, wrench in correction.wrenches.items():
            jacobian = self.sim.link_jacobian(state, link)
            force = force + (jacobian.mT @ torch.cat([wrench[:, 3:], wrench[:, :3]], 1)[..., None])[..., 0]
        gained, q_start, v_start = [], 0, 0
        for robot in self._movers():
            q, tau = state.q[:, q_start : q_start + robot.nq], force[:, v_start : v_start + robot.nv]
            q_start, v_start = q_start + robot.nq, v_start + robot.nv
            gained.append(
                robot.compute_forward_dynamics(
                    q, torch.zeros_like(tau), tau, include_gravity=False, include_springs=False
                )
            )
        return State(state.q, state.qd + self.sim.dt * torch.cat(gained, 1), state.impulses)

    def _movers(self) -> list[RobotModel]:
        """Return the robots and free bodies in the order of q, in the simulation's type."""
        if self._robots is None:
            robots = []
            for name, robot in self.sim.world.robots.items():
                if robot.model.coupling is not None:
                    raise PullbackError(
                        f"{name!r} has mimic joints, for which a residual's forces are not there yet; let the residual "
                        f"change the controls instead"
                    )
                same = robot.dtype == self.sim.dtype and robot.device == self.sim.device
                robots.append(robot if same else deepcopy(robot).to(self.sim.device, self.sim.dtype))
            self._robots = robots
        return self._robots


def rollout(model: Any, state: State, controls: Tensor, memory: Tensor | None = None) -> Trajectory:
    """Return the T + 1 states of a model with `begin` and `step` under controls (T, B, nu)."""
    memory = model.begin(state) if memory is None else memory
    q, qd = [state.q], [state.qd]
    for u in controls:
        state, memory = model.step(state, u, memory)
        q.append(state.q)
        qd.append(state.qd)
    steps = torch.arange(len(q))
    return Trajectory(torch.stack(q), torch.stack(qd), Status.fine(len(state.q), model.sim.substeps), steps)


# -- saving ------------------------------------------------------------------------------------------------------------


def save_hybrid(hybrid: Hybrid, folder: str | Path) -> Path:
    """Write the network and, beside it, each robot as a URDF file with the parameters it has; return the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, robot in hybrid.sim.world.robots.items():
        export_urdf(robot, folder / f"{name}.urdf")
    weights = {name: x.detach().cpu() for name, x in hybrid.residual.state_dict().items()}
    saved = {"format": FORMAT, "weights": weights, **_identity(hybrid.sim, hybrid.residual)}
    write_state(folder / WEIGHTS, saved)
    return folder


def load_hybrid(folder: str | Path, sim: Sim, residual: nn.Module) -> Hybrid:
    """Return the model whose network `save_hybrid` wrote, in a simulation of the same joints, step and controls.

    `residual` is a module made as that one was; its weights are replaced.
    """
    path = Path(folder) / WEIGHTS
    saved: Any = read_state(path)
    found = saved.get("format") if isinstance(saved, dict) else type(saved).__name__
    if found != FORMAT:
        raise PullbackError(f"{path} is no hybrid model (its format is {found!r}, expected {FORMAT!r})")
    for name, value in _identity(sim, residual).items():
        if saved.get(name) != value:
            raise PullbackError(
                f"{path} was saved with {name} = {saved.get(name)!r}, here it is {value!r}; a network learned what its "
                f"own physics leaves out: make world and residual as they were"
            )
    try:
        residual.load_state_dict(saved["weights"])
    except RuntimeError as error:
        raise PullbackError(f"{path} does not fit the residual: {str(error).splitlines()[-1].strip()}") from None
    return Hybrid(sim, residual.to(sim.device, sim.dtype))


def _identity(sim: Sim, residual: nn.Module) -> dict[str, Any]:
    """Return what must be the same when a network is used again."""
    joints = [f"{name}/{joint}" for name, robot in sim.world.robots.items() for joint in robot.model.joint_names]
    return {
        "residual": type(residual).__name__, "joints": joints, "controls": list(sim.world.actuator_names),
        "dt": sim.dt,
    }  # fmt: skip
