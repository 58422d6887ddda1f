"""Programs inside graphs of torch.compile and torch.export: two operators of torch's, a launch and its vjp.

In a graph a program is a number. What has no tensor (an absent input, an output without rows, a cotangent that is zero)
is an empty one. Outside of graphs nothing of this is used: torch's own operators cost more than a small launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pullback.core.errors import PullbackError, SecondDerivativeError

if TYPE_CHECKING:
    from pullback.core.program import Program

Tensor = torch.Tensor

_PROGRAMS: WeakValueDictionary[int, Program] = WeakValueDictionary()
_NUMBERS = count(1)


def register(program: Program) -> int:
    """Return the number of a program, which it keeps."""
    if program.number is None:
        program.number = next(_NUMBERS)
        _PROGRAMS[program.number] = program
    return program.number


def program_of(number: int) -> Program:
    """Return the program of a number."""
    program = _PROGRAMS.get(number)
    if program is None:
        raise PullbackError("the robot or simulation of this graph is gone; keep it as long as what was compiled of it")
    return program


def while_tracing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that is called when a graph is traced, with real tensors, and is not part of it.

    torch.compile takes what it returns, which is no tensor, for a constant.
    """

    @wraps(function)
    def call(*arguments: Any) -> Any:
        # torch.export would give it tensors without data
        with _disable_current_modes(), torch.no_grad():
            return function(*arguments)

    # what `torch.compiler.assume_constant_result` does, without its import of 1 s
    call._dynamo_marked_constant = True  # pyright: ignore[reportAttributeAccessIssue, reportFunctionMemberAccess]
    return call


class MadeOnce:
    """A function that makes programs, each of which is kept; in a graph it returns their stand-ins."""

    def __init__(self, make: Callable[..., Program]) -> None:
        self.make = make
        self.made: dict[tuple[Any, ...], Program] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Return the program for these arguments."""
        if torch.compiler.is_compiling():
            return InGraph(*self.numbers(*arguments))
        program = self.made.get(arguments)
        return self._make(arguments) if program is None else program

    @while_tracing
    def numbers(self, *arguments: Any) -> tuple[Any, ...]:
        """Return the number of the program and its rows."""
        program = self.made.get(arguments) or self._make(arguments)
        return register(program), program.rows

    def _make(self, arguments: tuple[Any, ...]) -> Program:
        program = self.made[arguments] = self.make(*arguments)
        return program


class InGraph:
    """A program as it is called in a graph."""

    def __init__(self, number: int, rows: tuple[int, ...]) -> None:
        self.number, self.rows = number, rows

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        """Return the only output (B, rows)."""
        return self.outputs(*inputs)[0]

    def outputs(self, *inputs: Tensor | None, **_: Any) -> tuple[Any, ...]:
        """Return all outputs, None where there are no rows."""
        like = next(x for x in inputs if x is not None)
        # not `like.new_empty`, which is mapped where `like` is
        nothing = torch.empty(0, dtype=like.dtype, device=like.device)
        given = [nothing if x is None else x for x in inputs]
        found = torch.ops.pullback.launch(self.number, given)
        return tuple([x if rows or k == 0 else None for k, (x, rows) in enumerate(zip(found, self.rows))])


def _given(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """Return tensors with None in the place of those that stand for nothing."""
    return [x if x.ndim == 2 else None for x in tensors]


@torch.library.custom_op("pullback::launch", mutates_args=())
def launch(program: int, inputs: list[Tensor]) -> list[Tensor]:
    """Launch the forward kernel of a program; a last input that it supplied itself is returned behind the outputs."""
    bound, given = program_of(program), _given(inputs)
    supplied = []
    if bound.supply is not None and given[-1] is None:
        given[-1] = bound.supply()
        supplied.append(given[-1])
    found = bound.run(given)
    if bound.watch is not None:
        bound.watch(found)
    # a launch may give the same status again, and a graph may write to what it was given
    every = [*found, *supplied]
    return [inputs[0].new_empty(0) if x is None else x.clone(memory_format=torch.contiguous_format) for x in every]


@while_tracing
def _supplied_shape(program: Program) -> torch.Size:
    assert program.supply is not None
    return program.supply().shape


@launch.register_fake
def _(program: int, inputs: list[Tensor]) -> list[Tensor]:
    bound, like = program_of(program), next(x for x in inputs if x.ndim == 2)
    supplied = [_supplied_shape(bound)] if bound.supply is not None and inputs[-1].ndim != 2 else []
    sizes = [x.shape[0] for x in inputs if x.ndim == 2] + [shape[0] for shape in supplied]
    worlds = next((size for size in sizes if not (isinstance(size, int) and size == 1)), 1)
    outputs = [like.new_empty(worlds, n) if n or k == 0 else like.new_empty(0) for k, n in enumerate(bound.rows)]
    return outputs + [like.new_empty(shape) for shape in supplied]


@torch.library.custom_op("pullback::vjp", mutates_args=())
def vjp(
    program: int, wanted: list[bool], adj: list[Tensor], outputs: list[Tensor], inputs: list[Tensor]
) -> list[Tensor]:
    """Launch the vjp kernel of a program; return the cotangents of the inputs that are wanted."""
    bound = program_of(program)
    given = _given(adj)
    asked = [want and x.ndim == 2 for want, x in zip(wanted, inputs)]
    if all(x is None for x in given):
        return [torch.zeros_like(x) for x, want in zip(inputs, asked) if want]
    found = bound.run_vjp(tuple(asked), given, _given(outputs), _given(inputs))
    return [x.clone(memory_format=torch.contiguous_format) for x in found]


@vjp.register_fake
def _(program: int, wanted: list[bool], adj: list[Tensor], outputs: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    kept = [x for x, want in zip(inputs, wanted) if want and x.ndim == 2]
    return [x.new_empty(x.shape) for x in kept]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    number, given = inputs
    bound = program_of(number)
    given = [*given[:-1], output[-1]] if len(output) > len(bound.rows) else given
    ctx.number, ctx.count = number, bound.read_outputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[: bound.read_outputs], *given)


def _pull_back(ctx: Any, adj: list[Tensor | None]) -> tuple[None, list[Tensor | None]]:
    bound = program_of(ctx.number)
    saved = ctx.saved_tensors
    outputs, inputs = list(saved[: ctx.count]), list(saved[ctx.count :])
    wanted = [bool(want) for want in ctx.needs_input_grad[1]]
    plain = bound.first_plain
    cotangents = [
        inputs[0].new_empty(0) if x is None or k >= plain else x.contiguous()
        for k, x in enumerate(adj[: len(bound.rows)])
    ]
    found = iter(torch.ops.pullback.vjp(ctx.number, wanted, cotangents, outputs, inputs))
    return None, [next(found) if want else None for want in wanted]


def _refuse(ctx: Any, *_: Any) -> Any:
    raise SecondDerivativeError(
        "a second derivative was asked for inside a compiled graph; kernels have first derivatives only: differentiate "
        "once, or take differences of gradients"
    )


launch.register_autograd(_pull_back, setup_context=_keep)
vjp.register_autograd(_refuse)


def _fold(size: int, dims: Sequence[int | None], tensors: Sequence[Tensor], *, expand: bool) -> list[Tensor]:
    """Fold a mapped dimension into the worlds: (V, B, n) becomes (V B, n)."""
    moved = [x if d is None else x.movedim(d, 0) for x, d in zip(tensors, dims)]
    worlds = max((x.shape[-2] for x in moved if x.ndim > 1), default=1)
    folded = []
    for x, d in zip(moved, dims):
        if x.ndim < 2 or (d is None and x.shape[0] == 1 and not expand):
            folded.append(x)
        else:
            folded.append(x.expand(size, worlds, x.shape[-1]).reshape(size * worlds, x.shape[-1]))
    return folded


@launch.register_vmap
def _(info: Any, in_dims: tuple[Any, ...], program: int, inputs: list[Tensor]) -> tuple[list[Tensor], list[Any]]:
    found = torch.ops.pullback.launch(program, _fold(info.batch_size, in_dims[1], inputs, expand=False))
    unfolded = [x.unflatten(0, (info.batch_size, -1)) if x.ndim == 2 else x for x in found]
    return unfolded, [0 if x.ndim == 3 else None for x in unfolded]


@vjp.register_vmap
def _(
    info: Any,
    in_dims: tuple[Any, ...],
    program: int,
    wanted: list[bool],
    adj: list[Tensor],
    outputs: list[Tensor],
    inputs: list[Tensor],
) -> tuple[list[Tensor], list[Any]]:
    size = info.batch_size
    every, dims = [*adj, *outputs, *inputs], [*in_dims[2], *in_dims[3], *in_dims[4]]
    # worlds that share an input would add up over the mapped dimension too, so every world gets its own
    folded = _fold(size, dims, every, expand=True)
    first, second = len(adj), len(adj) + len(outputs)
    found = torch.ops.pullback.vjp(program, wanted, folded[:first], folded[first:second], folded[second:])
    counts = [
        x.shape[0] if d is None else x.movedim(d, 0).shape[1]
        for x, d, want in zip(inputs, in_dims[4], wanted)
        if want and x.ndim > 1
    ]
    unfolded = [x.unflatten(0, (size, -1)) for x in found]
    return [x if n == x.shape[1] else x.sum(1, keepdim=True) for x, n in zip(unfolded, counts)], [0] * len(unfolded)
