"""Kernels and their adjoints as differentiable torch functions.

An `Operator` is a pair of kernels. A `Program` is an operator bound to one robot or world: it maps tensors (B, n), or
(1, n) for inputs that all worlds share, to one tensor (B, m) or several.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import torch
from torch.autograd import forward_ad

from pullback.core.arrays import LaunchArrays
from pullback.core.autograd import Transformed, recorder
from pullback.core.errors import GradientError, PullbackError
from pullback.core.finite import are_finite, in_transform, refuse_not_finite
from pullback.core.group_launch import WORLDS, GroupKernel
from pullback.core.launch import Launcher
from pullback.core.memory import no_memory
from pullback.core.modules import compile_ahead, initialize, making_kernels
from pullback.core.repeat import Repeat
from pullback.core.tensors import REAL, device_name

Tensor = torch.Tensor


@dataclass(frozen=True)
class Operator:
    """A kernel and its vjp.

    Forward kernels take `(constants, *inputs, *outputs, *scratch)`, vjp kernels
    `(constants, *inputs, *outputs, *adj_outputs, *adj_inputs, *scratch)` and add to `adj_inputs`; a cotangent that is
    not needed, or zero because its output was not used, is an array without data.
    """

    name: str
    inputs: tuple[str, ...]
    kernels: Callable[[type], tuple[Any, Any]]
    gpu_kernels: Callable[[type], tuple[Any, Any]] | None = None
    """Those of a GPU, if they are others."""
    shows_q: bool = False
    """Whether a coordinate that is not finite always shows in the output; other inputs always do."""
    checked: bool = True
    """Whether an output that is not finite is an error; otherwise the output reports it itself."""
    plain_outputs: int = 0
    """How many of the last outputs have no gradient."""
    groups: Callable[[type], GroupKernel | None] | None = None
    """The forward kernel for groups of worlds on a CPU (core/groups.py), if there is one."""
    gradient_advice: str | None = None
    """What to do where gradients are not finite, which is an error then; None: they are not checked."""


class Program:
    """An operator bound to a robot or world: constants for its kernels, rows of output and of scratch.

    An output without rows, except the first, is None. `read_outputs` is how many of the first outputs the vjp reads,
    all by default; the others are not kept for it. `work` is what a launch costs a world, in evaluations of a robot's
    dynamics: what decides on threads. `group_rows` are the rows of scratch, each a vector, of a launch in groups of
    worlds; none: there are no such launches.
    """

    def __init__(
        self,
        operator: Operator,
        constants: Callable[[str], Any],
        *,
        rows: int | Sequence[int],
        scratch: Sequence[int],
        vjp_scratch: Sequence[int],
        read_outputs: int | None = None,
        work: float = 1,
        group_rows: int = 0,
    ) -> None:
        self.operator = operator
        self.group_rows = group_rows
        self.rows = (rows,) if isinstance(rows, int) else tuple(rows)
        self.scratch = tuple(scratch)
        self.vjp_scratch = tuple(vjp_scratch)
        self.read_outputs = len(self.rows) if read_outputs is None else read_outputs
        self.first_plain = len(self.rows) - operator.plain_outputs
        self.differentiable = [k for k, n in enumerate(self.rows[: self.first_plain]) if n or k == 0]
        self.work = work
        self.number: int | None = None
        """In graphs of torch.compile."""
        self.supply: Callable[[], Tensor] | None = None
        """In graphs: the last input, where it is not given."""
        self.watch: Callable[[Sequence[Tensor]], None] | None = None
        """In graphs: what looks at the outputs."""
        self._constants = constants
        self._launchers: dict[tuple[torch.dtype, torch.device], tuple[Launcher, Launcher]] = {}
        self._group_launchers: dict[torch.dtype, Launcher] = {}
        self._last = threading.local()

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        """Return the only output (B, rows), differentiable in every input."""
        return self.outputs(*inputs)[0]  # pyright: ignore[reportReturnType]

    def outputs(self, *inputs: Tensor | None, repeat: Repeat | None = None) -> tuple[Any, ...]:
        """Return all outputs (B, rows), differentiable in every input; the first input cannot be None.

        `repeat` is what `last_launch(inputs)` returned, if the caller has asked already.
        """
        if repeat is None:
            # torch's own dispatch for transforms and forward mode costs 30 µs a call: used only where needed
            if in_transform() or forward_ad._current_level >= 0:
                return Transformed.apply(self, *inputs)
            repeat = self.last_launch(inputs)
        if torch.is_grad_enabled():
            for x in inputs:
                if x is not None and x.requires_grad:
                    return self._record(repeat, inputs)
        return self.run(inputs, repeat)

    @cached_property
    def _record(self) -> Callable[[Repeat | None, Sequence[Tensor | None]], tuple[Any, ...]]:
        return recorder(self)

    def last_launch(self, inputs: Sequence[Tensor | None]) -> Repeat | None:
        """Return this thread's last launch if it was small and these inputs have the same shapes, type and layout."""
        last = self._last.__dict__.get("launch")
        if last is None or not last.fits(inputs) or in_transform() or forward_ad._current_level >= 0:
            return None
        return last

    def run(self, inputs: Sequence[Tensor | None], repeat: Repeat | None = None) -> tuple[Any, ...]:
        """Launch the forward kernel and check its outputs."""
        if repeat is None:
            repeat = self.last_launch(inputs)
        outputs = self.launch(inputs) if repeat is None else repeat(inputs)
        if self.operator.checked and not self._shows_finite(inputs[0], outputs):
            self._refuse(inputs, outputs[0])
        return outputs

    def _shows_finite(self, reference: Tensor | None, outputs: tuple[Any, ...]) -> bool:
        """Return whether the outputs are finite, and coordinates that would not show in them."""
        return are_finite(*outputs) and (self.operator.shows_q or reference is None or are_finite(reference))

    def launch(self, inputs: Sequence[Tensor | None]) -> tuple[Any, ...]:
        """Launch the forward kernel, whatever was launched before."""
        try:
            return self._launch(inputs)
        except torch.OutOfMemoryError:
            raise no_memory(self.operator.name, inputs, sum(self.rows) + sum(self.scratch)) from None

    def _launch(self, inputs: Sequence[Tensor | None]) -> tuple[Any, ...]:
        arrays = LaunchArrays(inputs, self.work)
        first, *others = self.rows
        outputs: tuple[Any, ...] = (arrays.output(first), *[arrays.output(r) if r else arrays.absent() for r in others])
        launcher = self.launchers(arrays.reference)[0]
        groups = self.groups(arrays.dtype) if arrays.on_cpu and arrays.worlds >= WORLDS else None
        if groups is not None and groups.is_ready:
            launcher = self._group_launcher(groups, launcher, arrays.dtype)
            arrays.launch(launcher, [self.group_rows])
            waited = None
        else:
            start = perf_counter()
            arrays.launch(launcher, self.scratch)
            waited = None if groups is None else (groups, perf_counter() - start)
            if waited is not None:
                waited[0].spend(waited[1])
        if Repeat.is_worth(arrays, launcher, inputs, outputs):
            plain = self.operator.plain_outputs
            self._last.launch = Repeat(arrays, launcher, inputs, outputs, plain=plain, waited=waited)
        return outputs

    def groups(self, dtype: torch.dtype) -> GroupKernel | None:
        """Return the kernel for groups of worlds of a type, if there is one."""
        if self.group_rows == 0 or self.operator.groups is None:
            return None
        return self.operator.groups(REAL[dtype])

    def _group_launcher(self, groups: GroupKernel, single: Launcher, dtype: torch.dtype) -> Launcher:
        if dtype not in self._group_launchers:
            with making_kernels():
                self._group_launchers[dtype] = Launcher(groups.kernel, "cpu", single.constants, self.work)
        return self._group_launchers[dtype]

    def run_vjp(
        self,
        wanted: Sequence[bool],
        adj_outputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
        inputs: Sequence[Tensor | None],
    ) -> tuple[Tensor, ...]:
        """Launch the vjp kernel; return the cotangents of the inputs that are wanted."""
        unread = [None] * (len(self.rows) - len(outputs))
        reads = (*inputs, *outputs, *unread, *adj_outputs)
        last: tuple[Sequence[bool], Repeat] | None = self._last.__dict__.get("vjp")
        if last is not None and last[0] == wanted and last[1].fits(reads):
            found = tuple([x for x in last[1](reads) if x is not None])
        else:
            try:
                found = self._launch_vjp(wanted, reads, inputs)
            except torch.OutOfMemoryError:
                rows = sum(x.shape[1] for x, want in zip(inputs, wanted) if want and x is not None)
                raise no_memory(f"the gradient of {self.operator.name}", reads, rows + sum(self.vjp_scratch)) from None
        if self.operator.gradient_advice is not None and found and not are_finite(*found):
            self._refuse_gradient(found, [x for x in adj_outputs if x is not None])
        return found

    def _launch_vjp(
        self, wanted: Sequence[bool], reads: Sequence[Tensor | None], inputs: Sequence[Tensor | None]
    ) -> tuple[Tensor, ...]:
        """Launch the vjp kernel, whatever was launched before."""
        arrays = LaunchArrays(reads, self.work)
        cotangents: list[Tensor | None] = [
            arrays.cotangent(x) if want and x is not None else arrays.absent() for want, x in zip(wanted, inputs)
        ]
        launcher = self.launchers(arrays.reference)[1]
        arrays.launch(launcher, self.vjp_scratch)
        if Repeat.is_worth(arrays, launcher, reads, cotangents):
            self._last.vjp = wanted, Repeat(arrays, launcher, reads, cotangents, zeroed=True)
        # cotangents of shared inputs are summed over shards, in a fixed order
        return tuple(
            [
                adj.sum(0, keepdim=True) if adj.shape[0] != x.shape[0] else adj
                for adj, x in zip(cotangents, inputs)
                if adj is not None and x is not None
            ]
        )

    def launchers(self, reference: Tensor) -> tuple[Launcher, Launcher]:
        """Return the forward and the vjp kernel for the reference tensor's type and device."""
        key = (reference.dtype, reference.device)
        if key not in self._launchers:
            with making_kernels():
                if key not in self._launchers:
                    self._launchers[key] = self._make_launchers(reference)
        return self._launchers[key]

    def _make_launchers(self, reference: Tensor) -> tuple[Launcher, Launcher]:
        device = device_name(reference.device)
        if reference.dtype not in REAL:
            raise PullbackError(f"a robot of {reference.dtype} cannot compute; convert it to float32 or float64")
        initialize()
        kernels = self.operator.kernels if device == "cpu" else self.operator.gpu_kernels or self.operator.kernels
        forward, vjp = kernels(REAL[reference.dtype])
        constants = self._constants(device)
        return Launcher(forward, device, constants, self.work), Launcher(vjp, device, constants, self.work)

    def compile_ahead(self, reference: Tensor) -> None:
        """Start to compile both kernels at the same time, before they are needed; the vjp takes longer."""
        forward, vjp = self.launchers(reference)
        compile_ahead([vjp.kernel, forward.kernel], forward.device)

    def _refuse(self, inputs: Sequence[Tensor | None], output: Tensor) -> None:
        """Raise if an input or the output is not finite, and say where; on a CPU only, looking would stall a GPU."""
        for name, x in zip(self.operator.inputs, inputs):
            if x is not None:
                refuse_not_finite(name, x)
        if not bool(torch.isfinite(output).all()):
            worlds = (~torch.isfinite(output)).any(1).nonzero().flatten().tolist()
            raise PullbackError(
                f"{self.operator.name} gave values that are not finite in {len(worlds)} batch elements, the first of "
                f"them {worlds[0]}, though all inputs are finite; a quaternion of length zero, a joint that moves no "
                f"mass or huge numbers do that"
            )

    def _refuse_gradient(self, found: Sequence[Tensor], asked: Sequence[Tensor]) -> None:
        """Raise if a gradient is not finite although the cotangents it was computed from are."""
        if all(bool(x.isfinite().all()) for x in found) or not all(bool(x.isfinite().all()) for x in asked):
            return
        count = max(map(len, found))
        bad = [(~x.isfinite()).any(1) for x in found if len(x) == count > 1]
        worlds = torch.stack(bad).any(0).nonzero().flatten().tolist() if bad else []
        where = f" in {len(worlds)} batch elements, the first of them {worlds[0]}" if worlds else ""
        raise GradientError(
            f"the gradient of {self.operator.name} is not finite{where}; {self.operator.gradient_advice}", worlds
        )
