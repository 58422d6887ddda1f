"""An optimal control problem: simulation, initial states, horizon, costs, bounds and constraints."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
import torch

from pullback.control.costs.costs import Blocks, BoundSum, Cost, Place, Values, bind, numbers
from pullback.control.ilqr.riccati import Quadratic
from pullback.core.errors import PullbackError
from pullback.rigid.compile.scene import ACTUATOR_ROWS
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory

if TYPE_CHECKING:
    from pullback.control.ilqr.constraints import Constraint

Tensor = torch.Tensor

SLACK = 1e-3
"""How far [rad, m] a state may be beyond a joint limit, which is not perfectly hard."""


class Problem:
    """A batch of B problems, one for each world of `state`, each over `horizon` steps of the simulation.

    The cost of a motion is the sum of the `running` cost over the states before each step and its controls, and of the
    `terminal` cost of the last state. Controls stay between `lower` and `upper`, a number, (nu,) or (T, B, nu), and
    torques within their motors' limits. `constraints` are met by an augmented Lagrangian. Invalid problems raise here,
    before anything runs.
    """

    def __init__(
        self,
        sim: Sim,
        state: State,
        horizon: int,
        running: Cost | None = None,
        terminal: Cost | None = None,
        *,
        lower: Values | None = None,
        upper: Values | None = None,
        constraints: Sequence[Constraint] = (),
    ) -> None:
        if not isinstance(sim, Sim):
            raise PullbackError(
                f"a problem is about a pb.Sim, got a {type(sim).__name__}; world.compile(...) makes one"
            )
        if not isinstance(horizon, Integral) or isinstance(horizon, bool) or horizon < 1:
            raise PullbackError(f"the horizon is {horizon!r}; give the number of steps, 1 or more")
        if sim.nu == 0:
            raise PullbackError("nothing in this world is actuated, so there is nothing to control; give it actuators")
        if running is None and terminal is None:
            raise PullbackError("a problem without costs; give running or terminal")
        self.sim, self.horizon = sim, int(horizon)
        self.state = _check_state(sim, state)
        _check_limits(sim, self.state)
        self.batch = len(self.state.q)
        self.running = bind(running, Place(sim, self.horizon, self.batch, is_end=False))
        self.terminal = bind(terminal, Place(sim, 1, self.batch, is_end=True))
        self.lower, self.upper = _check_bounds(self, lower, upper)
        self.constraints = list(constraints)
        self._constant = self._constant_blocks()
        self._check_cost()

    def start_from(self, state: State) -> Problem:
        """Return the same problem from other states, which may be beyond joint limits as a plant's can."""
        other = object.__new__(Problem)
        other.__dict__.update(self.__dict__)
        other.state = _check_state(self.sim, state)
        if len(other.state.q) != self.batch:
            raise PullbackError(f"the problem is for {self.batch} worlds, the new states are of {len(other.state.q)}")
        return other

    def with_costs(self, running: BoundSum, terminal: BoundSum) -> Problem:
        """Return the same problem with other costs and without constraints."""
        other = object.__new__(Problem)
        other.__dict__.update(self.__dict__, running=running, terminal=terminal, constraints=[])
        other._constant = other._constant_blocks()
        return other

    def renew(self) -> None:
        """Read parameters of the simulation that may have changed since the last search."""
        self.running.renew()
        self.terminal.renew()

    def numbers_of(self, chosen: np.ndarray) -> Tensor | None:
        """Return the indices of chosen problems (B,); None for all, which worlds with their own parameters need."""
        if chosen.all() or len(self.sim.parameters.packed()) > 1:
            return None
        return torch.from_numpy(chosen.nonzero()[0]).to(self.sim.device)

    # -- cost of a motion ----------------------------------------------------------------------------------------

    def cost(self, states: Trajectory, controls: Tensor) -> Tensor:
        """Return the cost of motions (..., B): states q (..., T+1, B, nq), controls (..., T, B, nu)."""
        q, qd, T = states.q, states.qd, self.horizon
        ran = self.running.values(q[..., :T, :, :], qd[..., :T, :, :], controls).sum(-2)
        return ran + self.terminal.values(q[..., T:, :, :], qd[..., T:, :, :], None)[..., 0, :]

    def expand(self, states: Trajectory, controls: Tensor) -> Quadratic:
        """Return the cost's first and second derivatives along a motion."""
        T, constant = self.horizon, self._constant
        total = Quadratic(
            torch.zeros_like(constant.x), torch.zeros_like(constant.u), *[x.clone() for x in constant[2:]]
        )
        ran, ended = _split(total, T)
        self.running.add(states.q[:T], states.qd[:T], controls, ran)
        self.terminal.add(states.q[T:], states.qd[T:], None, ended)
        return total

    def _constant_blocks(self) -> Quadratic:
        """Return the constant second derivatives."""
        T, B, n, m = self.horizon, self.batch, 2 * self.sim.nv, self.sim.nu
        sizes = ((T + 1, B, n), (T, B, m), (T + 1, B, n, n), (T, B, m, m), (T, B, m, n))
        total = Quadratic(*[torch.zeros(size, dtype=self.sim.dtype, device=self.sim.device) for size in sizes])
        ran, ended = _split(total, T)
        self.running.add_constant(ran)
        self.terminal.add_constant(ended)
        return total

    def _check_cost(self) -> None:
        """Raise for costs that are not finite at the initial state."""
        q, qd, T = self.state.q, self.state.qd, self.horizon
        u = torch.zeros(T, self.batch, self.sim.nu, dtype=self.sim.dtype, device=self.sim.device)
        u = clamp(u, self.lower, self.upper)
        parts = {
            "running": self.running.values(q.expand(T, -1, -1), qd.expand(T, -1, -1), u),
            "terminal": self.terminal.values(q[None], qd[None], None),
        }
        for name, values in parts.items():
            bad = (~values.isfinite()).any(0).nonzero().flatten().tolist()
            if bad:
                raise PullbackError(f"the {name} cost of problem {bad[0]} is not finite where it starts")


def clamp(u: Tensor, lower: Tensor | None, upper: Tensor | None) -> Tensor:
    """Return controls within their bounds."""
    return u if lower is None and upper is None else u.clamp(lower, upper)


def _split(total: Quadratic, steps: int) -> tuple[Blocks, Blocks]:
    """Return the running and the terminal part of derivatives, as views."""
    ran = Blocks(total.x[:steps], total.u, total.xx[:steps], total.uu, total.ux)
    return ran, Blocks(total.x[steps:], None, total.xx[steps:], None, None)


def _check_state(sim: Sim, state: State) -> State:
    """Return the state for each problem; raise if it does not fit the simulation or violates joint limits."""
    worlds = sim._check_state(state)
    given = sim.parameters.packed().shape[0]
    if worlds not in (1, given) and given != 1:
        raise PullbackError(f"the state is of {worlds} worlds, the simulation's parameters are for {given}")
    for name, x in (("q", state.q), ("qd", state.qd)):
        bad = (~x.isfinite()).any(1).nonzero().flatten().tolist()
        if bad:
            raise PullbackError(f"the initial {name} of world {bad[0]} is not finite")
    state = state.detach()
    if worlds == 1 and given > 1:
        state = State(*[None if x is None else x.repeat(given, 1) for x in (state.q, state.qd, state.impulses)])  # pyright: ignore
    return state


def _check_limits(sim: Sim, state: State) -> None:
    """Raise for a state beyond its joint limits."""
    limited = torch.as_tensor(sim.arrays.limit_dof, device=sim.device).long()
    if not len(limited):
        return
    ends = sim.parameters().limits.detach().unflatten(1, (-1, 2))[:, limited]
    where = torch.as_tensor(sim.arrays.dof_coordinate, device=sim.device).long()[limited]
    q = state.q[:, where]
    outside = (q < ends[..., 0] - SLACK) | (q > ends[..., 1] + SLACK)
    if bool(outside.any()):
        world, k = outside.nonzero()[0].tolist()
        name = sim.arrays.body_names[int(sim.arrays.dof_body[int(limited[k])])]
        low, high = ends[0 if len(ends) == 1 else world, k].tolist()
        raise PullbackError(
            f"world {world} starts with {name} at {q[world, k].item():.6g}, outside its limits {low:.6g} to {high:.6g}"
        )


def _check_bounds(problem: Problem, lower: Values | None, upper: Values | None) -> tuple[Tensor | None, Tensor | None]:
    """Return bounds (nu,) or (T, B, nu), or None where there are none."""
    sim, shape = problem.sim, (problem.horizon, problem.batch, problem.sim.nu)
    found: list[Tensor | None] = []
    for name, values in (("lower", lower), ("upper", upper)):
        if values is None:
            found.append(None)
            continue
        x = numbers(values, sim)
        if x.ndim > 3 or not _fits(x.shape, shape):
            raise PullbackError(f"{name} has shape {tuple(x.shape)}; expected a number, ({sim.nu},) or {shape}")
        if bool(x.isnan().any()):
            raise PullbackError(f"{name} holds values that are not a number")
        found.append(x.expand(sim.nu) if x.ndim < 2 else x.expand(shape))
    low, high = found
    if low is not None and high is not None and bool((low > high).any()):
        k = int((low > high).expand(shape).flatten(0, 1).any(0).nonzero()[0])
        raise PullbackError(
            f"lower is above upper for control {k} ({sim.arrays.actuator_names[k]}): no control is allowed; swap them"
        )
    return _within_motors(problem, low, high)


def _within_motors(problem: Problem, low: Tensor | None, high: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return bounds within the motors' limits: beyond them a torque has no effect and no gradient."""
    sim, shape = problem.sim, (problem.horizon, problem.batch, problem.sim.nu)
    numbers = sim.parameters().actuators.detach().unflatten(1, (-1, int(ACTUATOR_ROWS)))
    most = torch.stack([actuator.control_reach(numbers[:, k]) for k, actuator in enumerate(sim.world.actuators)], -1)
    if bool(most.isinf().all()):
        return low, high
    most = most[0] if len(most) == 1 else most.expand(shape)
    low = -most if low is None else torch.maximum(low, -most)
    high = most if high is None else torch.minimum(high, most)
    empty = (low > high).expand(shape).flatten(0, 1).any(0)
    if bool(empty.any()):
        k = int(empty.nonzero()[0])
        reach = most.expand(shape)[0, 0, k].item()
        raise PullbackError(
            f"the bounds of control {k} ({sim.arrays.actuator_names[k]}) lie beyond its motor's limit, {reach:g}"
        )
    return low, high


def _fits(given: torch.Size, shape: tuple[int, ...]) -> bool:
    """Return whether sizes broadcast to a shape."""
    return all(a in (1, b) for a, b in zip(reversed(given), reversed(shape)))
