"""`pullback compile`: compile kernels ahead, for this machine, a container image, or to ship with a package."""

from __future__ import annotations

import json as json_format
import time
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
import warp as wp
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pullback.cli.kernel_sets import COMMON, MEANING, SolverName, is_robot, kernels_of, kernels_of_robot, names
from pullback.core.device import find_device
from pullback.core.errors import PullbackError, unknown_name
from pullback.core.files import check_folder
from pullback.core.kernel_cache import Source
from pullback.core.modules import initialize
from pullback.core.prepare import Prepared, modules_of, prepare, ship, sources
from pullback.core.ready_made import PORTABLE, is_known_target
from pullback.core.tensors import device_name
from pullback.description.load import shipped_robots

WHAT_HELP = "Sets of kernels, or robots: " + "; ".join(f"{name}: {text}" for name, text in MEANING.items())
STATE = {"here": "compiled here", "shipped": "shipped", "none": "not compiled yet"}


def compile(
    what: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SET|ROBOT", help=WHAT_HELP)] = (),
    /,
    dtype: Literal["float32", "float64", "both"] = "both",
    device: str = "cpu",
    solver: tuple[SolverName, ...] = ("pgs",),
    into: Path | None = None,
    target: str = PORTABLE,
    list: bool = False,
    json: bool = False,
) -> int:
    """Compile kernels ahead of time, so that the first simulation does not wait for a compiler.

    Without a set or robot: those that most worlds need (robots, round, plain, all, linearize, feedback, heat), some
    minutes. Kernels are kept in Warp's cache (WARP_CACHE_PATH names another folder).

    Args:
        dtype: The floating-point type of the kernels.
        device: cpu, cuda, or cuda:1 and so on.
        solver: The contact solvers that are compiled for.
        into: Write kernels for other machines to this folder instead; PULLBACK_KERNELS=FOLDER makes them found.
        target: What kernels in that folder are for: x86-64-v3 (processors since 2013), or a GPU, such as sm_90.
        list: Only show what is ready.
        json: Print a JSON object instead of text.
    """
    console = Console(stderr=True, highlight=False, quiet=json)
    types = {"both": (wp.float32, wp.float64), "float32": (wp.float32,), "float64": (wp.float64,)}[dtype]
    if into is not None:
        check_folder(into, "--into")
        if not is_known_target(target):
            raise PullbackError(f"--target {target}: give {PORTABLE}, or a GPU's architecture such as sm_90")
    where = "cpu" if into is not None else device_name(find_device(device))
    initialize()
    gpu = where != "cpu" or (into is not None and target != PORTABLE)
    with console.status("reading the kernels"):
        kernels = [kernel for real in types for kernel in _kernels(what or COMMON, real, solver, gpu)]
    if list:
        return _list(sources(kernels, where), where, json)
    start = time.perf_counter()
    count = len(modules_of(kernels, where))
    steps = prepare(kernels, where) if into is None else ship(kernels, target, into)
    ready = _watch(steps, count, console)
    seconds = time.perf_counter() - start
    compiled = sum(done.found == "none" for done in ready)
    place = str(into) if into is not None else str(wp.config.kernel_cache_dir)
    if json:
        report: dict[str, Any] = {"device": where, "folder": place, "seconds": round(seconds, 2), "compiled": compiled}
        report["modules"] = [
            {"name": x.name, "state": "compiled" if x.found == "none" else "ready", "seconds": round(x.seconds, 2)}
            for x in ready
        ]
        print(json_format.dumps(report, indent=2))
    else:
        print(f"{compiled} of {count} modules compiled in {seconds:.0f} s, the others were ready; they are in {place}")
    return 0


def _kernels(what: tuple[str, ...], real: type, solvers: tuple[SolverName, ...], gpu: bool) -> list[Any]:
    """Return the kernels of sets and robots; `linearize` and `feedback` hold for both."""
    sets = [name for name in what if not is_robot(name)]
    found = kernels_of(sets, real, solvers, gpu=gpu)  # pyright: ignore[reportArgumentType]
    for name in what:
        if not is_robot(name):
            continue
        if get_close_matches(name, names(), cutoff=0.7):
            raise unknown_name("set of kernels or robot", name, [*names(), *shipped_robots()])
        found += kernels_of_robot(name, real, linearize="linearize" in sets, feedback="feedback" in sets, gpu=gpu)
    if not found:
        raise PullbackError("linearize and feedback are compiled for sets of shapes: add round, plain, all or a robot")
    return found


def _watch(steps: Iterator[Prepared], count: int, console: Console) -> list[Prepared]:
    """Show a bar while modules become ready."""
    columns = (TextColumn("compiling kernels"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    ready = []
    with Progress(*columns, TextColumn("{task.fields[last]}"), console=console) as progress:
        task = progress.add_task("", total=count, last="two at a time, up to a minute each")
        for done in steps:
            ready.append(done)
            text = f"{done.name} {done.seconds:.0f} s" if done.found == "none" else f"{done.name} was ready"
            progress.update(task, advance=1, last=escape(text))
    return ready


def _list(found: dict[str, Source], device: str, json: bool) -> int:
    if json:
        print(json_format.dumps({"device": device, "modules": found}, indent=2))
        return 0
    table = Table("kernels", "state", title=f"kernels for {device}", title_justify="left")
    for name, state in found.items():
        table.add_row(escape(name.removeprefix("pullback.")), STATE[state])
    Console(highlight=False).print(table)
    return 0
