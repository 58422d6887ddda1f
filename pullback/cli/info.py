"""`pullback info`: a robot's links, joints and shapes, the order of its coordinates, and what is odd about it."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from math import isfinite, isinf
from typing import Annotated, Any, Literal

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree as Drawing

from pullback.description.check import MIMIC_JOINTS
from pullback.description.compile import COORDINATES, WORLD, Model, compile_tree
from pullback.description.load import read, shipped_robots
from pullback.description.tree import Joint, Link, Shape

ROBOT_HELP = f"One of {', '.join(shipped_robots())}, or the path of a .urdf or .xml file."

AXES = {(1.0, 0.0, 0.0): "x", (0.0, 1.0, 0.0): "y", (0.0, 0.0, 1.0): "z"}
AXES |= {(-1.0, 0.0, 0.0): "-x", (0.0, -1.0, 0.0): "-y", (0.0, 0.0, -1.0): "-z"}


def info(
    robot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT", help=ROBOT_HELP)],
    /,
    base: Literal["fixed", "floating"] | None = None,
    json: bool = False,
) -> int:
    """Show a robot: its links, joints and shapes, the order of its coordinates, and what is odd about it.

    Args:
        base: Whether the root link is bolted to the world or free to move; by default what the description says.
        json: Print a JSON object instead of tables.
    """
    with warnings.catch_warnings():
        # they are listed as problems below
        warnings.simplefilter("ignore")
        model = compile_tree(read(robot), base)
    if json:
        print(_as_json(model))
        return 0
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


def _as_json(model: Model) -> str:
    """Return the robot as a JSON object; lengths [m], masses [kg], bounds that are infinite are null."""
    joints = []
    for body in model.independent_bodies():
        joint, limits = body.joint, body.joint.limits
        bounds = {name: getattr(limits, name) for name in ("lower", "upper", "velocity", "effort")}
        joints.append(
            {
                "name": joint.name,
                "type": joint.type,
                "parent": joint.parent,
                "child": joint.child,
                "q": [model.q_start[joint.name], COORDINATES[body.kind][0]],
                "qd": [model.v_start[joint.name], COORDINATES[body.kind][1]],
                **{name: value if isfinite(value) else None for name, value in bounds.items()},
                **{name: getattr(joint, name) for name in ("damping", "friction", "armature")},
            }
        )
    links: list[dict[str, Any]] = [
        {"name": link.name, "mass": link.mass, "shapes": [shape.type for shape in link.shapes]} for link in model.links
    ]
    found = {"name": model.tree.name, "base": model.base, "nq": model.nq, "nv": model.nv}
    found |= {"mass": sum(link.mass for link in model.links), "joints": joints, "links": links}
    return json.dumps(found | {"problems": list(model.tree.problems)}, indent=2)
