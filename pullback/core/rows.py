"""Arrays packed into one: each declared once, by its name, what it is and how many rows it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import warp as wp


class Rows(NamedTuple):
    """An array of a layout: its name, how many rows it has for given sizes, and what it holds."""

    name: str
    count: Callable[[Any], int]
    about: str = ""


class Group(NamedTuple):
    """Arrays that are one run of rows, so that they can be copied as one; the group's name is where it starts."""

    name: str
    arrays: tuple[Rows, ...]


class Layout:
    """The arrays of a packed array, in order. `struct` is the Warp struct that holds the first row of each."""

    def __init__(self, name: str, about: str, *entries: Rows | Group) -> None:
        self.entries = entries
        self.arrays = [a for e in entries for a in (e.arrays if isinstance(e, Group) else (e,))]
        names = [a.name for a in self.arrays] + [e.name for e in entries if isinstance(e, Group)]
        repeated = {n for n in names if names.count(n) > 1}
        if repeated:
            raise ValueError(f"{name} declares {', '.join(sorted(repeated))} more than once")
        self.struct: Any = wp.struct(type(name, (), {"__annotations__": dict.fromkeys(names, int), "__doc__": about}))

    def counts(self, sizes: Any) -> dict[str, int]:
        """Return how many rows each array has, in order."""
        return {array.name: array.count(sizes) for array in self.arrays}

    def place(self, sizes: Any) -> tuple[Any, int]:
        """Return the first row of each array, as the struct, and how many rows there are in all."""
        first, total = self.struct(), 0
        for entry in self.entries:
            if isinstance(entry, Group):
                setattr(first, entry.name, total)
            for array in entry.arrays if isinstance(entry, Group) else (entry,):
                setattr(first, array.name, total)
                total += array.count(sizes)
        return first, total

    def rows_until(self, name: str, sizes: Any) -> int:
        """Return how many rows there are before those of an array."""
        return getattr(self.place(sizes)[0], name)
