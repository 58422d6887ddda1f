"""The one file that imports both torch and Warp: types, devices, streams and memory that the two share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
import warp as wp
from warp._src.codegen import StructInstance

from pullback.core.modules import initialize

Tensor = torch.Tensor

REAL = {torch.float32: wp.float32, torch.float64: wp.float64}
"""Floating-point types of torch -> those of Warp."""

_SCALARS = {**REAL, torch.int32: wp.int32}


def view(x: Tensor | None, dtype: Any = None) -> Any:
    """Return a tensor as a kernel's array argument over the same memory, of vectors if `dtype` is one; None stays None.

    It is the bare argument, which keeps the tensor alive, and not Warp's array, whose `__del__` would swallow a Ctrl-C
    that arrives inside it. Nobody checks its type and dimensions: where a kernel is known, use `kernel_arguments`.
    """
    if x is None or x.numel() == 0:
        return None
    initialize()
    return wp.from_torch(x.detach(), dtype=dtype or _SCALARS[x.dtype], requires_grad=False, return_ctype=True)


class StructArgument(NamedTuple):
    """A Warp struct over tensors, which it keeps alive."""

    value: Any
    kind: Any
    tensors: list[Tensor]


def make_struct(kind: Any, **values: Any) -> StructArgument:
    """Return a Warp struct with its fields set by name: tensors for arrays (None: absent), numbers for scalars."""
    _check_names(f"struct {kind.key}", kind.vars, values)
    initialize()
    struct, tensors = kind(), []
    for name, variable in kind.vars.items():
        value = values[name]
        if not isinstance(variable.type, wp.array):
            setattr(struct, name, value)
            continue
        array = _checked_view(name, variable.type, value)
        if array is not None:
            setattr(struct.__ctype__(), name, array)
            tensors.append(value)
    return StructArgument(struct, kind, tensors)


def kernel_arguments(kernel: Any, values: Mapping[str, Any], given_later: int = 0) -> list[Any]:
    """Return values by name in the order of a kernel's parameters, after the first `given_later` of them.

    Raises TypeError for a name that is missing or unknown, and for a tensor or struct that is not of the parameter's
    type, so that two arguments cannot be swapped unnoticed.
    """
    parameters = {x.label: x.type for x in kernel.adj.args[given_later:]}
    _check_names(f"kernel {kernel.key}", parameters, values)
    return [_argument(name, kind, values[name]) for name, kind in parameters.items()]


def _argument(name: str, kind: Any, value: Any) -> Any:
    if isinstance(kind, wp.array):
        return _checked_view(name, kind, value)
    if isinstance(value, StructInstance):
        given: Any = getattr(value, "_cls", None)
        if given is not kind:
            raise TypeError(f"{name} is a {given.key}; expected a {getattr(kind, 'key', kind)}")
        return value
    given = value.kind if isinstance(value, StructArgument) else type(value)
    if given is kind:
        return value.value
    if hasattr(kind, "key") or not isinstance(value, (int, float)):
        names = [getattr(x, "key", None) or x.__name__ for x in (given, kind)]
        raise TypeError(f"{name} is a {names[0]}; expected a {names[1]}")
    return kind(value)


def _checked_view(name: str, kind: Any, x: Any) -> Any:
    """Return a tensor as an array argument of one type; what is a view already is taken as it is."""
    if not isinstance(x, Tensor):
        return x
    inner = tuple(getattr(kind.dtype, "_shape_", ()))
    scalar = getattr(kind.dtype, "_wp_scalar_type_", kind.dtype)
    if x.ndim != kind.ndim + len(inner) or tuple(x.shape[kind.ndim :]) != inner or _SCALARS.get(x.dtype) is not scalar:
        sizes = ", ".join([*"n" * kind.ndim, *map(str, inner)])
        raise TypeError(f"{name} is {tuple(x.shape)} of {x.dtype}; expected ({sizes}) of {scalar.__name__}")
    return view(x, kind.dtype)


def _check_names(what: str, expected: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    missing, unknown = expected.keys() - given.keys(), given.keys() - expected.keys()
    if missing or unknown:
        raise TypeError(f"{what}: missing {sorted(missing)}, unknown {sorted(unknown)}; it takes {list(expected)}")


def device_name(device: torch.device) -> str:
    """Return the name by which Warp knows a device of torch."""
    return "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"


def current_stream(device: torch.device) -> Any:
    """Return torch's current stream as Warp knows it, None on a CPU."""
    if device.type == "cpu":
        return None
    return _warp_stream(torch.cuda.current_stream(device).cuda_stream, device_name(device))


@cache
def _warp_stream(cuda_stream: int, device: str) -> Any:
    initialize()
    return wp.Stream(device, cuda_stream=cuda_stream)
