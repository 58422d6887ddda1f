"""Rollouts under feedback: controls that answer to how far the state has come from a nominal one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pullback.core.errors import PullbackError
from pullback.rigid.state import State, Status, Trajectory

if TYPE_CHECKING:
    from pullback.rigid.sim import Sim

Tensor = torch.Tensor


@torch.no_grad()
def feedback_rollout(
    sim: Sim,
    state: State,
    controls: Tensor,
    gains: Tensor,
    nominal: Trajectory,
    lower: Tensor | None,
    upper: Tensor | None,
    defects: Tensor | None,
) -> tuple[Trajectory, Tensor]:
    """Do what `Sim.feedback_rollout` says, step by step."""
    steps, worlds = check_feedback(sim, controls, gains, nominal, lower, upper, defects)
    states, applied = [state], []
    for t in range(steps):
        dx = difference(sim, nominal[t], states[t])
        u = controls[t] + (gains[t] @ dx[..., None])[..., 0]
        u = u if lower is None else u.maximum(lower if lower.ndim == 1 else lower[t])
        u = u if upper is None else u.minimum(upper if upper.ndim == 1 else upper[t])
        after = sim.step(states[t], u)
        states.append(after if defects is None else retract(sim, after, defects[t]))
        applied.append(u)
    q, qd = torch.stack([x.q for x in states]), torch.stack([x.qd for x in states])
    impulses = None if state.impulses is None else torch.stack([x.impulses for x in states])  # pyright: ignore
    flags = torch.zeros(worlds, 3, dtype=sim.dtype, device=sim.device)
    flags[:, 1] = -1.0
    flags[~(q.isfinite().all(-1) & qd.isfinite().all(-1)).all(0), 0] = 1.0
    return Trajectory(q, qd, Status(flags, 1), torch.arange(steps + 1), impulses), torch.stack(applied)


def difference(sim: Sim, a: State, b: State) -> Tensor:
    """Return the change of state that leads from a to b."""
    return torch.cat([b.q - a.q, b.qd - a.qd], -1)


def retract(sim: Sim, state: State, dx: Tensor) -> State:
    """Return the state moved by a change."""
    return State(state.q + dx[..., : sim.nv], state.qd + dx[..., sim.nv :], state.impulses)


def check_feedback(
    sim: Sim,
    controls: Tensor,
    gains: Tensor,
    nominal: Trajectory,
    lower: Tensor | None,
    upper: Tensor | None,
    defects: Tensor | None,
) -> tuple[int, int]:
    """Return the numbers of steps and worlds, or name what does not fit."""
    if not isinstance(controls, Tensor) or controls.ndim != 3 or controls.shape[2] != sim.nu or not len(controls):
        got = tuple(controls.shape) if isinstance(controls, Tensor) else type(controls).__name__
        raise PullbackError(f"controls are {got}; expected (T, B, {sim.nu})")
    steps, worlds, nu = controls.shape
    expected = {
        "gains": (gains, (steps, worlds, nu, 2 * sim.nv)),
        "the nominal q": (nominal.q, (steps + 1, worlds, sim.nq)),
        "the nominal qd": (nominal.qd, (steps + 1, worlds, sim.nv)),
        "defects": (defects, (steps, worlds, 2 * sim.nv)),
    }
    for name, (x, shape) in expected.items():
        if x is not None and x.shape != shape:
            raise PullbackError(f"{name} is {tuple(x.shape)}; with controls {tuple(controls.shape)} expected {shape}")
    for name, bound in (("lower", lower), ("upper", upper)):
        if bound is not None and bound.shape not in ((nu,), controls.shape):
            raise PullbackError(f"{name} is {tuple(bound.shape)}; expected ({nu},) or {tuple(controls.shape)}")
    return steps, worlds
