"""A long computation with a hand-written vjp as one function of torch's autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from pullback.core.errors import PullbackError, SecondDerivativeError
from pullback.core.mapped_cotangents import are_mapped, map_vjp

Tensor = torch.Tensor


class CustomVjp(Protocol):
    """A computation and its vjp, both plain Python."""

    name: str

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Any]:
        """Return the outputs, and whatever the backward pass needs of this one if there may be one (`keep`)."""
        ...

    def backward(
        self, kept: Any, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Return the cotangents of the inputs that are wanted, None for the others."""
        ...


def call(function: CustomVjp, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Call a computation so that torch can differentiate it, once."""
    return _Call.apply(function, *inputs)


class _Call(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: CustomVjp, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs, ctx.kept = function.forward([x.detach() for x in inputs], any(ctx.needs_input_grad))
        ctx.function = function
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *adj_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1:]
        if all(x is None for x in adj_outputs):
            return (None,) * (1 + len(wanted))
        if are_mapped(adj_outputs):
            return None, *map_vjp(lambda *mapped: _one_by_one(ctx, *mapped), adj_outputs)
        if torch.is_grad_enabled():
            return None, *_Vjp.apply(ctx, wanted, *adj_outputs, *ctx.saved_tensors)
        return None, *ctx.function.backward(ctx.kept, wanted, adj_outputs, [x.detach() for x in ctx.saved_tensors])

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise PullbackError(f"{ctx.function.name} has no forward mode; use backward or grad")


def _one_by_one(
    call: Any, size: int, dims: Sequence[int | None], adj_outputs: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the cotangents of the inputs for each of `size` sets of cotangents of the outputs."""
    found = []
    for k in range(size):
        adj = [x if x is None or d is None else x[k] for x, d in zip(adj_outputs, dims)]
        inputs = [x.detach() for x in call.saved_tensors]
        found.append(call.function.backward(call.kept, call.needs_input_grad[1:], adj, inputs))
    return [None if x[0] is None else torch.stack(x) for x in zip(*found)]


class _Vjp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Any, wanted: Sequence[bool], *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.function = call.function
        count = len(wanted)
        plain = [None if x is None else x.detach() for x in tensors]
        return call.function.backward(call.kept, wanted, plain[:-count], plain[-count:])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise SecondDerivativeError(
            f"{ctx.function.name} has a first derivative only, and a second one was asked for; differentiate once, or "
            f"take differences of gradients"
        )
