"""`pullback doctor`: versions, devices, and whether gradients are right on this machine."""

from __future__ import annotations

import json as json_format
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import pullback
from pullback.cli.kernel_sets import readiness
from pullback.core.errors import PullbackError
from pullback.core.extras import EXTRAS
from pullback.core.kernel_cache import cache_folder
from pullback.core.ready_made import PORTABLE, folders, runs_portable_code, shipped_modules
from pullback.core.threads import get_num_threads
from pullback.rigid.state import State
from pullback.rigid.world.world import World
from pullback.robot.load import load

NEEDED = ("torch", "warp-lang", "numpy", "scipy", "trimesh", "matplotlib")

# float32 holds seven digits, and a robot's inertia matrix costs a few of them
SINGLE_PRECISION = 1e-3
# of the gradient through a step with contact against central differences with steps of 1e-6
DIFFERENCES = 1e-5


def doctor(json: bool = False) -> int:
    """Check this installation: versions, devices, and whether gradients are right; exit status 1 if one is not.

    Args:
        json: Print a JSON object instead of tables.
    """
    console = Console(highlight=False, soft_wrap=True, quiet=json)
    optional = {package: _version(package) for package in EXTRAS}
    _print_versions(console, optional)
    devices = {"cpu": f"{get_num_threads()} thread(s)"}
    devices |= {f"cuda:{k}": torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())}
    for device, name in devices.items():
        console.print(f"device {device}: {escape(name)}")
    kernels = readiness()
    _print_kernels(console, kernels)
    console.print("\nchecking gradients; the first time on a machine, kernels are compiled (a minute or so)")
    results = [_check(console, device, name, check) for device in devices for name, check in CHECKS.items()]
    passed = all(result["passed"] for result in results)
    console.print("[green]all is well[/]" if passed else "[red]something is wrong: see above[/]")
    if json:
        packages = {name: _version(name) for name in NEEDED}
        found: dict[str, Any] = {"pullback": pullback.__version__, "python": platform.python_version()}
        found |= {"packages": packages, "optional": optional, "devices": devices, "kernels": kernels}
        print(json_format.dumps(found | {"checks": results, "passed": passed}, indent=2))
    return 0 if passed else 1


def _print_versions(console: Console, optional: dict[str, str | None]) -> None:
    table = Table(title="versions", title_justify="left", show_header=False)
    table.add_row("pullback", pullback.__version__)
    table.add_row("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in NEEDED:
        table.add_row(package, _version(package) or "[red]missing[/]")
    for package, found in optional.items():
        table.add_row(package, found or f"[dim]not installed; pip install 'pullback\\[{EXTRAS[package]}]'[/]")
    console.print(table)


def _print_kernels(console: Console, states: dict[str, str]) -> None:
    console.print(f"\nkernels for the CPU, kept in {escape(str(cache_folder()))}")
    for name, state in states.items():
        console.print(f"  {name:16s} {state}")
    for folder in folders():
        there = list(shipped_modules(folder))
        if there:
            megabytes = sum(size for *_, size in there) / 1e6
            console.print(f"  {len(there)} modules shipped in {escape(str(folder))}, {megabytes:.1f} MB")
    if not runs_portable_code():
        console.print(f"  this processor runs no shipped kernels: those are for {PORTABLE}")
    console.print("  `pullback compile` compiles all sets ahead")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _check(console: Console, device: str, name: str, check: Callable[[str], str]) -> dict[str, Any]:
    """Run a check and print how it went; whatever it raises is a failure with that text."""
    start = time.perf_counter()
    try:
        verdict, passed = check(device), True
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        verdict, passed = lines[0], False
    mark = "[green]pass[/]" if passed else "[red]FAIL[/]"
    seconds = time.perf_counter() - start
    console.print(f"  {mark}  {escape(f'{device}: {name}')}: {escape(verdict)} ({seconds:.1f} s)")
    return {"device": device, "check": name, "passed": passed, "verdict": verdict, "seconds": round(seconds, 2)}


def _check_gradient(device: str) -> str:
    """Compare the adjoint of the articulated-body algorithm with central differences."""
    robot = load("iiwa7", dtype=torch.float64, device=device)
    generator = torch.Generator().manual_seed(0)
    q = robot.random_q(2, generator=generator).requires_grad_()
    qd, tau = (torch.randn(2, robot.nv, dtype=torch.float64, generator=generator).to(device) for _ in range(2))
    torch.autograd.gradcheck(robot.compute_forward_dynamics, (q, qd.requires_grad_(), tau.requires_grad_()))
    return "they agree"


def _check_precision(device: str) -> str:
    """Compare single with double precision, in forward dynamics and its gradient by the torques."""
    found = {}
    for dtype in (torch.float32, torch.float64):
        robot = load("iiwa7", dtype=dtype, device=device)
        generator = torch.Generator().manual_seed(0)
        q, tau = (
            torch.rand(16, robot.nv, dtype=torch.float64, generator=generator).to(device, dtype) for _ in range(2)
        )
        tau.requires_grad_()
        qdd = robot.compute_forward_dynamics(q, torch.zeros_like(q), tau)
        (gradient,) = torch.autograd.grad(qdd.square().sum(), tau)
        found[dtype] = torch.cat([qdd.detach(), gradient]).double()
    single, double = found[torch.float32], found[torch.float64]
    error = ((single - double).abs().max() / double.abs().max()).item()
    if not error < SINGLE_PRECISION:
        raise PullbackError(f"they differ by {error:.1e} of the largest value, expected less than {SINGLE_PRECISION}")
    return f"they agree to {error:.1e}"


def _check_contact(device: str) -> str:
    """Compare the adjoint of a step with sliding contact with central differences."""
    world = World()
    world.add_ground(friction=0.5)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.0, 0.0, 0.0999))
    sim = world.compile(dt=1e-2, dtype=torch.float64, device=device)
    start = sim.initial_state()
    qd = start.qd.clone()
    qd[0, 3:] = torch.tensor([1.0, 0.3, -0.5], dtype=torch.float64)

    def loss(velocity: torch.Tensor) -> torch.Tensor:
        after = sim.step(State(start.q, velocity, start.impulses))
        return after.q.square().sum() + after.qd.square().sum()

    moving = qd.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(moving), moving)
    unit = 1e-6 * torch.eye(sim.nv, dtype=torch.float64, device=device)
    with torch.no_grad():
        differences = torch.stack([(loss(qd + step) - loss(qd - step)) / 2e-6 for step in unit])
    error = ((gradient[0] - differences).abs().max() / differences.abs().max()).item()
    if not error < DIFFERENCES:
        raise PullbackError(f"they differ by {error:.1e} of the largest entry, expected less than {DIFFERENCES}")
    return f"they agree to {error:.1e}"


CHECKS: dict[str, Callable[[str], str]] = {
    "gradient of forward dynamics against differences, float64": _check_gradient,
    "float32 against float64, values and gradients": _check_precision,
    "gradient of a step with contact against differences, float64": _check_contact,
}
