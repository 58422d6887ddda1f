"""The array arguments of one launch: tensors (B, n) as kernels index them, [row, world].

On a CPU that is a transposed view of the tensor; on a GPU inputs are copied so that neighbouring worlds are neighbours
in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch

from pullback.core.lanes import ROW
from pullback.core.launch import ABSENT, Launcher, Strided
from pullback.core.tensors import current_stream
from pullback.core.threads import get_num_threads, shards_for

Tensor = torch.Tensor

SHARD_GAP = 64
"""Elements left between what two CPU threads write to: two pairs of cache lines in float32."""

KEPT_SCRATCH = 1 << 20
"""Bytes of scratch, at most, that a thread keeps: allocating it again costs a step in a closed loop 5 µs."""

KEPT_BY_GROUPS = 1 << 24
"""The same of launches in groups of worlds."""

_SCRATCH = threading.local()


class LaunchArrays:
    """The arrays of one launch in the kernel's order, and the tensors that must stay alive until it is done."""

    def __init__(self, inputs: Sequence[Tensor | None], work: float = 1) -> None:
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
        self.shards = shards_for(self.worlds, get_num_threads(), work) if self.on_cpu else 1
        self.sums_over_worlds = False

    def read(self, tensors: Sequence[Tensor | None]) -> None:
        """Append tensors that the kernel reads, of one world or of all."""
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
        """Append an array without data."""
        self.arrays.append(ABSENT)

    def output(self, rows: int, make: Callable[..., Tensor] = torch.empty, *, zeroed: bool = False) -> Tensor:
        """Append a new tensor (B, rows) in the device's layout, and return it."""
        worlds, element = self.worlds, self.element
        if self.on_cpu:
            x = make(worlds, rows, dtype=self.dtype)
            self.arrays.append((x.data_ptr(), rows, element, rows * element, 0, zeroed))
            return x
        x = make(rows, worlds, dtype=self.dtype, device=self.reference.device)
        self.arrays.append((x.data_ptr(), rows, worlds * element, element, 0, False))
        return x.t()

    def cotangent(self, x: Tensor) -> Tensor:
        """Append zeros that the kernel adds to: (B, n), or one row a shard where worlds share x on a CPU."""
        size, rows = x.shape
        if size == 1 and self.on_cpu:
            self.sums_over_worlds = True
            return self._rows_a_shard(rows)
        return self.output(rows, zeroed=True) if self.on_cpu else self.output(rows, torch.zeros)

    def launch(self, launcher: Launcher, scratch: Sequence[int]) -> None:
        """Append scratch, and run the kernel."""
        if self.worlds == 0:
            return
        stream = None
        if launcher.in_lanes:
            # each row is a vector, and the first array has room for what is gathered
            gathered = launcher.constant_rows + sum(array[1] for array in self.arrays)
            self._append_scratch([scratch[0] + gathered, *scratch[1:]], ROW)
        elif launcher.in_groups:
            self._append_scratch([launcher.constant_rows + scratch[0]], ROW, KEPT_BY_GROUPS)
        elif self.on_cpu:
            self._append_scratch(scratch, self.element)
        else:
            stream = current_stream(self.reference.device)
            for rows in scratch:
                if rows == 0:
                    self.absent()
                else:
                    self.kept.append(self.output(rows))
        launcher(self.arrays, self.worlds, self.shards, stream=stream, fixed=self.sums_over_worlds)

    def _append_scratch(self, scratch: Sequence[int], element: int, most_kept: int = KEPT_SCRATCH) -> None:
        """Append scratch on a CPU, rows of `element` bytes, from a buffer that a thread keeps unless it is large."""
        shards = self.shards
        size = element * shards * (sum(scratch) + SHARD_GAP * len(scratch))
        buffer: tuple[int, int, Tensor] | None = getattr(_SCRATCH, "buffer", None)
        if buffer is None or buffer[0] < size:
            x = torch.empty(size, dtype=torch.uint8)
            buffer = (size, x.data_ptr(), x)
            if size <= most_kept:
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

    def _rows_a_shard(self, rows: int) -> Tensor:
        """Append and return zeros (shards, rows), a gap apart: threads that write to one cache line slow each other."""
        padded = rows + SHARD_GAP
        x = torch.zeros(self.shards, padded, dtype=self.dtype)
        self.arrays.append((x.data_ptr(), rows, self.element, 0, padded * self.element, False))
        return x[:, :rows]
