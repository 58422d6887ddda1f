"""The command `pullback`: look at a robot, run a task, check an installation."""

from __future__ import annotations

import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from math import isinf
from typing import Annotated, Any, Literal

import torch
import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree as Drawing

import pullback
from pullback.core.errors import PullbackError
from pullback.core.threads import get_num_threads
from pullback.description.check import MIMIC_JOINTS
from pullback.description.compile import COORDINATES, WORLD, Model, compile_tree
from pullback.description.load import read, shipped_robots
from pullback.description.tree import Joint, Link, Shape
from pullback.robot.load import load
from pullback.tasks import find_task, task_names

OPTIONAL = {"mujoco": "mjcf", "viser": "viz"}
"""Optional packages, and the extra that installs each."""

ROBOT_HELP = f"One of {', '.join(shipped_robots())}, or the path of a .urdf or .xml file."

AXES = {(1.0, 0.0, 0.0): "x", (0.0, 1.0, 0.0): "y", (0.0, 0.0, 1.0): "z"}
AXES |= {(-1.0, 0.0, 0.0): "-x", (0.0, -1.0, 0.0): "-y", (0.0, 0.0, -1.0): "-z"}

# float32 holds seven digits, and a robot's inertia matrix costs a few of them
SINGLE_PRECISION = 1e-3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 done, 1 a check failed, 2 a mistake in the request."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = _show_warning
    try:
        return _dispatch(arguments)
    except (PullbackError, OSError) as error:
        _print_error(f"[bold red]error:[/] {escape(str(error))}")
        return 2
    except KeyboardInterrupt:
        _print_error("[yellow]stopped[/]")
        return 130


def _dispatch(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        print(f"pullback {pullback.__version__}")
        return 0
    if arguments[:1] == ["run"]:
        return run(arguments[1:])
    app = tyro.extras.SubcommandApp()
    app.command(info)
    app.command(name="run")(_run_help)
    app.command(doctor)
    description = "Differentiable physics: robots that touch things, and parts that are printed."
    return app.cli(prog="pullback", description=description, args=arguments or ["--help"]) or 0


def _run_help() -> None:
    """Run a task; `pullback run` lists them."""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _print_error(f"[yellow]warning:[/] {escape(str(message))}")


def _print_error(text: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(text)


# -- run ---------------------------------------------------------------------------------------------------------


def run(arguments: list[str]) -> int:
    """Run the task named by the first argument with the options in the others; without a name, list the tasks."""
    console = Console(highlight=False)
    if not arguments or arguments[0] in ("-h", "--help"):
        console.print("usage: pullback run TASK [OPTIONS]     (pullback run TASK --help lists the options)\n")
        for task in map(find_task, task_names()):
            console.print(f"  [bold]{task.name:20s}[/] {escape(task.summary)}")
        return 0
    task = find_task(arguments[0])
    task.run(tyro.cli(task.options, prog=f"pullback run {task.name}", args=arguments[1:]))
    return 0


# -- info --------------------------------------------------------------------------------------------------------


def info(
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT", help=ROBOT_HELP)],
    /,
    base: Literal["fixed", "floating"] | None = None,
) -> int:
    """Show a robot: its links, joints and shapes, the order of its coordinates, and what is odd about it.

    Args:
        base: Whether the root link is bolted to the world or free to move; by default what the description says.
    """
    with warnings.catch_warnings():
        # they are listed as problems below
        warnings.simplefilter("ignore")
        model = compile_tree(read(robot), base)
    console = Console(highlight=False)
    total = sum(link.mass for link in model.links)
    moving = sum(link.mass for link, body in zip(model.links, model.link_body) if body != WORLD)
    console.print(
        f"[bold]{escape(model.tree.name)}[/]: {len(model.links)} links, {len(model.joint_names)} moving joints, "
        f"nq {model.nq}, nv {model.nv}, {model.base} base, mass {total:.5g} kg ({moving:.5g} kg of it moves)\n"
    )
    console.print(_drawing(model))
    console.print(_coordinates(model))
    problems = model.tree.problems
    console.print("problems found: none" if not problems else f"[yellow]problems found: {len(problems)}[/]")
    for problem in problems:
        console.print(f"  - {escape(problem)}")
    return 0


def _drawing(model: Model) -> Drawing:
    """Return the links as a tree, each behind its joint, with its mass and shapes."""
    nodes: list[Drawing] = []
    for link, joint, parent in zip(model.links, model.link_joint, model.link_parent):
        label = f"[bold]{escape(link.name)}[/]  {_link_text(link)}"
        if joint is not None:
            label = f"[cyan]{escape(joint.name)}[/] {_joint_text(joint)} → {label}"
        nodes.append(Drawing(label) if parent < 0 else nodes[parent].add(label))
    return nodes[0]


def _link_text(link: Link) -> str:
    texts = [f"{link.mass:.4g} kg"] if link.mass else []
    if len(link.shapes) == 1:
        texts.append(_shape_text(link.shapes[0]))
    elif link.shapes:
        counts = Counter(shape.type for shape in link.shapes)
        texts.append(" + ".join(f"{count} {kind}" for kind, count in counts.items()))
    return ", ".join(texts) or "[dim]no mass, no shape[/]"


def _shape_text(shape: Shape) -> str:
    name = shape.mesh.name if shape.mesh else shape.type
    return escape(f"{name} {'×'.join(f'{number:.3g}' for number in shape.size)}".strip())


def _joint_text(joint: Joint) -> str:
    text = joint.type
    if joint.type in MIMIC_JOINTS:
        axis = [round(number, 3) + 0.0 for number in joint.axis.tolist()]
        text += f" {AXES.get(tuple(axis)) or ' '.join(f'{number:g}' for number in axis)}"
    if joint.mimic is not None:
        text += f", follows {joint.mimic.joint} × {joint.mimic.multiplier:g}"
    return f"[dim]{escape(text)}[/]"


def _coordinates(model: Model) -> Table:
    """Return the table of coordinates in the order of q and qd, with their limits; empty columns are left out."""
    headers = ("joint", "q", "qd", "lower", "upper", "velocity", "effort", "damping", "friction", "armature")
    rows = []
    for body in model.independent_bodies():
        joint, (nq, nv) = body.joint, COORDINATES[body.kind]
        places = (_range(model.q_start[joint.name], nq), _range(model.v_start[joint.name], nv))
        limits = (joint.limits.lower, joint.limits.upper, joint.limits.velocity, joint.limits.effort)
        losses = (joint.damping, joint.friction, joint.armature)
        bounds = ("" if isinf(x) else f"{x:.4g}" for x in limits)
        rows.append((escape(joint.name), *places, *bounds, *(f"{x:.4g}" if x else "" for x in losses)))
    table = Table(title="coordinates, in the order of q and qd", title_justify="left", box=box.SIMPLE_HEAD)
    table.pad_edge, table.collapse_padding = False, True
    filled = [k for k in range(len(headers)) if any(row[k] for row in rows)]
    for k in filled:
        table.add_column(headers[k], justify="left" if k == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[k] for k in filled))
    return table


def _range(start: int, count: int) -> str:
    return str(start) if count == 1 else f"{start}-{start + count - 1}"


# -- doctor ------------------------------------------------------------------------------------------------------


def doctor() -> int:
    """Check this installation: versions, devices, and whether gradients are right; exit status 1 if one is not."""
    console = Console(highlight=False, soft_wrap=True)
    table = Table(title="versions", title_justify="left", show_header=False)
    table.add_row("pullback", pullback.__version__)
    table.add_row("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in ("torch", "warp-lang", "numpy", "trimesh"):
        table.add_row(package, _version(package) or "[red]missing[/]")
    for package, extra in OPTIONAL.items():
        table.add_row(package, _version(package) or f"[dim]not installed; pip install 'pullback\\[{extra}]'[/]")
    console.print(table)
    devices = ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
    for device in devices:
        name = f"{get_num_threads()} thread(s)" if device == "cpu" else torch.cuda.get_device_name(device)
        console.print(f"device {device}: {escape(name)}")
    console.print("\nchecking gradients; the first time on a machine, kernels are compiled (half a minute or so)")
    checks: list[tuple[str, Callable[[str], str]]] = [
        ("gradient of forward dynamics against differences, float64", _check_gradient),
        ("float32 against float64, values and gradients", _check_precision),
    ]
    passed = [_check(console, f"{device}: {name}", check, device) for device in devices for name, check in checks]
    console.print("[green]all is well[/]" if all(passed) else "[red]something is wrong: see above[/]")
    return 0 if all(passed) else 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _check(console: Console, name: str, check: Callable[[str], str], device: str) -> bool:
    """Run a check and print how it went; whatever it raises is a failure with that text."""
    start = time.perf_counter()
    try:
        verdict, passed = check(device), True
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        verdict, passed = lines[0], False
    mark = "[green]pass[/]" if passed else "[red]FAIL[/]"
    console.print(f"  {mark}  {escape(name)}: {escape(verdict)} ({time.perf_counter() - start:.1f} s)")
    return passed


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


if __name__ == "__main__":
    sys.exit(main())
