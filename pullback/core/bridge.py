"""The one place where torch and Warp meet: kernels with their adjoints become differentiable torch functions.

An `Operator` is a pair of kernels. A `Program` is an operator bound to one robot: it maps tensors (B, n), or (1, n) for
what all worlds share, to one tensor (B, m) or several. Kernels see all of them as [row, world]. On a CPU that is a
transposed view; on a GPU inputs are copied so that neighbouring worlds are neighbours in memory.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import warp as wp
from torch.autograd import forward_ad

from pullback.core.errors import GradientError, PullbackError
from pullback.core.functions import Recorded, Transformed
from pullback.core.launch import ABSENT, WORLDS_PER_SHARD, Launcher, Strided, compile_ahead, making_kernels, shards_for

Tensor = torch.Tensor

FEW = 64
"""Numbers that Python adds up faster than numpy is called."""

SMALL_OUTPUT = 1 << 14
"""Numbers of output, at most, of a launch that is kept to be repeated."""

SHARD_GAP = 64
"""Elements left between what two CPU threads write to: two pairs of cache lines in float32."""

KEPT_SCRATCH = 1 << 20
"""Bytes of scratch, at most, that a thread keeps: allocating it anew costs a step in a closed loop 5 µs."""

_SCRATCH = threading.local()

_in_transform = torch._C._are_functorch_transforms_active

REAL = {torch.float32: wp.float32, torch.float64: wp.float64}


@dataclass(frozen=True)
class Operator:
    """A kernel and its vjp.

    Forward kernels take `(constants, *inputs, *outputs, *scratch)`, vjp kernels
    `(constants, *inputs, *outputs, *adj_outputs, *adj_inputs, *scratch)` and add to `adj_inputs`; a cotangent nobody
    asked for, or that is zero because an output was not used, arrives without data.
    """

    name: str
    inputs: tuple[str, ...]
    kernels: Callable[[type], tuple[Any, Any]]
    shows_q: bool = False
    """Whether a coordinate that is not finite always shows in the output; whatever else is not finite does."""
    checked: bool = True
    """Whether an output that is not finite is an error; otherwise it says so itself."""
    plain_outputs: int = 0
    """How many of the last outputs have no gradient; a repeated launch gives them as lists, which cost 10 µs less."""
    gradient_advice: str | None = None
    """What to do where gradients are not finite, which is an error then; None: nobody looks."""


class Program:
    """An operator bound to a robot: constants for its kernels, rows of output and of scratch.

    An output without rows, but for the first, is None. `read_outputs` is how many of the first outputs the vjp reads,
    all by default; the others are not kept for it.
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
    ) -> None:
        self.operator = operator
        self.rows = (rows,) if isinstance(rows, int) else tuple(rows)
        self.scratch = tuple(scratch)
        self.vjp_scratch = tuple(vjp_scratch)
        self.read_outputs = len(self.rows) if read_outputs is None else read_outputs
        self.first_plain = len(self.rows) - operator.plain_outputs
        self._constants = constants
        self._launchers: dict[tuple[torch.dtype, torch.device], tuple[Launcher, Launcher]] = {}
        self._last = threading.local()

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        """Return the only output (B, rows), differentiable in every input."""
        return self.outputs(*inputs)[0]  # pyright: ignore[reportReturnType]

    def outputs(self, *inputs: Tensor | None) -> tuple[Any, ...]:
        """Return all outputs (B, rows), differentiable in every input; the first input cannot be None."""
        # torch's way through transforms, and to an error in forward mode, costs 30 µs a call: taken where it is needed
        if _in_transform() or forward_ad._current_level >= 0:
            return Transformed.apply(self, *inputs)
        if torch.is_grad_enabled():
            for x in inputs:
                if x is not None and x.requires_grad:
                    plain: list[Any] = []
                    return *Recorded.apply(self, plain, *inputs), *plain  # pyright: ignore[reportAttributeAccessIssue]
        return self.run(inputs)

    def run(self, inputs: Sequence[Tensor | None]) -> tuple[Any, ...]:
        """Launch the forward kernel."""
        outputs = (self.repeat(inputs) or self.launch)(inputs)
        if self.operator.checked and not self._shows_finite(inputs[0], outputs):
            self._refuse(inputs, outputs[0])
        return outputs

    def _shows_finite(self, reference: Tensor | None, outputs: tuple[Any, ...]) -> bool:
        """Tell whether the outputs, and coordinates that do not show in them, are finite."""
        return are_finite(*outputs) and (self.operator.shows_q or reference is None or are_finite(reference))

    def repeat(self, inputs: Sequence[Tensor | None]) -> Repeat | None:
        """Return a quick way to do again what this thread did last, if these inputs are of the same kind."""
        repeat: Repeat | None = getattr(self._last, "launch", None)
        return repeat if repeat is not None and repeat.fits(inputs) else None

    def launch(self, inputs: Sequence[Tensor | None]) -> tuple[Any, ...]:
        """Launch the forward kernel, whatever was launched before."""
        launch = _Launch(inputs)
        first, *others = self.rows
        outputs: tuple[Any, ...] = (launch.output(first), *[launch.output(r) if r else launch.absent() for r in others])
        launcher = self.launchers(launch.reference)[0]
        launch(launcher, self.scratch)
        if launch.can_be_repeated(inputs, outputs):
            self._last.launch = Repeat(launch, launcher, inputs, outputs, self.first_plain)
        return outputs

    def run_vjp(
        self,
        wanted: Sequence[bool],
        adj_outputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
        inputs: Sequence[Tensor | None],
    ) -> tuple[Tensor, ...]:
        """Launch the vjp kernel; return the cotangents of the inputs that are wanted."""
        launch = _Launch(inputs)
        unread = [None] * (len(self.rows) - len(outputs))
        launch.read((*outputs, *unread, *adj_outputs))
        cotangents: list[Tensor | None] = [
            launch.cotangent(x) if want and x is not None else launch.absent() for want, x in zip(wanted, inputs)
        ]
        launch(self.launchers(launch.reference)[1], self.vjp_scratch)
        found = tuple([launch.reduce(c, x) for c, x in zip(cotangents, inputs) if c is not None and x is not None])
        if self.operator.gradient_advice is not None and found and not are_finite(*found):
            self._refuse_gradient(found, [x for x in adj_outputs if x is not None])
        return found

    def _refuse_gradient(self, found: Sequence[Tensor], asked: Sequence[Tensor]) -> None:
        """Raise if a gradient is not finite although what was asked is."""
        if all(bool(x.isfinite().all()) for x in found) or not all(bool(x.isfinite().all()) for x in asked):
            return
        count = max(map(len, found))
        bad = [(~x.isfinite()).any(1) for x in found if len(x) == count > 1]
        worlds = torch.stack(bad).any(0).nonzero().flatten().tolist() if bad else []
        where = f" in {len(worlds)} batch elements, the first of them {worlds[0]}" if worlds else ""
        raise GradientError(
            f"the gradient of {self.operator.name} is not finite{where}; {self.operator.gradient_advice}", worlds
        )

    def launchers(self, reference: Tensor) -> tuple[Launcher, Launcher]:
        """Return the two kernels, compiled for the reference tensor's type and device."""
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
        forward, vjp = self.operator.kernels(REAL[reference.dtype])
        constants = self._constants(device)
        return Launcher(forward, device, constants), Launcher(vjp, device, constants)

    def compile_ahead(self, reference: Tensor) -> None:
        """Start to compile both kernels at the same time, before they are needed; the vjp takes longer."""
        forward, vjp = self.launchers(reference)
        compile_ahead(vjp, forward)

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


def refuse_not_finite(name: str, x: Tensor) -> None:
    """Raise if an entry of x (B, n) is not finite; not on a GPU and not inside a functorch transform."""
    if are_finite(x):
        return
    bad = (~torch.isfinite(x)).nonzero().tolist()
    if bad:
        world, entry = bad[0]
        raise PullbackError(
            f"{name} is not finite: entry {entry} of batch element {world} is {x[world, entry].item()}, "
            f"{len(bad)} such in all; check what produced it"
        )


def can_look_at(x: Tensor) -> bool:
    """Tell whether the entries of a tensor can be read without waiting: not on a GPU, not in a functorch transform."""
    return x.is_cpu and not _in_transform()


def are_finite(*tensors: Tensor) -> bool:
    """Tell whether all tensors (B, n) are finite; of small ones, whether their sum is: no may only cost another look.

    By numpy, for torch wakes threads that go on spinning where ours should run. What is on a GPU or inside a functorch
    transform is not looked at and passes.
    """
    if not can_look_at(tensors[0]):
        return True
    total = 0.0
    for x in tensors:
        if x.numel() > FEW:
            if not np.isfinite(x.detach().numpy()).all():
                return False
        else:
            for row in x.tolist():
                total += sum(row)
    return math.isfinite(total)


class _Launch:
    """The arrays of one launch, in the kernel's order: keeps what it allocates alive until the launch is done."""

    def __init__(self, inputs: Sequence[Tensor | None]) -> None:
        reference = inputs[0]
        assert reference is not None
        self.reference = reference
        self.dtype = reference.dtype
        self.on_cpu = reference.is_cpu
        self.element = 8 if self.dtype is torch.float64 else 4
        self.worlds = 1
        self.kept: list[Tensor] = []
        self.arrays: list[Strided] = []
        self.read(inputs)
        self.shards = shards_for(self.worlds, torch.get_num_threads()) if self.on_cpu else 1
        self.sums_over_worlds = False

    def read(self, tensors: Sequence[Tensor | None]) -> None:
        """Append what the kernel reads, for one world or for all."""
        element, on_cpu, arrays = self.element, self.on_cpu, self.arrays
        for x in tensors:
            if x is None:
                arrays.append(ABSENT)
                continue
            # neighbours in memory: the rows of a world on a CPU, the worlds of a row on a GPU
            worlds, rows = x.shape
            world_stride, row_stride = x.stride()
            if worlds == 1:
                world_stride = 0
            else:
                self.worlds = worlds
            if on_cpu:
                if row_stride != 1 and rows > 1:
                    x = x.contiguous()
                    self.kept.append(x)
                    world_stride, row_stride = rows if worlds > 1 else 0, 1
            elif worlds > 1:
                x = x.t().contiguous().t()
                self.kept.append(x)
                world_stride, row_stride = 1, worlds
            arrays.append((x.data_ptr(), rows, row_stride * element, world_stride * element, 0, False))

    def absent(self) -> None:
        """Append an array that is not there."""
        self.arrays.append(ABSENT)

    def output(self, rows: int, make: Callable[..., Tensor] = torch.empty, *, zeroed: bool = False) -> Tensor:
        """Append a tensor (B, rows) laid out as the device likes it, and return it."""
        worlds, element = self.worlds, self.element
        if self.on_cpu:
            x = make(worlds, rows, dtype=self.dtype)
            self.arrays.append((x.data_ptr(), rows, element, rows * element, 0, zeroed))
            return x
        x = make(rows, worlds, dtype=self.dtype, device=self.reference.device)
        self.arrays.append((x.data_ptr(), rows, worlds * element, element, 0, False))
        return x.t()

    def cotangent(self, x: Tensor) -> Tensor:
        """Append zeros that the kernel adds to: (B, n), or one row a shard where the worlds share x on a CPU."""
        size, rows = x.shape
        if size == 1 and self.on_cpu:
            self.sums_over_worlds = True
            return self._rows_a_shard(rows, torch.zeros)[:, :rows]
        return self.output(rows, zeroed=True) if self.on_cpu else self.output(rows, torch.zeros)

    def reduce(self, adj: Tensor, x: Tensor) -> Tensor:
        """Sum the cotangent of what the worlds share, in a fixed order."""
        return adj.sum(0, keepdim=True) if adj.shape[0] != x.shape[0] else adj

    def __call__(self, launcher: Launcher, scratch: Sequence[int]) -> None:
        """Append scratch, and launch."""
        if self.worlds == 0:
            return
        stream = None
        if self.on_cpu:
            self._append_scratch(scratch)
        else:
            stream = _warp_stream(torch.cuda.current_stream(self.reference.device).cuda_stream, launcher.device)
            for rows in scratch:
                if rows == 0:
                    self.absent()
                else:
                    self.kept.append(self.output(rows))
        launcher(self.arrays, self.worlds, self.shards, stream=stream, fixed=self.sums_over_worlds)

    def can_be_repeated(self, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None]) -> bool:
        """Tell whether it was a small launch on one CPU thread, however many there are, from inputs as they stand."""
        if not self.on_cpu or not 0 < self.worlds <= WORLDS_PER_SHARD:
            return False
        is_small = sum(x.numel() for x in outputs if x is not None) <= SMALL_OUTPUT
        return is_small and all(x is None or x.is_contiguous() for x in inputs)

    def _append_scratch(self, scratch: Sequence[int]) -> None:
        """Append scratch on a CPU, from a buffer that a thread keeps for its next launch unless it is large."""
        element, shards = self.element, self.shards
        size = element * shards * (sum(scratch) + SHARD_GAP * len(scratch))
        buffer: tuple[int, int, Tensor] | None = getattr(_SCRATCH, "buffer", None)
        if buffer is None or buffer[0] < size:
            x = torch.empty(size, dtype=torch.uint8)
            buffer = (size, x.data_ptr(), x)
            if size <= KEPT_SCRATCH:
                _SCRATCH.buffer = buffer
        self.kept.append(buffer[2])
        address = buffer[1]
        for rows in scratch:
            if rows == 0:
                self.absent()
            else:
                stride = (rows + SHARD_GAP) * element
                self.arrays.append((address, rows, element, 0, stride, False))
                address += shards * stride

    def _rows_a_shard(self, rows: int, make: Callable[..., Tensor]) -> Tensor:
        """Append and return (shards, rows and a gap): threads that write to one cache line wait for each other."""
        padded = rows + SHARD_GAP
        x = make(self.shards, padded, dtype=self.dtype)
        self.arrays.append((x.data_ptr(), rows, self.element, 0, padded * self.element, False))
        return x


class Repeat:
    """A launch on one CPU thread, done again for tensors of the same shapes: nothing but addresses changes."""

    def __init__(
        self,
        launch: _Launch,
        launcher: Launcher,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
        first_plain: int,
    ) -> None:
        self.kept = launch.kept
        self.dtype = launch.dtype
        self.shapes = [None if x is None else x.shape for x in inputs]
        self.like = [None if x is None else torch.empty_like(x) for x in outputs[:first_plain]]
        self.launch, self.addresses, places = launcher.repeat()
        self.inputs_at, self.outputs_at = places[: len(inputs)], places[len(inputs) : len(inputs) + first_plain]
        self.plain = [torch.empty_like(x).numpy() for x in outputs[first_plain:] if x is not None]
        for place, x in zip(places[len(inputs) + first_plain :], self.plain):
            self.addresses[place] = x.ctypes.data
        self.views = [x.data for x in self.plain]

    def fits(self, inputs: Sequence[Tensor | None]) -> bool:
        """Tell whether these inputs are laid out like those of the first time."""
        dtype = self.dtype
        for x, shape in zip(inputs, self.shapes):
            if x is None or shape is None:
                if x is not shape:
                    return False
            elif x.shape != shape or x.dtype is not dtype or not x.is_cpu or not x.is_contiguous():
                return False
        return True

    def __call__(self, inputs: Sequence[Tensor | None]) -> tuple[Any, ...]:
        """Return new outputs."""
        addresses = self.addresses
        for place, x in zip(self.inputs_at, inputs):
            if x is not None:
                addresses[place] = x.data_ptr()
        outputs: list[Any] = []
        for place, x in zip(self.outputs_at, self.like):
            if x is not None:
                # quicker than `torch.empty` by 2 µs
                x = torch.empty_like(x)
                addresses[place] = x.data_ptr()
            outputs.append(x)
        self.launch()
        return *outputs, *[view.tolist() for view in self.views]


@cache
def _warp_stream(cuda_stream: int, device: str) -> Any:
    wp.init()
    return wp.Stream(device, cuda_stream=cuda_stream)


def view(x: Tensor | None, dtype: Any = None) -> Any:
    """Return a tensor as a kernel's array argument over the same memory, of vectors if `dtype` is one; None stays None.

    It is the bare argument, which keeps the tensor alive, and not Warp's array, whose `__del__` would swallow a Ctrl-C
    that strikes inside it. Warp launches with it unseen: type and dimensions are the caller's to get right.
    """
    if x is None or x.numel() == 0:
        return None
    wp.init()
    return wp.from_torch(x.detach(), dtype=dtype or _SCALARS[x.dtype], requires_grad=False, return_ctype=True)


def device_name(device: torch.device) -> str:
    """Return the name by which Warp knows a device of torch."""
    return "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"


def current_stream(device: torch.device) -> Any:
    """Return torch's current stream as Warp knows it, None on a CPU."""
    if device.type == "cpu":
        return None
    return _warp_stream(torch.cuda.current_stream(device).cuda_stream, device_name(device))


_SCALARS = {torch.float32: wp.float32, torch.float64: wp.float64, torch.int32: wp.int32}
