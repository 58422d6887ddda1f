"""What a part of `checks/reliability.py` hands back."""

from __future__ import annotations

from dataclasses import dataclass, field

SMALL = 50
"""Taking one case of so many, or of more, is a try: other things are made short as well."""


@dataclass
class Figure:
    """A bar and what was measured; `held` is None where there is no bar."""

    name: str
    bar: str
    found: str
    held: bool | None = None
    commit: str = ""
    """At which commit it was measured."""


@dataclass
class Part:
    """The figures of a part, and a list of what stood out."""

    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, bar: str, found: str, held: bool | None = None) -> None:
        """Add a figure."""
        self.figures.append(Figure(name, bar, found, held))
