"""Compile kernels before they are needed: for this machine, or as shipped kernels for others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullback.core import kernel_cache, ready_made
from pullback.core.host import collection_paused, warp_silenced
from pullback.core.kernel_cache import Source
from pullback.core.modules import block_dim, initialize

COMPILERS = 2
"""Modules that are compiled side by side: each takes up to 2 GB of memory."""


@dataclass(frozen=True)
class Prepared:
    """A module that is ready: its name, where its code was found ("none": it was compiled now), and the time [s]."""

    name: str
    found: Source
    seconds: float


def modules_of(kernels: Sequence[Any], device: str) -> list[Any]:
    """Return the Warp modules of kernels, each once, with their hashes for a device; all kernels must exist by now."""
    initialize()
    modules = list(dict.fromkeys(kernel.module for kernel in kernels))
    with collection_paused:
        for module in modules:
            module.get_module_hash(block_dim(device))
    return modules


def sources(kernels: Sequence[Any], device: str) -> dict[str, Source]:
    """Return for each module of the kernels where its code would be taken from."""
    return {
        module.name: kernel_cache.source(module, device, block_dim(device)) for module in modules_of(kernels, device)
    }


def prepare(kernels: Sequence[Any], device: str) -> Iterator[Prepared]:
    """Compile the modules of kernels for a device of this machine, and return each when it is ready."""

    def one(module: Any) -> Prepared:
        start = time.perf_counter()
        found = kernel_cache.load(module, device, block_dim(device), compile_here=True)
        return Prepared(_name(module), found, time.perf_counter() - start)

    yield from _side_by_side(modules_of(kernels, device), one)


def ship(kernels: Sequence[Any], target: str, folder: Path) -> Iterator[Prepared]:
    """Compile the modules of kernels for a kind of processor into a folder, and return each when it is ready.

    Those of a GPU are compiled without one: `target` is its architecture, such as sm_90.
    """
    size = block_dim("cpu" if target == ready_made.PORTABLE else "cuda")

    def one(module: Any) -> Prepared:
        start = time.perf_counter()
        found: Source = "shipped" if ready_made.is_whole(folder, module, target, size) else "none"
        if found == "none":
            ready_made.ship(module, folder, target, size)
        return Prepared(_name(module), found, time.perf_counter() - start)

    yield from _side_by_side(modules_of(kernels, "cpu" if size == 1 else "cuda"), one)


def _side_by_side(modules: Sequence[Any], one: Any) -> Iterator[Prepared]:
    with warp_silenced, ThreadPoolExecutor(COMPILERS) as pool:
        waiting = [pool.submit(one, module) for module in modules]
        try:
            for future in as_completed(waiting):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _name(module: Any) -> str:
    return module.name.removeprefix("pullback.")
