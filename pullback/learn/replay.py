"""What was experienced, for many seeds: rows of transitions that are drawn from at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

Tensor = torch.Tensor
Rows = dict[str, Tensor]
"""Rows by name, each (S, k, *shape): S seeds, k rows."""


class Replay:
    """Up to `capacity` rows for each of S seeds; the oldest are overwritten."""

    def __init__(
        self,
        seeds: int,
        capacity: int,
        shapes: Mapping[str, tuple[int, ...]],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.seeds, self.capacity, self.shapes = seeds, capacity, dict(shapes)
        self.rows: Rows = {
            name: torch.zeros(seeds, capacity, *shape, dtype=dtype, device=device) for name, shape in shapes.items()
        }
        self.count = 0
        """Rows that there are, of each seed."""
        # the same where a GPU finds it
        self._filled = torch.zeros((), dtype=torch.float64, device=device)
        self._next = 0

    def add(self, rows: Mapping[str, Tensor]) -> None:
        """Add rows (S, k, *shape), the same number for every seed."""
        k = next(iter(rows.values())).shape[1]
        # of more rows than there is room for the last ones stay
        kept = min(k, self.capacity)
        first = min(kept, self.capacity - self._next)
        for name, store in self.rows.items():
            given = rows[name][:, k - kept :].detach()
            store[:, self._next : self._next + first] = given[:, :first]
            store[:, : kept - first] = given[:, first:]
        self._next = (self._next + kept) % self.capacity
        self.count = min(self.count + kept, self.capacity)
        self._filled.fill_(self.count)

    def sample(self, k: int, random: torch.Generator) -> Rows:
        """Return k random rows (S, k, *shape) of each seed, drawn with replacement."""
        device = self._filled.device
        drawn = torch.rand(self.seeds, k, dtype=torch.float64, generator=random, device=device)
        picked = (drawn * self._filled).long()
        flat = (picked + self.capacity * torch.arange(self.seeds, device=device)[:, None]).flatten()
        return {
            name: store.flatten(0, 1).index_select(0, flat).view(self.seeds, k, *store.shape[2:])
            for name, store in self.rows.items()
        }

    def all(self) -> Rows:
        """Return all rows that there are, in no particular order."""
        return {name: store[:, : self.count] for name, store in self.rows.items()}

    def resized(self, capacity: int) -> Replay:
        """Return a buffer of another size with the newest rows of this one."""
        device = next(iter(self.rows.values())).device
        other = Replay(self.seeds, capacity, self.shapes, next(iter(self.rows.values())).dtype, device)
        other.add(self._ordered())
        return other

    def _ordered(self) -> Rows:
        """Return all rows, the oldest first."""
        if self.count < self.capacity:
            return self.all()
        return {name: store.roll(-self._next, 1) for name, store in self.rows.items()}

    def state(self) -> dict[str, Any]:
        """Return what is in the buffer."""
        rows = {name: store.clone() for name, store in self.all().items()}
        return {"capacity": self.capacity, "next": self._next, "rows": rows}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue with what was in a buffer, in one of another capacity too."""
        rows, capacity, first = state["rows"], state["capacity"], state["next"]
        full = next(iter(rows.values())).shape[1] == capacity
        self.count = self._next = 0
        # oldest first, so that a larger buffer goes on after the newest
        self.add({name: (x.roll(-first, 1) if full else x).to(self.rows[name]) for name, x in rows.items()})
        if full and capacity == self.capacity:
            # positions matter to what is drawn next
            self.rows = {name: x.roll(first, 1) for name, x in self.rows.items()}
            self._next = first
