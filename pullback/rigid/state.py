"""What the next step needs to know, a history of it, and what went wrong on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.core.finite import FEW, is_readable

Tensor = torch.Tensor

NAN = 1
CONTACT_OVERFLOW = 2
NOT_CONVERGED = 4
ENERGY = 8
TURNED_FAR = 16
"""Flags of a world's status; 0 is all well."""

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Contact:
    """A contact between two shapes: gap [m], point [m], normal from the second to the first, force on the first [N]."""

    shapes: tuple[str, str]
    gap: float
    point: Vector
    normal: Vector
    force: Vector


class Status:
    """What happened to each world of a rollout."""

    def __init__(self, rows: Tensor, substeps: int) -> None:
        self._rows = rows
        self._substeps = substeps

    @staticmethod
    def fine(worlds: int, substeps: int) -> Status:
        """Return the status of worlds in which nothing went wrong."""
        return Status(torch.tensor([[0.0, -1.0, 0.0, -1.0]], dtype=torch.float64).repeat(worlds, 1), substeps)

    def __repr__(self) -> str:
        """Name what went wrong, and in how many worlds; a GPU is not waited for."""
        worlds = self._rows.shape[0]
        if not is_readable(self._rows):
            return f"Status({worlds} worlds on {self._rows.device})"
        codes = self.code
        names = {"not finite": NAN, "too many contacts": CONTACT_OVERFLOW, "not converged": NOT_CONVERGED}
        names["turned too far in a step"] = TURNED_FAR
        counts = {name: int(((codes & flag) > 0).sum()) for name, flag in names.items()}
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"Status({worlds} worlds: {told or 'all well'})"

    def shows(self) -> int:
        """Return all flags that a world raised, as far as that is known without waiting for a device."""
        rows = self._rows
        if not is_readable(rows):
            return 0
        flags = 0
        if rows.numel() <= FEW:
            for row in rows.tolist():
                flags |= int(row[0])
            return flags
        return int(np.bitwise_or.reduce(rows.numpy()[:, 0].astype(np.int64)))

    def rows_with(self, flag: int, worlds: Tensor) -> Tensor:
        """Return the rows of this status with one more flag in some worlds (B,)."""
        rows = self._rows.clone()
        rows[worlds, 0] += flag
        return rows

    @property
    def code(self) -> Tensor:
        """The flags NAN, CONTACT_OVERFLOW, NOT_CONVERGED, ENERGY, TURNED_FAR that were raised, added up (B,); 0: none.

        ENERGY is that of rollouts of passive worlds on a CPU, of at least 50 steps: such a world gained some by itself.
        TURNED_FAR is that of split steps: something turned by more than 6.4 rad in one, close to another shape, and may
        have passed through it.
        """
        return self._rows[:, 0].long()

    @property
    def first_step(self) -> Tensor:
        """The first step with NAN, CONTACT_OVERFLOW or TURNED_FAR (B,); -1: none."""
        return torch.div(self._rows[:, 1].long(), self._substeps, rounding_mode="floor")

    @property
    def first_unconverged(self) -> Tensor:
        """The first step with a substep that ended without convergence (B,); -1: none."""
        return torch.div(self._rows[:, 3].long(), self._substeps, rounding_mode="floor")

    @property
    def unconverged(self) -> Tensor:
        """How many substeps ended without convergence: sweeps used up, and no solution found after them (B,)."""
        return self._rows[:, 2].long()

    def check(self) -> None:
        """Raise if a world has values that are not finite, or had more contacts than there is room for."""
        bad = (self.code & (NAN | CONTACT_OVERFLOW)) > 0
        if not bool(bad.any()):
            return
        worlds = bad.nonzero().flatten().tolist()
        first = worlds[0]
        step = int(self.first_step[first])
        what = "became not finite; take a smaller dt, or look for what drives it so hard"
        if not int(self.code[first]) & NAN:
            what = "had more contacts than there is room for; compile with a larger max_contacts"
        raise PullbackError(f"world {first} {what} (step {step}, {len(worlds)} such worlds in all)")


@dataclass(frozen=True)
class State:
    """The worlds at one moment: q (B, nq), qd (B, nv), and the last contact impulses where a warm start keeps them."""

    q: Tensor
    qd: Tensor
    impulses: Tensor | None = None
    status: Status | None = None
    """What happened in the step that led here, if `sim.step` did."""

    def detach(self) -> State:
        """Return the same state, cut off from the computation that led to it."""
        return self._map(Tensor.detach)

    def clone(self) -> State:
        """Return a copy with memory of its own; gradients pass through it."""
        return self._map(Tensor.clone)

    def to(self, *args: Any, **kwargs: Any) -> State:
        """Return the state on another device or of another type, as `torch.Tensor.to`: `state.to("cuda")`."""
        return self._map(lambda x: x.to(*args, **kwargs))

    def pin_memory(self) -> State:
        """Return a copy in memory from which a GPU reads without waiting; on a machine that has one."""
        if not torch.cuda.is_available():
            raise PullbackError("memory is pinned for a GPU, and this machine has none; leave pin_memory() away here")
        return self._map(Tensor.pin_memory)

    def _map(self, change: Callable[[Tensor], Tensor]) -> State:
        impulses = None if self.impulses is None else change(self.impulses)
        return State(change(self.q), change(self.qd), impulses, self.status)

    def __repr__(self) -> str:
        """Name sizes instead of numbers."""
        kept = "" if self.impulses is None else f", impulses={tuple(self.impulses.shape)}"
        return f"State({_sizes(self)}{kept}{'' if self.status is None else f', {self.status!r}'})"

    def __getitem__(self, worlds: int | slice | Tensor) -> State:
        """Return the state of some of the worlds; an int gives one world with its batch dimension."""
        if isinstance(worlds, int):
            worlds = slice(worlds, worlds + 1 or None)
        impulses = None if self.impulses is None else self.impulses[worlds]
        return State(self.q[worlds], self.qd[worlds], impulses)


@dataclass(frozen=True)
class Trajectory:
    """The worlds over T steps, the initial state included: q (T+1, B, nq), qd (T+1, B, nv)."""

    q: Tensor
    qd: Tensor
    status: Status
    steps: Tensor
    """Before which step each state is (T+1,), on a CPU; all of 0 to T unless fewer are kept."""
    impulses: Tensor | None = None
    """The contact impulses of each state (T+1, B, n), where a warm start keeps them."""

    def __repr__(self) -> str:
        """Name sizes instead of numbers."""
        return f"Trajectory({len(self)} states, {_sizes(self)}, {self.status!r})"

    def __len__(self) -> int:
        """Return the number of states, T + 1."""
        return self.q.shape[0]

    def __getitem__(self, t: int) -> State:
        """Return the state before step t; -1 is the last one, from which a rollout can go on."""
        return State(self.q[t], self.qd[t], None if self.impulses is None else self.impulses[t])

    def detach(self) -> Trajectory:
        """Return the same trajectory, cut off from the computation that led to it."""
        impulses = None if self.impulses is None else self.impulses.detach()
        return Trajectory(self.q.detach(), self.qd.detach(), self.status, self.steps, impulses)


def _sizes(x: State | Trajectory) -> str:
    """Return shapes, type and device for a repr."""
    return f"q={tuple(x.q.shape)}, qd={tuple(x.qd.shape)}, dtype={x.q.dtype}, device={x.q.device}"
