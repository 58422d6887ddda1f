"""Warp modules of our kernels: how they are named, made and compiled."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import warp as wp

from pullback.core.codegen import BY_REFERENCE, pass_structs_by_reference
from pullback.core.host import collection_paused, warp_silenced

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
a rollout computes steps again, to the last bit. No vectorized loops, and less inlining than Warp asks for: the adjoint of a rollout compiles in a quarter less time
and runs as fast. That of the articulated-body algorithm would take 12 % longer to run. Kernels that are compiled side
by side must have the same `-mllvm` flags: Warp lets those with others wait."""

GPU_BLOCK = 64
"""Threads a block: 64 ran 4,096 robots 1.6 times faster than Warp's 256, and 65,536 as fast."""

Given = ParamSpec("Given")
Made = TypeVar("Made")

_LOADING = threading.Lock()
_MAKING = threading.RLock()
_COMPILING: dict[tuple[Any, str], Future[Any]] = {}


@cache
def kernel_module(name: str, real: type, *, large: bool = False) -> Any:
    """Return the Warp module of the kernels called `name` for one floating-point type, without adjoint code."""
    module = wp.get_module(f"pullback.{name}.{real.__name__}")
    module.options.update(enable_backward=False, cpu_compiler_flags=LARGE_CPU_FLAGS if large else CPU_FLAGS)
    pass_structs_by_reference(module)
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


def initialize() -> None:
    """Start Warp if it has not been started, without its greeting."""
    with warp_silenced:
        wp.init()


def record(kernel: Any, inputs: Sequence[Any], device: str) -> Any:
    """Return a launch of a kernel that has not run yet; the first of a kernel compiles and loads its module."""
    compiling = _COMPILING.get((kernel.module, device))
    if compiling is not None:
        compiling.result()
    # two threads must not load a module at once
    with _LOADING, warp_silenced:
        _hash(kernel.module, device)
        return wp.launch(
            kernel, dim=1, inputs=list(inputs), device=device, record_cmd=True, block_dim=block_dim(device)
        )


def compile_ahead(kernels: Sequence[Any], device: str) -> None:
    """Start to compile and load kernels side by side; whoever launches one of them first waits for it.

    Warp writes C++ for one module at a time, mostly for the first of them first, as all have their hashes by then.
    """
    new = [x.module for x in kernels if (x.module, device) not in _COMPILING]
    for module in new:
        _hash(module, device)
    for module in new:
        _COMPILING[module, device] = _compilers().submit(_load, module, device)


def _hash(module: Any, device: str) -> None:
    with collection_paused:
        module.get_module_hash(block_dim(device))


def _load(module: Any, device: str) -> None:
    with warp_silenced:
        module.load(device, block_dim(device))


@cache
def _compilers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, thread_name_prefix="pullback compiles")


def _after_fork() -> None:
    """Start anew in a forked child, where the compiler threads are gone and a lock may be left held."""
    global _LOADING, _MAKING
    _LOADING = threading.Lock()
    _MAKING = threading.RLock()
    _COMPILING.clear()
    _compilers.cache_clear()


os.register_at_fork(after_in_child=_after_fork)
