"""Options of tasks: least values, and what a checkpoint must agree in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.core.errors import PullbackError

NOT_THE_LOSS = ("iterations", "out", "fresh", "device")
"""Options that do not change the loss, and may differ when a run is resumed."""


def check_at_least(options: Any, **least: float) -> None:
    """Raise for the first option that is below its least value; options that are None are not checked."""
    for name, bound in least.items():
        values = getattr(options, name)
        for value in values if isinstance(values, tuple) else (values,):
            if value is not None and value < bound:
                raise PullbackError(f"{name} is {value}; give at least {bound}")


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a checkpoint must agree in."""
    return {name: value for name, value in options.items() if name not in NOT_THE_LOSS}
