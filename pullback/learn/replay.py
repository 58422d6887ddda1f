"""What was experienced, for many seeds: rows of transitions that are drawn from at random."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch

Tensor = torch.Tensor
Rows = dict[str, Tensor]
"""Rows by name, each (S, k, *shape): S seeds, k rows."""


class Replay:
    """Up to `capacity` rows for each of S seeds; the oldest are overwritten.

    A transition is one row of numbers (S, capacity, columns), so that a draw is one gather.
    """

    def __init__(
        self,
        seeds: int,
        capacity: int,
        shapes: Mapping[str, tuple[int, ...]],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.seeds, self.capacity, self.shapes = seeds, capacity, dict(shapes)
        self.packed = torch.zeros(seeds, capacity, sum(map(prod, shapes.values())), dtype=dtype, device=device)
        self.count = 0
        """Rows that there are, of each seed."""
        # the same where a GPU finds it
        self._filled = torch.zeros((), dtype=torch.float64, device=device)
        self._first = capacity * torch.arange(seeds, device=device)[:, None]
        self._next = 0

    def unpack(self, rows: Tensor) -> Rows:
        """Return packed rows (S, k, columns) by name, as views."""
        parts = rows.split([prod(shape) for shape in self.shapes.values()], -1)
        return {
            name: part.unflatten(-1, shape) if shape else part.squeeze(-1)
            for (name, shape), part in zip(self.shapes.items(), parts)
        }

    def add(self, rows: Mapping[str, Tensor]) -> None:
        """Add rows (S, k, *shape), the same number for every seed."""
        self.add_packed(torch.cat([rows[name].detach().flatten(2) if shape else rows[name].detach()[..., None]
                                   for name, shape in self.shapes.items()], -1))  # fmt: skip

    def add_packed(self, given: Tensor) -> None:
        """Add packed rows (S, k, columns)."""
        k = given.shape[1]
        # of more rows than there is room for the last ones stay
        kept = min(k, self.capacity)
        first = min(kept, self.capacity - self._next)
        given = given[:, k - kept :]
        self.packed[:, self._next : self._next + first] = given[:, :first]
        self.packed[:, : kept - first] = given[:, first:]
        self._next = (self._next + kept) % self.capacity
        self.count = min(self.count + kept, self.capacity)
        self._filled.fill_(self.count)

    def draw(self, k: int, random: torch.Generator) -> Tensor:
        """Return k random packed rows (S, k, columns) of each seed, drawn with replacement."""
        drawn = torch.rand(self.seeds, k, dtype=torch.float64, generator=random, device=self._filled.device)
        picked = (drawn * self._filled).long() + self._first
        return self.packed.flatten(0, 1).index_select(0, picked.flatten()).view(self.seeds, k, -1)

    def sample(self, k: int, random: torch.Generator) -> Rows:
        """Return k random rows (S, k, *shape) of each seed, drawn with replacement."""
        return self.unpack(self.draw(k, random))

    def all(self) -> Rows:
        """Return all rows that there are, in no particular order."""
        return self.unpack(self.packed[:, : self.count])

    def resized(self, capacity: int) -> Replay:
        """Return a buffer of another size with the newest rows of this one."""
        other = Replay(self.seeds, capacity, self.shapes, self.packed.dtype, self.packed.device)
        full = self.count == self.capacity
        other.add_packed(self.packed.roll(-self._next, 1) if full else self.packed[:, : self.count])
        return other

    def state(self) -> dict[str, Any]:
        """Return what is in the buffer."""
        return {"capacity": self.capacity, "next": self._next, "rows": self.packed[:, : self.count].clone()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue with what was in a buffer, in one of another capacity too."""
        rows, capacity, first = state["rows"].to(self.packed), state["capacity"], state["next"]
        full = rows.shape[1] == capacity
        self.count = self._next = 0
        # oldest first, so that a larger buffer goes on after the newest
        self.add_packed(rows.roll(-first, 1) if full else rows)
        if full and capacity == self.capacity:
            # positions matter to what is drawn next
            self.packed = rows.clone()
            self._next = first
