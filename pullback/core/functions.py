"""How torch's autograd sees a program: once in its plain form, once in the one that transforms need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from pullback.core.errors import PullbackError, SecondDerivativeError

if TYPE_CHECKING:
    from pullback.core.bridge import Program

Tensor = torch.Tensor


class Recorded(torch.autograd.function._SingleLevelFunction):
    """The function outside of transforms: `torch.autograd.Function.apply` looks for them and costs 10 µs.

    Outputs without a gradient are appended to `plain`: autograd would need 5 µs to learn that they have none.
    """

    @staticmethod
    def forward(ctx: Any, program: Program, plain: list[Any], *inputs: Tensor | None) -> tuple[Any, ...]:
        """Run the forward kernel and keep what the vjp reads."""
        outputs = program.run(inputs)
        plain += outputs[program.first_plain :]
        ctx.program = program
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*outputs[: program.read_outputs], *inputs)
        return outputs[: program.first_plain]

    @staticmethod
    def backward(ctx: Any, *adj_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the cotangents of the inputs."""
        unused = [None] * ctx.program.operator.plain_outputs
        return None, None, *_pull_back_saved(ctx, ctx.needs_input_grad[2:], (*adj_outputs, *unused))

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        """Refuse."""
        refuse_forward_mode(ctx.program)


def _pull_back_saved(ctx: Any, wanted: tuple[bool, ...], adj_outputs: Sequence[Any]) -> Sequence[Tensor | None]:
    """Return the cotangents of all inputs, from what the forward pass saved."""
    count, saved = ctx.program.read_outputs, ctx.saved_tensors
    return pull_back(ctx.program, wanted, adj_outputs, saved[:count], saved[count:])


def pull_back(
    program: Program,
    wanted: tuple[bool, ...],
    adj_outputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor | None],
    inputs: Sequence[Tensor | None],
) -> Sequence[Tensor | None]:
    """Return the cotangents of all inputs, None where they are not wanted or zero."""
    if all(x is None for x in adj_outputs):
        return (None,) * len(wanted)
    if torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        found = _Vjp.apply(program, wanted, *adj_outputs, *outputs, *inputs)
    else:
        found = program.run_vjp(wanted, adj_outputs, outputs, inputs)
    cotangents = iter(found)
    return [next(cotangents) if want else None for want in wanted]


class Transformed(torch.autograd.Function):
    """The same, in the form that vmap, jacrev and their nestings need."""

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
        return None, *_pull_back_saved(ctx, ctx.needs_input_grad[1:], adj_outputs)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        """Refuse."""
        refuse_forward_mode(ctx.program)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], program: Program, *inputs: Tensor | None
    ) -> tuple[tuple[Any, ...], tuple[int | None, ...]]:
        """Take the mapped dimension for more worlds."""
        folded, worlds = _fold(info.batch_size, in_dims[1:], inputs, expand=False)
        outputs = program.outputs(*folded)
        unfolded = tuple(None if x is None else x.reshape(info.batch_size, worlds, -1) for x in outputs)
        return unfolded, tuple(None if x is None else 0 for x in outputs)


def refuse_forward_mode(program: Program) -> None:
    """Raise: nothing here has a forward mode."""
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


class March(Protocol):
    """A long computation with an adjoint of its own, both plain Python: what `marched` makes a torch function."""

    name: str

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Any]:
        """Return the outputs, and whatever a backward pass needs of this one, if there may be one (`keep`)."""
        ...

    def backward(
        self, kept: Any, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Return the cotangents of the inputs that are wanted, None for the others."""
        ...


def marched(march: March, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Run a march as a function that torch can differentiate, once."""
    return _Marched.apply(march, *inputs)


class _Marched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, march: March, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs, ctx.kept = march.forward([x.detach() for x in inputs], any(ctx.needs_input_grad))
        ctx.march = march
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *adj_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1:]
        if all(x is None for x in adj_outputs):
            return (None,) * (1 + len(wanted))
        if torch.is_grad_enabled():
            return None, *_MarchedVjp.apply(ctx, wanted, *adj_outputs, *ctx.saved_tensors)
        return None, *ctx.march.backward(ctx.kept, wanted, adj_outputs, [x.detach() for x in ctx.saved_tensors])

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise PullbackError(f"{ctx.march.name} has no forward mode; use backward or grad")


class _MarchedVjp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, marched: Any, wanted: Sequence[bool], *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.march = marched.march
        count = len(wanted)
        plain = [None if x is None else x.detach() for x in tensors]
        return marched.march.backward(marched.kept, wanted, plain[:-count], plain[-count:])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise SecondDerivativeError(
            f"{ctx.march.name} has a first derivative only, and a second one was asked for; differentiate once, or "
            f"take differences of gradients"
        )
