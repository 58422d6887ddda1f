"""Numbers that a user gives a world: one for all worlds, or a leading dimension with one for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import torch

from pullback.core.errors import PullbackError, shortened

Tensor = torch.Tensor
Given: TypeAlias = "float | Sequence[float] | np.ndarray | Tensor"
Value: TypeAlias = "np.ndarray | Tensor"
"""A checked number: an array where it is the same for ever and for all worlds, else a tensor."""


def check_value(
    what: str,
    value: Given,
    shape: tuple[int, ...] = (),
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    finite: bool = True,
) -> Value:
    """Return a value of the given shape, or (B, *shape), after looking at its numbers, unless it is on a GPU."""
    check_dense(what, value)
    checked = value if isinstance(value, Tensor) else _to_array(what, value)
    trailing = tuple(checked.shape[len(checked.shape) - len(shape) :]) if len(checked.shape) >= len(shape) else None
    if trailing != shape or len(checked.shape) > len(shape) + 1:
        raise PullbackError(
            f"{what} has shape {tuple(checked.shape)}; expected {_shape_text(shape)}, or "
            f"(B{''.join(f', {n}' for n in shape)}) with one for each world"
        )
    if 0 in checked.shape:
        raise PullbackError(f"{what} has shape {tuple(checked.shape)}: there is no number in it; give at least one")
    if isinstance(checked, Tensor):
        if not _can_look_at(checked):
            return checked
        if not checked.dtype.is_floating_point:
            raise PullbackError(f"{what} is a tensor of {checked.dtype}; expected torch.float32 or torch.float64")
        numbers = checked.detach().numpy()
    else:
        numbers = checked
    if np.isnan(numbers).any() or (finite and not np.isfinite(numbers).all()):
        raise PullbackError(f"{what} is not finite: {numbers.tolist()}; give a finite number")
    if least is not None and (numbers < least).any():
        detail = "it cannot be negative" if least == 0.0 else f"give at least {least:g}"
        raise PullbackError(f"{what} is {numbers.min():g}; {detail}")
    if above is not None and (numbers <= above).any():
        raise PullbackError(f"{what} is {numbers.min():g}; give more than {above:g}")
    if most is not None and (numbers > most).any():
        raise PullbackError(f"{what} is {numbers.max():g}; give at most {most:g}")
    return torch.from_numpy(checked) if isinstance(checked, np.ndarray) and checked.ndim > len(shape) else checked


def _shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape with what it means: `(3,), 3 numbers`."""
    return f"{shape}, {shape[0]} numbers" if len(shape) == 1 else "one number" if not shape else str(shape)


def check_dense(what: str, value: object) -> None:
    """Raise for a tensor whose numbers cannot be read."""
    if isinstance(value, Tensor) and (value.layout != torch.strided or value.is_meta):
        kind = "without data (device meta)" if value.is_meta else f"of layout {value.layout}"
        raise PullbackError(f"{what} is a tensor {kind}; give a dense one on a CPU or a GPU")


def check_single(what: str, value: object, **bounds: Any) -> None:
    """Raise unless this is one plain number within bounds, those of `check_value`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise PullbackError(f"{what} is {shortened(repr(value))}; give one number")
    check_value(what, float(value), **bounds)


def check_switch(what: str, value: object) -> bool:
    """Return True or False; anything else is an error."""
    if not isinstance(value, bool | np.bool_):
        raise PullbackError(f"{what} is {shortened(repr(value))}; give True or False")
    return bool(value)


def check_whole(what: str, value: object, least: int, most: int) -> int:
    """Return a whole number between two bounds; anything else is an error."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise PullbackError(f"{what} is {shortened(repr(value))}; give a whole number from {least:,} on")
    if int(value) > most:
        raise PullbackError(f"{what} is {shortened(repr(value))}; give at most {most:,}")
    return int(value)


def check_quaternion(what: str, value: Given) -> Value:
    """Return a quaternion xyzw (4,) or (B, 4) that has a length; it is normalised where it is used."""
    checked = check_value(what, value, (4,))
    if isinstance(checked, Tensor) and not _can_look_at(checked):
        return checked
    numbers = checked.detach().numpy() if isinstance(checked, Tensor) else checked
    if (np.linalg.norm(numbers, axis=-1) == 0.0).any():
        raise PullbackError(f"{what} is a quaternion of length zero; give xyzw, (0, 0, 0, 1) for no rotation")
    return checked


def batched(value: Value, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return a value as a tensor (b, *shape) of the type and device of `like`, b = 1 where all worlds share it."""
    tensor = value if isinstance(value, Tensor) else torch.from_numpy(value)
    return tensor.to(like).reshape(-1, *shape)


def as_constant(make: Callable[[], Any]) -> Any:
    """Return what `make` gives without a gradient, fit to be kept for calls in any mode."""
    with torch._C._DisableFuncTorch(), torch.inference_mode(False), torch.no_grad():
        return make()


class Sources:
    """What a computation depends on; `unknown` where something may change without a trace."""

    def __init__(self, values: Sequence[object], *, unknown: bool = False) -> None:
        self.values = list(values)
        self.tensors = [x for x in self.values if isinstance(x, Tensor)]
        self.unknown = unknown or any(x.is_inference() for x in self.tensors)


class Remembered:
    """A computation that is done again only when what it depends on was replaced, changed, or wants a gradient."""

    def __init__(self) -> None:
        self.is_remembered = False
        self._value: Any = None
        self._sources: Sources | None = None
        self._versions: list[int] = []

    def __call__(self, sources: Sources, make: Callable[[], Any]) -> Any:
        """Return what `make` gives."""
        tensors = sources.tensors
        self.is_remembered = not (
            sources.unknown
            or (tensors and torch._C._are_functorch_transforms_active())
            or (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))
        )
        if not self.is_remembered:
            return make()
        versions = [x._version for x in tensors]
        known = self._sources
        if known is None or versions != self._versions or not are_same(sources.values, known.values):
            self._value, self._versions = as_constant(make), versions
        self._sources = sources
        return self._value


def are_same(a: Sequence[object], b: Sequence[object]) -> bool:
    """Tell whether two sequences hold the same objects."""
    return a is b or (len(a) == len(b) and all(x is y for x, y in zip(a, b)))


def _can_look_at(x: Tensor) -> bool:
    """Tell whether numbers can be read without stalling a GPU or leaving a functorch transform."""
    return x.device.type == "cpu" and not torch._C._are_functorch_transforms_active()


def _to_array(what: str, value: object) -> np.ndarray:
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise PullbackError(f"{what} is {shortened(repr(value))}; expected numbers or a torch tensor") from error
