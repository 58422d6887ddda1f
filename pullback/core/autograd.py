"""A program as functions of torch's autograd: a quick one, and one that functorch transforms can take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from pullback.core.errors import PullbackError, SecondDerivativeError
from pullback.core.finite import in_transform
from pullback.core.mapped_cotangents import are_mapped, map_vjp

if TYPE_CHECKING:
    from pullback.core.program import Program
    from pullback.core.repeat import Repeat

Tensor = torch.Tensor


def recorder(program: Program) -> Callable[[Repeat | None, Sequence[Tensor | None]], tuple[Any, ...]]:
    """Return the function that runs a program outside of transforms and records it for a backward pass.

    It is a class of its own for each program: `torch.autograd.Function.apply` looks for transforms, which costs 10 µs,
    and what stands in the class need not be passed through autograd. Only outputs with a gradient go through it: it
    would need 5 µs to learn that the others have none.
    """
    differentiable, read, count = itemgetter(*program.differentiable), program.read_outputs, len(program.rows)

    class Recorded(torch.autograd.function._SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, repeat: Repeat | None, outputs: list[Any], *inputs: Tensor | None) -> Any:
            found = program.run(inputs, repeat)
            outputs.append(found)
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*found[:read], *inputs)
            return differentiable(found)

        @staticmethod
        def backward(ctx: Any, *adj_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
            adj: list[Tensor | None] = [None] * count
            for k, x in zip(program.differentiable, adj_outputs):
                adj[k] = x
            return None, None, *_cotangents(program, ctx.saved_tensors, ctx.needs_input_grad[2:], adj)

        @staticmethod
        def jvp(ctx: Any, *_: Any) -> Any:
            refuse_forward_mode(program)

    apply: Any = Recorded.apply  # pyright: ignore[reportAttributeAccessIssue]

    def record(repeat: Repeat | None, inputs: Sequence[Tensor | None]) -> tuple[Any, ...]:
        outputs: list[tuple[Any, ...]] = []
        apply(repeat, outputs, *inputs)
        # autograd marks the tensors themselves, so they need not be put together again
        return outputs[0]

    return record


def _cotangents(
    program: Program, saved: Sequence[Any], wanted: tuple[bool, ...], adj_outputs: Sequence[Any]
) -> Sequence[Tensor | None]:
    """Return the cotangents of all inputs, None where they are not wanted or zero."""
    if all(x is None for x in adj_outputs):
        return (None,) * len(wanted)
    found: Sequence[Any]
    if are_mapped(adj_outputs):

        def vjp(size: int, dims: Sequence[int | None], adj: Sequence[Tensor | None]) -> Sequence[Tensor]:
            in_dims = (None, None, *dims, *[None] * len(saved))
            return _Vjp.vmap(SimpleNamespace(batch_size=size), in_dims, program, wanted, *adj, *saved)[0]

        found = map_vjp(vjp, adj_outputs)
    elif torch.is_grad_enabled() or in_transform():
        found = _Vjp.apply(program, wanted, *adj_outputs, *saved)
    else:
        count = program.read_outputs
        found = program.run_vjp(wanted, adj_outputs, saved[:count], saved[count:])
    cotangents = iter(found)
    return [next(cotangents) if want else None for want in wanted]


class Transformed(torch.autograd.Function):
    """The function that vmap, jacrev and their nestings can take."""

    @staticmethod
    def forward(program: Program, *inputs: Tensor | None) -> tuple[Any, ...]:
        """Run the forward kernel."""
        return program.launch(inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep what the vjp reads."""
        program = inputs[0]
        ctx.program = program
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[program.first_plain :])
        ctx.save_for_backward(*output[: program.read_outputs], *inputs[1:])

    @staticmethod
    def backward(ctx: Any, *adj_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the cotangents of the inputs."""
        return None, *_cotangents(ctx.program, ctx.saved_tensors, ctx.needs_input_grad[1:], adj_outputs)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        """Raise."""
        refuse_forward_mode(ctx.program)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], program: Program, *inputs: Tensor | None
    ) -> tuple[tuple[Any, ...], tuple[int | None, ...]]:
        """Fold the mapped dimension into the worlds."""
        folded, worlds = _fold(info.batch_size, in_dims[1:], inputs, expand=False)
        outputs = program.outputs(*folded)
        unfolded = tuple(None if x is None else x.reshape(info.batch_size, worlds, -1) for x in outputs)
        return unfolded, tuple(None if x is None else 0 for x in outputs)


def refuse_forward_mode(program: Program) -> None:
    """Raise: programs have no forward mode."""
    raise PullbackError(
        f"{program.operator.name} has no forward mode (jacfwd, hessian, dual numbers); use backward, grad or "
        f"jacrev, once: there are first derivatives only"
    )


class _Vjp(torch.autograd.Function):
    @staticmethod
    def forward(program: Program, wanted: tuple[bool, ...], *tensors: Tensor | None) -> tuple[Tensor, ...]:
        n, read = len(program.rows), len(program.rows) + program.read_outputs
        return program.run_vjp(wanted, tensors[:n], tensors[n:read], tensors[read:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.program = inputs[0]

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        refuse_forward_mode(ctx.program)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise SecondDerivativeError(
            f"{ctx.program.operator.name} has a first derivative only, and a second one was asked for "
            f"(create_graph=True, hessian or a nested grad); differentiate once, or take differences of gradients"
        )

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        program: Program,
        wanted: tuple[bool, ...],
        *tensors: Tensor | None,
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        # worlds that share an input would add up over the mapped dimension too, so every world gets its own
        folded, worlds = _fold(info.batch_size, in_dims[2:], tensors, expand=True)
        cotangents = _Vjp.apply(program, wanted, *folded)
        n = len(program.rows) + program.read_outputs
        shapes = [
            x.shape[0] if d is None else x.movedim(d, 0).shape[1]
            for x, d, want in zip(tensors[n:], in_dims[2 + n :], wanted)
            if want and x is not None
        ]
        unfolded = [c.reshape(info.batch_size, worlds, -1) for c in cotangents]
        reduced = tuple(c if n == worlds else c.sum(1, keepdim=True) for c, n in zip(unfolded, shapes))
        return reduced, (0,) * len(reduced)


def _fold(
    size: int, dims: tuple[int | None, ...], tensors: Sequence[Tensor | None], *, expand: bool
) -> tuple[list[Tensor | None], int]:
    """Fold a mapped dimension of `size` into the worlds: (V, B, n) becomes (V B, n); return also B."""
    moved = [x if x is None or d is None else x.movedim(d, 0) for x, d in zip(tensors, dims)]
    worlds = max(x.shape[-2] for x in moved if x is not None)
    folded: list[Tensor | None] = []
    for x, d in zip(moved, dims):
        shared = x is not None and d is None and x.shape[0] == 1 and not expand
        if x is None or shared:
            folded.append(x)
        else:
            folded.append(x.expand(size, worlds, x.shape[-1]).reshape(size * worlds, x.shape[-1]))
    return folded, worlds
