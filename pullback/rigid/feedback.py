"""Rollouts under feedback: controls that answer to how far the state has come from a nominal one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pullback.core.errors import PullbackError
from pullback.rigid.outcome import overflow_text
from pullback.rigid.state import CONTACT_OVERFLOW, State, Status, Trajectory

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
    """Do what `Sim.feedback_rollout` says, in one launch."""
    steps, worlds = check_feedback(sim, controls, gains, nominal, lower, upper, defects)
    q, qd, impulses, u, parameters = sim._check_inputs(state, _flat(controls), steps)
    inputs = (
        q, qd, impulses, u, parameters, _flat(gains), _flat(nominal.q[:-1]), _flat(nominal.qd[:-1]),
        _flat_bound(lower, steps), _flat_bound(upper, steps), None if defects is None else _flat(defects),
    )  # fmt: skip
    q, qd, impulses, applied, rows = sim._programs.feedback(steps).run(inputs)
    status = Status(rows, sim.substeps)
    while status.shows() & CONTACT_OVERFLOW and sim._make_room():
        q, qd, impulses, applied, rows = sim._programs.feedback(steps).run(inputs)
        status = Status(rows, sim.substeps)
    if status.shows() & CONTACT_OVERFLOW:
        raise PullbackError(overflow_text(sim, status))
    nq, nv, nimpulse, nu = sim._rows
    trajectory = Trajectory(
        sim._unfold(q, steps + 1, nq),
        sim._unfold(qd, steps + 1, nv),
        status=status,
        steps=torch.arange(steps + 1),
        impulses=None if impulses is None else sim._unfold(impulses, steps + 1, nimpulse),
    )
    if applied is None:
        return trajectory, controls.new_empty(steps, worlds, 0)
    return trajectory, sim._unfold(applied, steps, nu)


def _flat(x: Tensor) -> Tensor:
    """Return (T, B, ...) as (B, T n), its worlds neighbours in memory on a GPU."""
    worlds = x.shape[1]
    return x.transpose(0, 1).reshape(worlds, -1) if x.is_cpu else x.movedim(1, -1).reshape(-1, worlds).t()


def _flat_bound(bound: Tensor | None, steps: int) -> Tensor | None:
    """Return a bound, (nu,) or (T, B, nu), as (1 or B, T nu)."""
    if bound is None:
        return None
    return bound.repeat(steps)[None] if bound.ndim == 1 else _flat(bound)


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
        if x is not None:
            sim._check_type(name, x)
    for name, bound in (("lower", lower), ("upper", upper)):
        if bound is not None and bound.shape not in ((nu,), controls.shape):
            raise PullbackError(f"{name} is {tuple(bound.shape)}; expected ({nu},) or {tuple(controls.shape)}")
        if bound is not None:
            sim._check_type(name, bound)
    return steps, worlds
