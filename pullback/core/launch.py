"""Launching a kernel over worlds: recorded launches, raw array arguments, contiguous shards of worlds on CPU threads."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import warp as wp

wp.config.log_level = wp.LOG_WARNING

WORLDS_PER_SHARD = 64
"""A thread is worth waking for at least this many worlds."""


@dataclass(frozen=True, slots=True)
class Strided:
    """An array as kernels index it, [row, world]: address and byte strides; address 0 is an absent array.

    Rows that all worlds share have `world_stride` 0. `shard_stride` gives every shard of worlds rows of its own: scratch,
    and cotangents of what the worlds share.
    """

    address: int
    rows: int
    row_stride: int
    world_stride: int
    shard_stride: int = 0


ABSENT = Strided(0, 0, 0, 0)

_ARRAY_LAYOUT = struct.Struct("=QQ4i4iHH4x")  # Warp's array argument: data, grad, shape, strides, ndim, flags


@cache
def _array_argument() -> Any:
    """Return Warp's ctypes class of an array argument."""
    argument = type(wp.empty(shape=(1, 1), dtype=wp.float32, device="cpu").__ctype__())
    if _ARRAY_LAYOUT.size != len(bytes(argument())):
        raise RuntimeError(f"Warp {wp.config.version} lays out array arguments in an unknown way; use warp-lang 1.19")
    return argument


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="pullback")


class Launcher:
    """One kernel on one device, launched over any number of worlds with as little Python as possible.

    A launch is recorded once a thread (recorded launches are not safe to share) and its arguments are repointed.
    """

    def __init__(self, kernel: Any, device: str, constants: Any) -> None:
        self.kernel = kernel
        self.device = device
        self.constants = constants
        self._recorded = threading.local()

    def __call__(self, arrays: Sequence[Strided], worlds: int, shards: int = 1, stream: Any = None) -> None:
        """Run the kernel over `worlds` worlds in `shards` contiguous pieces."""
        if shards == 1:
            self._launch(arrays, 0, 0, worlds, stream)
            return
        size = -(-worlds // shards)
        futures = [
            _pool(shards - 1).submit(self._launch, arrays, s, s * size, min(size, worlds - s * size))
            for s in range(1, shards)
        ]
        self._launch(arrays, 0, 0, size)
        for future in futures:
            future.result()

    def _launch(self, arrays: Sequence[Strided], shard: int, first: int, count: int, stream: Any = None) -> None:
        command = getattr(self._recorded, "command", None)
        if command is None:
            inputs = [self.constants, *([None] * len(arrays))]
            command = wp.launch(self.kernel, dim=count, inputs=inputs, device=self.device, record_cmd=True)
            self._recorded.command, self._recorded.count = command, count
        if self._recorded.count != count:
            command.set_dim(count)
            self._recorded.count = count
        argument = _array_argument()
        for index, a in enumerate(arrays, 1):
            address = a.address and a.address + shard * a.shard_stride + first * a.world_stride
            packed = _ARRAY_LAYOUT.pack(address, 0, a.rows, count, 0, 0, a.row_stride, a.world_stride, 0, 0, 2, 0)
            command.set_param_at_index_from_ctype(index, argument.from_buffer_copy(packed))
        command.launch(stream)


def shards_for(worlds: int, threads: int) -> int:
    """Return into how many pieces a batch of worlds is best cut for CPU threads."""
    return max(1, min(threads, worlds // WORLDS_PER_SHARD))
