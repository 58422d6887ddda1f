"""Warp modules of our kernels: how they are named, made and compiled."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from functools import cache, wraps
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

import warp as wp

from pullback.core import kernel_cache
from pullback.core.codegen import BY_REFERENCE, IN_GROUPS, IN_LANES, rewrite_code
from pullback.core.errors import PullbackError
from pullback.core.host import collection_paused, warp_silenced, without_driver_warning
from pullback.core.lanes import Lanes

CPU_FLAGS = f"{wp.config.cpu_compiler_flags or '-march=native'} -ffp-contract=fast -fno-signed-zeros {BY_REFERENCE}"
"""Fused multiply-adds across statements too, and sums that start from a zero without adding it: 15 % and 5 % off the
articulated-body algorithm on one core."""

LARGE_CPU_FLAGS = (
    CPU_FLAGS.replace("inline-threshold=9000", "inline-threshold=1000")
    .replace("inline-cold-callsite-threshold=3000", "inline-cold-callsite-threshold=300")
    .replace("-ffp-contract=fast", "-ffp-contract=on")
    + " -fno-vectorize"
)
"""Fused multiply-adds within an expression only, so that a function rounds alike wherever it is inlined: the adjoint of
a rollout computes steps again, to the last bit. No vectorized loops, and less inlining than Warp asks for: that adjoint
compiles in a quarter less time and runs as fast. That of the articulated-body algorithm would take 12 % longer to run.
Kernels that are compiled side by side must have the same `-mllvm` flags: Warp lets those with others wait."""

GPU_BLOCK = 128
"""Threads of the largest blocks: Warp's code has room in shared memory for so many and no more."""

Given = ParamSpec("Given")
Made = TypeVar("Made")

_LOADING = threading.Lock()
_MAKING = threading.RLock()
_COMPILING: dict[tuple[Any, str], Future[None]] = {}
_COMPILERS = threading.Semaphore(2)
_ABANDONED = threading.Event()
"""Set when the user did not wait for a compiler."""
_TOLD = threading.Event()
"""Set when the user was told of a compiler."""

PATIENCE = 2.0
"""How long [s] to wait for a compiler before saying so."""
NOTICE = "pullback: compiling kernels ({name}), once on this machine; `pullback compile` does it ahead of time"


@cache
def kernel_module(
    name: str, real: type, *, large: bool = False, lanes: Lanes | None = None, groups: bool = False
) -> Any:
    """Return the Warp module of the kernels called `name` for one floating-point type, without adjoint code.

    With `lanes` it has one kernel, whose worlds go in the lanes of vectors on a CPU; with `groups` one for a CPU that
    takes groups of worlds, some of its functions in lanes.
    """
    module: Any = wp.get_module(f"pullback.{name}.{real.__name__}")
    flags = LARGE_CPU_FLAGS if large else CPU_FLAGS
    if groups:
        flags = f"{flags} {IN_GROUPS}"
    elif lanes is not None:
        flags = f"{flags} {IN_LANES}"
    module.options.update(enable_backward=False, cpu_compiler_flags=flags)
    module.pullback_lanes = lanes
    module.pullback_groups = groups
    rewrite_code(module, real, large=large, lanes=lanes, groups=groups)
    return module


@contextmanager
def making_kernels() -> Iterator[None]:
    """Hold the lock under which kernels and their constants are made: of two made at once Warp unloads the first."""
    with _MAKING, collection_paused, warp_silenced:
        yield


def made_once(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Cache what a kernel factory returns, and call it under the lock for kernels."""
    kept = cache(make)

    @wraps(make)
    def get(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        with making_kernels():
            return kept(*args, **kwargs)

    return get


def block_dim(device: str) -> int:
    """Return the threads of a block on a Warp device."""
    return 1 if device == "cpu" else GPU_BLOCK


@cache
def _start() -> None:
    with without_driver_warning():
        wp.init()


def initialize() -> None:
    """Start Warp if it has not been started, without its greeting."""
    with warp_silenced:
        try:
            _start()
        except OSError as error:
            raise PullbackError(f"Warp could not start: {error}; {kernel_cache.ADVICE}") from error


def record(kernel: Any, inputs: Sequence[Any], device: str) -> Any:
    """Return a launch of a kernel that has not run yet; the first of a kernel compiles and loads its module."""
    # compiled on another thread, so that Ctrl-C is heard meanwhile
    compiling = _compile(kernel.module, device)
    try:
        _wait(compiling, kernel.module.name)
    except KeyboardInterrupt:
        _ABANDONED.set()
        raise
    except Exception:
        _COMPILING.pop((kernel.module, device), None)
        raise
    # two threads must not load a module at once
    with _LOADING, warp_silenced:
        _hash(kernel.module, device)
        return wp.launch(
            kernel, dim=1, inputs=list(inputs), device=device, record_cmd=True, block_dim=block_dim(device)
        )


def _wait(compiling: Future[None], name: str) -> None:
    """Wait for a compiler; if it takes long, say so once on a terminal."""
    start = perf_counter()
    while True:
        try:
            # not for ever: an interrupt by another thread, as of a notebook, does not wake this one
            return compiling.result(timeout=0.1)
        except FutureTimeoutError:  # the built-in one from Python 3.11 on
            if compiling.done():  # just now, or the error is the compiler's own
                return compiling.result()
        if perf_counter() - start > PATIENCE and sys.stderr.isatty() and not _TOLD.is_set():
            _TOLD.set()
            print(NOTICE.format(name=name.removeprefix("pullback.")), file=sys.stderr)


def compile_ahead(kernels: Sequence[Any], device: str) -> None:
    """Start to compile and load kernels side by side; whoever launches one of them first waits for it.

    Warp writes C++ for one module at a time, mostly for the first of them first, as all have their hashes by then.
    """
    for kernel in kernels:
        _hash(kernel.module, device)
    for kernel in kernels:
        _compile(kernel.module, device)


def is_compiled(kernel: Any, device: str) -> bool:
    """Return whether the code of a kernel is on this machine, compiled here or shipped."""
    initialize()
    with warp_silenced:
        _hash(kernel.module, device)
        return kernel_cache.source(kernel.module, device, block_dim(device)) != "none"


def wait_for(kernel: Any, device: str) -> None:
    """Compile and load a kernel unless that has been done, and wait for it."""
    _compile(kernel.module, device).result()


def _compile(module: Any, device: str) -> Future[None]:
    """Start to compile and load a module on a thread of its own, unless that has been done."""
    initialize()
    with _LOADING:
        future = _COMPILING.get((module, device))
        if future is None:
            future = _COMPILING[module, device] = Future()
            threading.Thread(target=_load, args=(module, device, future), name="pullback compiles", daemon=True).start()
    return future


def _hash(module: Any, device: str) -> None:
    with collection_paused:
        module.get_module_hash(block_dim(device))


def _load(module: Any, device: str, future: Future[None]) -> None:
    try:
        with _COMPILERS, warp_silenced:
            _hash(module, device)
            kernel_cache.load(module, device, block_dim(device))
    except BaseException as error:
        # whoever waits for the kernel gets it
        future.set_exception(error)
    else:
        future.set_result(None)


@atexit.register
def _finish() -> None:
    """Wait for compilers before the process ends under them, unless Ctrl-C was pressed meanwhile."""
    if not _ABANDONED.is_set():
        for future in list(_COMPILING.values()):
            future.exception()


def _after_fork() -> None:
    """Start anew in a forked child, where the compiler threads are gone and a lock may be left held."""
    global _LOADING, _MAKING, _COMPILERS
    _LOADING = threading.Lock()
    _MAKING = threading.RLock()
    _COMPILERS = threading.Semaphore(2)
    _COMPILING.clear()


os.register_at_fork(after_in_child=_after_fork)
