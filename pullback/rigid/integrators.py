"""How a world steps in time, and what may be left out of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

from pullback.core.errors import PullbackError

Integrator = Literal["semi_implicit", "explicit", "rk4"]
Part = Literal["contacts", "limits", "friction"]
Damping = Literal["explicit", "implicit"]

STAGES: dict[Integrator, int] = {"semi_implicit": 0, "explicit": 1, "rk4": 4}
"""Evaluations of the acceleration in an explicit step; none in the step with contact, which is not of that kind."""


def check_integration(integrator: Integrator, damping: Damping, without: Collection[Part]) -> None:
    """Refuse choices that there are not, or that do not go together."""
    for what, choice, kind in (("damping", damping, Damping), ("integrator", integrator, Integrator)):
        if choice not in get_args(kind):
            raise PullbackError(f"{what} is {choice!r}; choose {_choices(get_args(kind))}")
    is_list = isinstance(without, Collection) and not isinstance(without, str)
    if not is_list or any(part not in get_args(Part) for part in without):
        raise PullbackError(f"without is {without!r}; give a list of {_choices(get_args(Part))}")
    if STAGES[integrator] and damping == "implicit":
        raise PullbackError(
            f"integrator={integrator!r} takes damping where its stages are, and cannot have damping='implicit'; leave "
            f"one of them out"
        )


def _choices(names: Collection[str]) -> str:
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}"
