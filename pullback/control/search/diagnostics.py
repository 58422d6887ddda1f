"""Diagnostics of gradients through contact: their size over time, and where contact modes change."""

from __future__ import annotations

import zlib

import torch

from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory

Tensor = torch.Tensor


def gradient_by_step(gradient: Tensor, time: int = 0) -> Tensor:
    """Return the norm of the gradient by controls (T, B, nu) at each step, (T, B); `time` is the dimension of steps.

    With `time=1` the controls are candidates (B, T, nu); the result is (T, B) too. It grows towards the first step if
    the motion is unstable, and is zero where controls have no effect. Values that are not finite raise an error.
    """
    if gradient.ndim != 3 or time not in (0, 1):
        raise PullbackError(f"the gradient is {tuple(gradient.shape)}; give (T, B, nu), or (B, T, nu) with time=1")
    steps = gradient.movedim(time, 0)
    bad = ~steps.isfinite().all(-1)
    if bool(bad.any()):
        step, world = bad.nonzero()[0].tolist()
        raise PullbackError(f"the gradient is not finite at step {step} in world {world}, {int(bad.sum())} such in all")
    return steps.norm(dim=-1)


@torch.no_grad()
def contact_modes(sim: Sim, states: Trajectory, controls: Tensor | None = None, every: int = 1) -> Tensor:
    """Return a hash of the set of shape pairs in contact, (B, T): equal numbers, equal sets.

    It is computed for the first T states, one in `every`, as one batch. A pair is in contact if the step from there
    has a contact force, under the controls (T, B, nu) if given. Zero means no contact.
    """
    kept, worlds = len(states) - 1, states.q.shape[1]
    moments = torch.arange(0, kept, every)
    impulses = None if states.impulses is None else states.impulses[moments].flatten(0, 1)
    before = State(states.q[moments].flatten(0, 1), states.qd[moments].flatten(0, 1), impulses)
    u = None
    if controls is not None:
        steps = states.steps[moments]
        u = controls[steps].expand(len(moments), worlds, -1).flatten(0, 1)
    numbers = [_number(contacts) for contacts in sim.contacts(before, u)]
    return torch.tensor(numbers, dtype=torch.int64).view(len(moments), worlds).T.contiguous()


def _number(contacts: list) -> int:
    """Return a hash of the pairs with a contact force."""
    pairs = sorted({"|".join(c.shapes) for c in contacts if any(c.force)})
    return zlib.crc32("\n".join(pairs).encode()) if pairs else 0


def share_with_changes(modes: Tensor) -> float:
    """Return the fraction of worlds whose contact mode (B, T) changes along the rollout."""
    return (modes[:, 1:] != modes[:, :-1]).any(1).double().mean().item()


def changed_worlds(before: Tensor, after: Tensor) -> Tensor:
    """Return which worlds (B,) have different modes (B, T) anywhere along the rollout."""
    if before.shape != after.shape:
        raise PullbackError(f"modes {tuple(before.shape)} and {tuple(after.shape)}; compare rollouts of the same shape")
    return (before != after).any(1)
