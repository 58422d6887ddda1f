"""Which states of a rollout are kept, and how a backward pass gets at the others: docs/derivations/checkpoints.md.

State i is the state before step i; a rollout of n steps goes from state 0 to state n. A plan is a list of actions on
one current state, rows (op, step, slot):

    RESTORE   the current state becomes the one in `slot`, state `step`
    ADVANCE   do step `step` forward, from state `step` to state `step + 1`
    SAVE      write the current state, state `step`, to `slot`
    VJP       the current state is state `step`: pull the cotangents back through step `step`

A VJP leaves the current state undefined. The first slots are the states that the forward pass kept, in order, which are
only read; scratch slots come after them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb
from numbers import Integral
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from pullback.core.errors import PullbackError

RESTORE, ADVANCE, SAVE, VJP = 0, 1, 2, 3


class Plan(NamedTuple):
    """What a backward pass does: the states kept (K,) and its actions (N, 3), both int32; how many scratch slots."""

    kept: np.ndarray
    actions: np.ndarray
    slots: int


@runtime_checkable
class Schedule(Protocol):
    """A choice of states to keep."""

    def kept(self, n: int) -> np.ndarray:
        """Return the states that the forward pass of n steps keeps, ascending, state 0 and state n among them."""
        ...

    def plan(self, n: int) -> Plan:
        """Return what the backward pass of n steps does."""
        ...


@dataclass(frozen=True)
class Every:
    """Keep one state every `interval` steps, and recompute the states between two of them once."""

    interval: int = 1

    def __post_init__(self):
        _check_integer("Every: interval", self.interval, 1)

    def kept(self, n: int) -> np.ndarray:
        """Return the states that the forward pass keeps."""
        return self.plan(n).kept

    def plan(self, n: int) -> Plan:
        """Return what the backward pass of n steps does."""
        _check_integer("the number of steps", n, 0)
        return _plan_every(int(self.interval), int(n))


@dataclass(frozen=True)
class Binomial:
    """Keep the ends, and recompute as little as possible with `slots` states at once, the initial one among them.

    Griewank and Walther, Algorithm 799: revolve, ACM Transactions on Mathematical Software 26 (2000).
    """

    slots: int

    def __post_init__(self):
        _check_integer("Binomial: slots", self.slots, 2)

    def kept(self, n: int) -> np.ndarray:
        """Return the states that the forward pass keeps."""
        return self.plan(n).kept

    def plan(self, n: int) -> Plan:
        """Return what the backward pass of n steps does."""
        _check_integer("the number of steps", n, 0)
        return _plan_binomial(int(self.slots), int(n))


def schedule_from(checkpoint: int | Schedule, stores: bool = False) -> Schedule:
    """Return the schedule itself, or for an integer k the one that keeps a state every k steps.

    stores: whether schedules are allowed that keep states elsewhere than in memory (`store.py`).
    """
    if hasattr(checkpoint, "open") and not stores:
        raise PullbackError(
            f"checkpoint is {checkpoint!r}: only thermal.Process keeps states on a disk or a host; give an integer k "
            f"for one state every k steps, or a schedule: Every(k), Binomial(slots)"
        )
    if isinstance(checkpoint, Integral) and not isinstance(checkpoint, bool):
        if checkpoint < 1:
            raise PullbackError(f"checkpoint is {checkpoint}; expected at least 1, which keeps every state")
        return Every(int(checkpoint))
    if isinstance(checkpoint, type) or not isinstance(checkpoint, Schedule):
        raise PullbackError(
            f"checkpoint is {checkpoint!r}; expected an integer k for one state every k steps, "
            f"or a schedule: Every(k), Binomial(slots)"
        )
    return checkpoint


def binomial_advances(n: int, slots: int) -> int:
    """Return the fewest forward steps that a backward pass of n steps needs with `slots` states, eq. (3)."""
    r = _repetitions(n, slots)
    return r * n - _reach(slots + 1, r - 1)


class _Actions:
    """A list of actions, and the state that is current once they are done."""

    def __init__(self):
        self.rows: list[tuple[int, int, int]] = []
        self.state: int | None = None

    def go_to(self, state: int, slot: int, slot_state: int) -> None:
        """Make `state` current: from the current state if that is `slot_state`, else from the slot that holds it."""
        if self.state != slot_state:
            self.rows.append((RESTORE, slot_state, slot))
        self.rows += [(ADVANCE, step, -1) for step in range(slot_state, state)]
        self.state = state

    def save(self, slot: int) -> None:
        assert self.state is not None
        self.rows.append((SAVE, self.state, slot))

    def vjp(self) -> None:
        assert self.state is not None
        self.rows.append((VJP, self.state, -1))
        self.state = None


def _make_plan(kept: Any, actions: Any, slots: int) -> Plan:
    arrays = np.asarray(kept, np.int32), np.asarray(actions, np.int32).reshape(-1, 3)
    for array in arrays:
        array.flags.writeable = False
    return Plan(*arrays, slots)


@lru_cache(maxsize=32)
def _plan_every(interval: int, n: int) -> Plan:
    interval = max(min(interval, n), 1)
    kept = np.append(np.arange(0, n, interval), n)
    # all segments are alike, but the last one, which is walked back first, may be shorter
    whole, rest = divmod(n, interval)
    segment, last = (_segment_actions(length, first_slot=len(kept)) for length in (interval, rest))
    last[:, 1] += whole * interval
    last[:1, 2] = last[-2:-1, 2] = whole
    rows = np.empty((len(last) + whole * len(segment), 3), np.int32)
    rows[: len(last)] = last
    actions = rows[len(last) :].reshape(whole, len(segment), 3)[::-1]
    actions[:] = segment
    numbers = np.arange(whole, dtype=np.int32)[:, None]
    actions[:, :, 1] += numbers * interval
    actions[:, :1, 2] = actions[:, -2:-1, 2] = numbers
    return _make_plan(kept, rows, slots=max(interval - 2, 0))


def _segment_actions(length: int, first_slot: int) -> np.ndarray:
    """Return the actions (N, 3) for a segment from state 0 on, in slot 0, with scratch from `first_slot` on."""
    if length == 0:
        return np.zeros((0, 3), np.int32)
    state = np.arange(length)
    slot = np.where(state > 0, first_slot + state - 1, 0)
    restore, advance, save, vjp = (
        np.stack([np.full(length, op), state, slot if op in (RESTORE, SAVE) else np.full(length, -1)], 1)
        for op in (RESTORE, ADVANCE, SAVE, VJP)
    )
    # recompute the segment's states, once; the last of them is current then, the others are in their slots
    forward = np.stack([advance[:-1], save[1:]], 1).reshape(-1, 3)[:-1]
    backward = np.stack([restore, vjp], 1)[::-1].reshape(-1, 3)[1:]
    return np.concatenate([restore[:1], forward, backward]).astype(np.int32)


@lru_cache(maxsize=32)
def _plan_binomial(slots: int, n: int) -> Plan:
    kept = [0, n] if n else [0]
    actions = _Actions()
    held = [0]  # states in memory: the initial one, then one in each scratch slot
    end = n
    while end > 0:
        start, slot = held[-1], 0 if len(held) == 1 else len(held)
        free = slots - len(held) + 1
        target = start + _advance_by(end - start, free)
        actions.go_to(target, slot, start)
        if target < end - 1:
            held.append(target)
            actions.save(len(held))
            continue
        actions.vjp()
        end = target
        if end == start:
            held.pop()
    return _make_plan(kept, actions.rows, slots=len({slot for op, _, slot in actions.rows if op == SAVE}))


def _advance_by(length: int, slots: int) -> int:
    """Return how far to advance from the start of a segment before the next state is held, or is the one to reverse."""
    if slots == 1 or length == 1:
        return length - 1
    # eq. (4)
    r = _repetitions(length, slots)
    return min(_reach(slots, r - 1), length - _reach(slots - 1, r - 1))


def _repetitions(length: int, slots: int) -> int:
    """Return the smallest r with length <= reach(slots, r): how often a step is repeated at most, eq. (2)."""
    r = 0
    while _reach(slots, r) < length:
        r += 1
    return r


def _reach(slots: int, repetitions: int) -> int:
    """Return the longest rollout that can be reversed with so many slots and repetitions of a step, eq. (1)."""
    return comb(slots + repetitions, slots) if repetitions >= 0 else 0


def _check_integer(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise PullbackError(f"{name} is {value!r}; expected an integer, at least {least}")
