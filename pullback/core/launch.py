"""Launching kernels over worlds: recorded launches, raw array arguments, pieces of the worlds on CPU threads."""

from __future__ import annotations

import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from ctypes import Structure, byref, memset, sizeof
from functools import cache, partial, wraps
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeAlias, TypeVar

import warp as wp

from pullback.core.by_reference import PREFIX, REWRITTEN

wp.config.log_level = wp.LOG_WARNING

CPU_FLAGS = f"{wp.config.cpu_compiler_flags or '-march=native'} -ffp-contract=fast -fno-signed-zeros {REWRITTEN}"
"""Fused multiply-adds across statements too, and sums that start from a zero without adding it: 15 % and 5 % off the
articulated-body algorithm on one core."""

LARGE_CPU_FLAGS = (
    CPU_FLAGS.replace("inline-threshold=9000", "inline-threshold=1000").replace(
        "inline-cold-callsite-threshold=3000", "inline-cold-callsite-threshold=300"
    )
    + " -fno-vectorize"
)
"""Rounds of loops one by one, and less inlining than Warp asks for: the adjoint of a rollout compiles in a quarter less
time and runs as fast. That of the articulated-body algorithm would take 12 % longer to run. Kernels that are compiled
side by side must have the same `-mllvm` flags: Warp lets those with others wait."""

GPU_BLOCK = 64
"""Threads a block: 64 ran 4,096 robots 1.6 times faster than Warp's 256, and 65,536 as fast."""

PIECES = 16
"""Pieces of the worlds for each CPU thread, handed out as threads come free."""

WORLDS_PER_SHARD = 64
"""A thread is worth waking for at least this many worlds."""

Given = ParamSpec("Given")
Made = TypeVar("Made")

Strided: TypeAlias = tuple[int, int, int, int, int, bool]
"""An array as kernels index it, [row, world]: address, rows, row_stride, world_stride, shard_stride, zeroed.

Strides are in bytes; address 0 is an absent array. Rows that all worlds share have `world_stride` 0. `shard_stride`
gives every shard of worlds rows of its own: scratch, and cotangents of what the worlds share. What is to be `zeroed` is
filled by the thread that works on it. A plain tuple, for ten are made in every launch.
"""

ABSENT: Strided = (0, 0, 0, 0, 0, False)

_RECORDING = threading.Lock()
_MAKING = threading.RLock()
_COMPILING: dict[tuple[Any, str], Future[Any]] = {}

# Warp's array argument: data, grad, shape (4), strides (4), ndim, flags; of the first four only what two dimensions use
_ARRAY_LAYOUT = struct.Struct("=Q8x2i8x2i8xH6x")


@cache
def kernel_module(name: str, real: type, *, large: bool = False) -> Any:
    """Return the Warp module of the kernels called `name` for one floating-point type, without adjoint code."""
    module = wp.get_module(f"{PREFIX}{name}.{real.__name__}")
    module.options.update(enable_backward=False, cpu_compiler_flags=LARGE_CPU_FLAGS if large else CPU_FLAGS)
    return module


def making_kernels() -> threading.RLock:
    """Return the lock under which kernels and their constants are made: of two made at once Warp unloads the first."""
    return _MAKING


def made_once(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Keep what a function makes, under the lock for kernels."""
    kept = cache(make)

    @wraps(make)
    def get(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        with _MAKING:
            return kept(*args, **kwargs)

    return get


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="pullback")


@cache
def _compilers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, thread_name_prefix="pullback compiles")


def _after_fork() -> None:
    """Start anew in a forked child, where the threads of the pool are gone and a lock may be left held."""
    global _RECORDING, _MAKING
    _RECORDING = threading.Lock()
    _MAKING = threading.RLock()
    _COMPILING.clear()
    _pool.cache_clear()
    _IDLE.clear()
    _compilers.cache_clear()


os.register_at_fork(after_in_child=_after_fork)


def _wait_for(futures: list[Future[None]]) -> None:
    """Wait until all are done, Ctrl-C or not: their arrays must outlive them."""
    interrupted = False
    while not all(future.done() for future in futures):
        try:
            wait(futures)
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt


class Launcher:
    """One kernel on one device, launched over any number of worlds with as little Python as possible.

    A launch is recorded once a thread (recorded launches are not safe to share) and its arguments are repointed.
    """

    def __init__(self, kernel: Any, device: str, constants: Any) -> None:
        self.kernel = kernel
        self.device = device
        self.constants = constants
        self.block_dim = 1 if device == "cpu" else GPU_BLOCK
        self._recorded = threading.local()

    def __call__(
        self, arrays: Sequence[Strided], worlds: int, shards: int = 1, *, stream: Any = None, fixed: bool = False
    ) -> None:
        """Run the kernel over `worlds` worlds on `shards` threads.

        Each thread works through pieces of the worlds as they come, so that a slow core does not hold up the others; if
        `fixed`, each takes one piece, always the same, so that sums over its worlds come out the same bit for bit.
        """
        if shards == 1:
            self._launch(arrays, 0, 0, worlds, stream)
            return
        size = max(-(-worlds // (shards if fixed else PIECES * shards)), WORLDS_PER_SHARD)
        pieces = iter(range(0, worlds, size))

        def work(shard: int) -> None:
            firsts = range(shard * size, min(worlds, (shard + 1) * size), size) if fixed else pieces
            for first in firsts:
                self._launch(arrays, shard, first, min(size, worlds - first))

        futures: list[Future[None]] = []
        try:
            futures += [_pool(shards - 1).submit(work, shard) for shard in range(1, shards)]
            work(0)
        finally:
            _wait_for(futures)
        for future in futures:
            future.result()

    def _launch(self, arrays: Sequence[Strided], shard: int, first: int, count: int, stream: Any = None) -> None:
        recorded = self._recorded
        if not hasattr(recorded, "launch"):
            recorded.launch = _Recorded(self, len(arrays), count)
        recorded.launch(arrays, shard, first, count, stream)

    def repeat(self) -> tuple[Callable[[], Any], memoryview, list[int]]:
        """Return this thread's last launch on a CPU as a call of its own, and where in what words its addresses are."""
        return self._recorded.launch.copy()


def compile_ahead(*launchers: Launcher) -> None:
    """Start to compile and load kernels, side by side; whoever launches one of them first waits for it.

    Warp writes C++ for one module at a time, mostly for the first of them first, as all have their hashes by then.
    """
    new = [x for x in launchers if (x.kernel.module, x.device) not in _COMPILING]
    for launcher in new:
        launcher.kernel.module.get_module_hash(launcher.block_dim)
    for launcher in new:
        module, device = launcher.kernel.module, launcher.device
        _COMPILING[module, device] = _compilers().submit(module.load, device, launcher.block_dim)


class _Recorded:
    """A launch whose array arguments are overwritten in place and which is then repeated, for one thread."""

    def __init__(self, launcher: Launcher, arrays: int, count: int) -> None:
        inputs = [launcher.constants, *([None] * arrays)]
        compiling = _COMPILING.get((launcher.kernel.module, launcher.device))
        if compiling is not None:
            compiling.result()
        # the first launch of a kernel loads its module, which two threads must not do at once
        with _RECORDING:
            command: Any = wp.launch(
                launcher.kernel,
                dim=count,
                inputs=inputs,
                device=launcher.device,
                record_cmd=True,
                block_dim=launcher.block_dim,
            )
        if any(sizeof(argument) != _ARRAY_LAYOUT.size for argument in command.params[2:]):
            raise RuntimeError(f"Warp {wp.config.version} lays out arrays in an unknown way; use warp-lang 1.19")
        self.command = command
        self.count = -1
        self.on_cpu = launcher.device == "cpu"
        if self.on_cpu:
            # a CPU kernel takes all arguments as one struct
            fields = [(f"argument{k}", type(argument)) for k, argument in enumerate(command.params[1:])]
            packet = type("Packet", (Structure,), {"_fields_": fields})
            self.packet: Any = packet(command.params[1])
            self.places = [(self.packet, getattr(packet, name).offset) for name, _ in fields[1:]]
        else:
            # absent arrays share one argument: give each its own
            for index, argument in enumerate(command.params[2:], 1):
                command.set_param_at_index_from_ctype(index, type(argument)())
            self.places = [(argument, 0) for argument in command.params[2:]]

    def __call__(self, arrays: Sequence[Strided], shard: int, first: int, count: int, stream: Any) -> None:
        """Point the arguments at the arrays' worlds from `first` on, and launch."""
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

    def copy(self) -> tuple[Callable[[], Any], memoryview, list[int]]:
        """Return the launch with arguments of its own, its arguments as words, and which of them are addresses."""
        packet = type(self.packet).from_buffer_copy(self.packet)
        bounds = type(self.command.bounds).from_buffer_copy(self.command.bounds)
        words = memoryview(packet).cast("B").cast("Q")
        return partial(self.run, byref(bounds), byref(packet)), words, [offset // 8 for _, offset in self.places]

    def _set_count(self, count: int) -> None:
        self.command.set_dim(count)
        self.count = count
        if self.on_cpu:
            self.run = self.command.hooks.forward
            self.arguments = byref(self.command.bounds), byref(self.packet)


def shards_for(worlds: int, threads: int) -> int:
    """Return how many CPU threads a batch of worlds is worth, each of which has a shard of scratch."""
    return max(1, min(threads, worlds // WORLDS_PER_SHARD))


class _Helper(threading.Thread):
    """A thread that waits for one call after another: woken in a third of the time that a pool takes.

    Calls go in and their ends come out through queues, whose every operation is whole or not done when Ctrl-C strikes.
    """

    def __init__(self) -> None:
        super().__init__(name="pullback helps", daemon=True)
        self.calls: SimpleQueue[tuple[Callable[..., Any], Sequence[Any]] | None] = SimpleQueue()
        self.ends: SimpleQueue[None] = SimpleQueue()
        self.start()

    def run(self) -> None:
        """Do calls until there is None."""
        while (call := self.calls.get()) is not None:
            call[0](*call[1])
            self.ends.put(None)

    def dismiss(self) -> None:
        """Wait until all calls that were put in are done, Ctrl-C or not: their arrays must outlive them."""
        last = threading.Event()
        self.calls.put((last.set, ()))
        self.calls.put(None)
        while not last.is_set():
            try:
                last.wait()
            except KeyboardInterrupt:
                continue


_IDLE: deque[_Helper] = deque()


def _helper() -> _Helper:
    try:
        return _IDLE.pop()
    except IndexError:
        return _Helper()


class Pass:
    """A kernel over items with its arguments in place: from launch to launch only integers change.

    The kernel's first parameter is the first item, `integers` others come next, then `arguments`. On a CPU the items
    are shared by up to `threads` threads, each of which takes one run of them.
    """

    ITEMS_PER_THREAD = 1024
    """A thread is worth waking for at least this many items."""

    def __init__(self, kernel: Any, arguments: Sequence[Any], device: str, integers: int = 0, threads: int = 1) -> None:
        self.arguments = arguments
        self.threads = threads if device == "cpu" else 1
        self.on_cpu = device == "cpu"
        block = 1 if self.on_cpu else GPU_BLOCK
        with _RECORDING:
            command: Any = wp.launch(
                kernel,
                dim=1,
                inputs=[0] * (1 + integers) + list(arguments),
                device=device,
                record_cmd=True,
                block_dim=block,
            )
        self.command = command
        self.stream: Any = None
        self.count = -1
        if self.on_cpu:
            fields = [(f"argument{k}", type(argument)) for k, argument in enumerate(command.params[1:])]
            packet = type("Packet", (Structure,), {"_fields_": fields})
            self.run = command.hooks.forward
            self.names = [name for name, _ in fields[1 : 1 + integers]]
            self.shards = []
            for _ in range(self.threads):
                bounds = type(command.bounds).from_buffer_copy(command.bounds)
                packed: Any = packet(*command.params[1:])
                self.shards.append((bounds, packed, byref(bounds), byref(packed)))
        else:
            self.places = command.params[1 : 2 + integers]

    def __call__(self, first: int, count: int, *integers: int) -> None:
        """Run the kernel over `count` items from `first` on."""
        if count <= 0:
            return
        if not self.on_cpu:
            if count != self.count:
                self.command.set_dim(count)
                self.count = count
            for place, value in zip(self.places, (first, *integers)):
                place.value = value
            self.command.launch(self.stream)
            return
        shards = min(self.threads, max(1, count // self.ITEMS_PER_THREAD))
        for shard in range(shards):
            bounds, packet, _, _ = self.shards[shard]
            start, stop = count * shard // shards, count * (shard + 1) // shards
            bounds.shape[0] = bounds.size = stop - start
            packet.argument0 = first + start
            for name, value in zip(self.names, integers):
                setattr(packet, name, value)
        if shards == 1:
            self.run(self.shards[0][2], self.shards[0][3])
            return
        helpers: list[_Helper] = []
        try:
            for shard in range(1, shards):
                helpers.append(_helper())
                helpers[-1].calls.put((self.run, self.shards[shard][2:]))
            self.run(self.shards[0][2], self.shards[0][3])
            for helper in helpers:
                helper.ends.get()
        except BaseException:
            # who was interrupted cannot tell which calls had begun: those helpers are not asked again
            for helper in helpers:
                helper.dismiss()
            raise
        _IDLE.extend(helpers)
