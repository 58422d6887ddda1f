"""One kernel over a batch of worlds: the argument block of a launch is kept, and later launches overwrite its arrays.

A launch through Warp's Python API costs more than a small robot's dynamics. So each kernel has one argument block a
thread, recorded once; a launch writes array descriptors into it and runs it. A launch whose arrays keep their shapes
needs even less: `Launcher.copy` returns a block of its own, in which only addresses change (`repeat.py`). Kernels take
arrays one by one or grouped in structs (`array_struct.py`); a launch lists them one by one in either case.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Sequence
from ctypes import Structure, addressof, byref, c_int32, memset, sizeof
from functools import partial
from math import ceil
from typing import Any, NamedTuple, TypeAlias

import warp as wp

from pullback.core.lanes import GROUP, constant_rows, lanes_of
from pullback.core.modules import record
from pullback.core.threads import WORLDS_PER_SHARD, Sharing, run_interruptibly, run_side_by_side

PIECES = 16
"""Pieces of the batch for each CPU thread, handed out as threads come free."""

WATCHED = 1024
"""Steps of all worlds, at least, of a launch during which Ctrl-C is heard: it takes 10 ms or more."""

MANY_WORLDS = 16384
"""From so many worlds on, blocks of 128 threads are 7 % faster than those of 64: they share the instruction cache. With
4,096 worlds they are 12 % slower, and blocks of 8, which put a world on every scheduler, are as well."""

Strided: TypeAlias = tuple[int, int, int, int, int, bool]
"""An array as kernels index it, [row, world]: address, rows, row_stride, world_stride, shard_stride, zeroed.

Strides are in bytes; address 0 is an absent array. Rows that all worlds share have `world_stride` 0. `shard_stride`
gives every shard of worlds rows of its own: scratch, and cotangents of inputs that worlds share. `zeroed` arrays are
filled with zeros by the thread that works on them. A plain tuple, because ten are made in every launch.
"""

ABSENT: Strided = (0, 0, 0, 0, 0, False)

# Warp's array argument: data, grad, shape (4), strides (4), ndim, flags; of the first four only what two dimensions use
_ARRAY_LAYOUT = struct.Struct("=Q8x2i8x2i8xH6x")


def threads_a_block(worlds: int, most: int) -> int:
    """Return in how large blocks a GPU takes its worlds; kernels are compiled for `most` threads and run with fewer."""
    return most if worlds >= MANY_WORLDS else most // 2


def packet_type(command: Any) -> Any:
    """Return the struct in which a CPU kernel takes all its arguments, `argument0` the kernel's first."""
    fields = [(f"argument{k}", type(argument)) for k, argument in enumerate(command.params[1:])]
    return type("Packet", (Structure,), {"_fields_": fields})


class FixedLaunch(NamedTuple):
    """A launch on one CPU thread whose arrays keep their shapes: `addresses[places[k]]` is the address of array k."""

    run: Callable[[], Any]
    addresses: memoryview
    places: list[int]


class Launcher:
    """One kernel on one device, launched over any number of worlds.

    `work` is what a world costs, in evaluations of a robot's dynamics. A kernel whose constants have an array `stop`
    takes its worlds through `steps` steps and ends after the one in which `stop[0]` is no longer zero.
    """

    def __init__(self, kernel: Any, device: str, constants: Any, work: float = 1) -> None:
        self.kernel = kernel
        self.device = device
        self.constants = constants
        self.work = work
        self.steps = constants.steps if hasattr(constants, "stop") and device == "cpu" else 0
        self.in_lanes = device == "cpu" and lanes_of(kernel) is not None
        self.in_groups = getattr(kernel.module, "pullback_groups", False)
        self.constant_rows = constant_rows(constants) if self.in_lanes or self.in_groups else 0
        self.sharing = Sharing()
        self._local = threading.local()

    def is_long(self, worlds: int) -> bool:
        """Return whether a launch takes long enough for someone to interrupt it, and can be interrupted."""
        return self.steps * worlds >= WATCHED

    def __call__(
        self, arrays: Sequence[Strided], worlds: int, shards: int = 1, *, stream: Any = None, fixed: bool = False
    ) -> None:
        """Run the kernel over `worlds` worlds on `shards` threads.

        Threads take pieces of the batch as they come free, so that a slow core does not hold up the others. If `fixed`,
        there is one piece for each shard, always the same, so that sums over its worlds are the same bit for bit in
        every run. Long launches leave this thread free to hear Ctrl-C.
        """
        stop = c_int32(0) if self.is_long(worlds) and _hears_interrupts() else None
        if shards == 1 and stop is None:
            self._block(len(arrays))(arrays, 0, 0, worlds, stream)
            return
        size = max(-(-worlds // (shards if fixed else PIECES * shards)), ceil(WORLDS_PER_SHARD / self.work))
        if self.in_lanes or self.in_groups:
            size = -(-size // GROUP) * GROUP
        pieces = iter(range(0, worlds, size))

        def work(shard: int) -> None:
            for first in pieces:
                if stop is None or stop.value == 0:
                    block = self._block(len(arrays))
                    block.stop_at(stop)
                    block(arrays, first // size if fixed else shard, first, min(size, worlds - first))

        if stop is None:
            run_side_by_side(work, [(shard,) for shard in range(shards)], self.sharing)
        else:
            run_interruptibly(work, shards, stop)

    def copy(self) -> FixedLaunch:
        """Return this thread's last launch on a CPU with arguments of its own."""
        return self._local.block.copy()

    def _block(self, arrays: int) -> _ArgumentBlock:
        local = self._local
        if not hasattr(local, "block"):
            local.block = _ArgumentBlock(self, arrays)
        return local.block


def _hears_interrupts() -> bool:
    """Return whether Ctrl-C would be raised on this thread."""
    return threading.current_thread() is threading.main_thread()


class _ArgumentBlock:
    """The arguments of a kernel in memory, overwritten in place from launch to launch; used by one thread only."""

    def __init__(self, launcher: Launcher, arrays: int) -> None:
        types = [argument.type for argument in launcher.kernel.adj.args[1:]]
        absent = [None if wp.types.is_array(type_) else type_() for type_ in types]
        command = record(launcher.kernel, [launcher.constants, *absent], launcher.device)
        size = _ARRAY_LAYOUT.size
        if any(sizeof(argument) % size != 0 for argument in command.params[2:]):
            raise RuntimeError(f"Warp {wp.config.version} lays out arrays in an unknown way; use warp-lang 1.19")
        self.command = command
        self.count = -1
        self.block = command.block_dim
        self.stop: c_int32 | None = None
        self.on_cpu = launcher.device == "cpu"
        if self.on_cpu:
            packet = packet_type(command)
            self.packet: Any = packet(command.params[1])
            first = packet.argument1.offset if absent else 0
            self.places = [(self.packet, offset) for offset in range(first, sizeof(packet), size)]
        else:
            # absent arrays share one argument: give each its own
            for index, argument in enumerate(command.params[2:], 1):
                command.set_param_at_index_from_ctype(index, type(argument)())
            self.places = [
                (argument, offset) for argument in command.params[2:] for offset in range(0, sizeof(argument), size)
            ]
        if len(self.places) != arrays:
            raise RuntimeError(f"{launcher.kernel.key} takes {len(self.places)} arrays, not {arrays}")

    def __call__(self, arrays: Sequence[Strided], shard: int, first: int, count: int, stream: Any = None) -> None:
        """Point the arguments at `count` worlds of the arrays from `first` on, and launch."""
        if self.count != count:
            self._set_count(count)
        pack_into = _ARRAY_LAYOUT.pack_into
        for (place, offset), array in zip(self.places, arrays):
            address, rows, row_stride, world_stride, shard_stride, zeroed = array
            if address:
                address += shard * shard_stride + first * world_stride
            if zeroed:
                memset(address, 0, count * world_stride)
            pack_into(place, offset, address, rows, count, row_stride, world_stride, 2)
        if self.on_cpu:
            self.run(*self.arguments)
        else:
            self.command.launch(stream)

    def stop_at(self, stop: c_int32 | None) -> None:
        """Let the kernel look at a number, or at none, after every step."""
        if stop is not self.stop:
            self.stop = stop
            array = self.packet.argument0.stop
            array.data = 0 if stop is None else addressof(stop)
            array.shape[0], array.strides[0], array.ndim = 1, sizeof(c_int32), 1

    def copy(self) -> FixedLaunch:
        """Return the launch as it is now, with a block of its own; on a CPU."""
        packet = type(self.packet).from_buffer_copy(self.packet)
        bounds = type(self.command.bounds).from_buffer_copy(self.command.bounds)
        words = memoryview(packet).cast("B").cast("Q")
        places = [offset // 8 for _, offset in self.places]
        return FixedLaunch(partial(self.run, byref(bounds), byref(packet)), words, places)

    def _set_count(self, count: int) -> None:
        # the module was compiled for blocks of this size, and smaller ones may be launched
        self.command.block_dim = self.block
        self.command.set_dim(count)
        self.count = count
        if not self.on_cpu:
            self.command.block_dim = threads_a_block(count, self.block)
        else:
            self.run = self.command.hooks.forward
            self.arguments = byref(self.command.bounds), byref(self.packet)
