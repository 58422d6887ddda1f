"""Robots that nobody here has chosen, limp and under servos at default settings: part of `checks/reliability.py`.

A robot whose root link has mass floats, all others stand fixed; a ground lies where its lowest point is. Limp: no
control for 200 steps of 1 ms. Servos: kp 60, kd 2 hold the initial joint positions for 300 steps of 2 ms. Of the last
state of a run a fixed linear loss is differentiated by the initial velocity and the controls. After 50 steps the same
gradient is compared with the one that `pb.Exact` gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import pullback as pb
from checks.children import in_a_child
from checks.random_worlds import matrix
from checks.reliability_figures import Part
from checks.robots import installed_files
from pullback.description.load import read
from pullback.description.tree import Tree
from pullback.rigid.compile.geometry import hull_of_shape
from pullback.rigid.state import CONTACT_OVERFLOW, NAN, NOT_CONVERGED
from pullback.rigid.world.items import robot_q
from pullback.rigid.world.shapes import SHAPE_KINDS

RUNS = {"limp": (1e-3, 200), "servos": (2e-3, 300)}
"""Time step [s] and steps of each run."""
SERVO = pb.PositionServo(60.0, 2.0)
COMPARED = 50
"""Steps after which gradients are compared."""
AGREES = 1e-6
SHARE = 0.98
PATIENCE = 150
"""Seconds for a robot."""

Tensor = torch.Tensor


def build(tree: Tree, run: str, contact: Any = None) -> tuple[pb.Sim, Tensor]:
    """Return the simulation of a robot on a ground, and the controls (1, nu) that leave it alone or hold it."""
    robot = pb.load(tree, "floating" if has_heavy_root(tree) else None, dtype=torch.float64, repair=True)
    world = pb.World() if contact is None else pb.World(contact=contact)
    world.add(robot, name="robot", actuators=SERVO if run == "servos" else None, missing_meshes="ignore")
    world.add_ground(height=lowest_point(world))
    sim = world.compile(dt=RUNS[run][0], dtype=torch.float64)
    u = torch.zeros(1, sim.nu, dtype=torch.float64)
    if run == "servos":
        # mimic joints, which a world counts as coordinates and a robot does not, have no servos
        q, start = robot_q(world.items[0]), robot.model.q_start
        held = [q[start[name]] for name in world.items[0].actuators]
        u = torch.stack(held)[None] if held else u
    return sim, u


def has_heavy_root(tree: Tree) -> bool:
    """Return whether the root link of a URDF file has mass; MJCF says itself what floats."""
    children = {joint.child for joint in tree.joints}
    return tree.base is None and next(link for link in tree.links if link.name not in children).mass > 0.0


def lowest_point(world: pb.World) -> float:
    """Return the height [m] of the lowest point of the first robot, 0 where it has no shapes."""
    item = world.items[0]
    assert item.robot is not None
    poses = item.robot.compute_forward_kinematics_all_links(robot_q(item)[None])
    lowest = []
    for shape in item.shapes:
        kind = SHAPE_KINDS[shape.kind]
        p, quat = (x[0].detach().numpy() for x in poses[item.robot.model.links[shape.link].name])
        R = matrix(quat)
        if shape.kind in ("field", "plane"):
            continue
        hull = hull_of_shape(shape) if shape.kind == "mesh" else kind.hull() if kind.hull else None
        assert hull is not None
        extents = np.asarray(shape.size, dtype=np.float64) @ np.asarray(kind.extents)
        points = (hull.vertices * extents[:3]) @ np.asarray(shape.rotation).T + np.asarray(shape.position)
        lowest.append(float((p + points @ R.T)[:, 2].min() - extents[3]))
    return min(lowest, default=0.0)


def gradient(sim: pb.Sim, u: Tensor, steps: int) -> tuple[Tensor, dict[str, Any]]:
    """Return the gradient (n,) of a fixed loss by velocity and controls, and what became of the rollout."""
    state = sim.initial_state()
    qd = state.qd.clone().requires_grad_()
    controls = u.repeat(steps, 1, 1).requires_grad_()
    rolled = sim.rollout(pb.State(state.q, qd, state.impulses), controls)
    code = int(rolled.status.code[0])
    said = {
        "finite": bool(rolled.q.isfinite().all() and rolled.qd.isfinite().all()) and not code & NAN,
        "overflow": bool(code & CONTACT_OVERFLOW),
        "unconverged": bool(code & NOT_CONVERGED),
    }
    q, qd_end = rolled.q[-1], rolled.qd[-1]
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(sim.nq + sim.nv, dtype=torch.float64, generator=generator)
    loss = (torch.cat([q, qd_end], 1) * weights).sum()
    wanted = [qd, controls] if sim.nu else [qd]
    found = torch.autograd.grad(loss, wanted)
    return torch.cat([x.flatten() for x in found]), said


def examine(tree: Tree, run: str) -> dict[str, Any]:
    """Return what a robot did: finite, gradient finite, error against `pb.Exact`."""
    sim, u = build(tree, run)
    if not sim.nv:
        return {"still": True}
    row: dict[str, Any] = {"still": False}
    try:
        g, said = gradient(sim, u, RUNS[run][1])
        row |= said | {"gradient": bool(g.isfinite().all()), "size": float(g.abs().max())}
    except pb.GradientError:
        row |= {"finite": True, "gradient": False}
    except pb.PullbackError as error:
        return row | {"finite": False, "gradient": False, "error": None, "said": str(error)[:200]}
    row["error"] = None
    try:
        ours, said = gradient(sim, u, COMPARED)
        row["unconverged"] = said["unconverged"]
        exact, said = gradient(build(tree, run, pb.Exact())[0], u, COMPARED)
        row["exact unconverged"] = said["unconverged"]
        row["error"] = float((ours - exact).abs().max() / exact.abs().max().clamp(min=1e-300))
    except pb.PullbackError as error:
        row["said"] = str(error)[:200]
    return row


def load_kernels() -> None:
    """Load what the robots' simulations need, so that each child finds it loaded."""
    for contact in (pb.PGS(), pb.Exact()):
        for kind in ("box", "cylinder"):
            world = pb.World(contact=contact)
            world.add(pb.load("pendulum1", dtype=torch.float64), actuators=SERVO)
            world.add_ground(height=-5.0)
            size: dict[str, Any] = {"size": (1.0, 1.0, 1.0)} if kind == "box" else {"radius": 1.0, "length": 1.0}
            getattr(world, f"add_{kind}")("body", mass=1.0, **size)
            sim = world.compile(dt=1e-3, dtype=torch.float64)
            gradient(sim, torch.zeros(1, sim.nu, dtype=torch.float64), 2)


def examine_all(file: Path) -> dict[str, Any]:
    """Return what a robot did in each run."""
    tree = read(file, repair=True)
    return {run: examine(tree, run) for run in RUNS}


def measure_robots(*, every: int, progress: Any) -> Part:
    """Run one robot of so many, and return the figures."""
    files = installed_files()[::every]
    part, found = Part(), {}
    load_kernels()
    for name, file in progress(files, "robots"):
        found[name] = in_a_child(lambda file=file: examine_all(file), PATIENCE)
    part.notes += [
        f"left out: {name}: {row['text'][:160]}" for name, row in found.items() if row["outcome"] == "refused"
    ]
    for run, (dt, steps) in RUNS.items():
        rows: dict[str, dict[str, Any]] = {}
        for name, child in found.items():
            if child["outcome"] == "read" and not child["value"][run]["still"]:
                rows[name] = child["value"][run]
            elif child["outcome"] not in ("read", "refused"):
                rows[name] = {"finite": False, "gradient": False, "error": None, "said": child["outcome"]}
        describe_run(part, f"{run} at {1e3 * dt:g} ms, {steps} steps", rows)
    return part


def describe_run(part: Part, title: str, rows: dict[str, dict[str, Any]]) -> None:
    """Add the figures of a run, and who fell short."""
    count = len(rows)
    bad = [name for name, row in rows.items() if not (row["finite"] and row["gradient"])]
    part.add(f"robots, {title}: states and gradients finite", "all", f"{count - len(bad)} of {count}", not bad)
    over = [name for name, row in rows.items() if row.get("overflow")]
    part.add(f"robots, {title}: more contacts than room", "none", f"{len(over)} of {count}", not over)
    compared = {name: row for name, row in rows.items() if row.get("error") is not None and name not in bad}
    off = [name for name, row in compared.items() if not row["error"] <= AGREES]
    far = sum(not row["error"] <= 0.1 for row in compared.values())
    agree, wanted = count - len(bad) - len(off), count - len(bad)
    agree -= wanted - len(compared)
    part.add(
        f"robots, {title}: gradient after {COMPARED} steps within {AGREES:g} of Exact's",
        f"{SHARE:.0%}",
        f"{agree} of {count}; {far} off by more than 10 %",
        agree >= SHARE * count,
    )
    for name in bad:
        part.notes.append(f"{title}: {name}: not finite{'; ' + rows[name]['said'] if rows[name].get('said') else ''}")
    for name in off:
        row = compared[name]
        whose = " (Exact unconverged)" if row.get("exact unconverged") else ""
        part.notes.append(f"{title}: {name}: gradient off by {row['error']:.1e} of its largest entry{whose}")
    for name in [name for name, row in rows.items() if row.get("error") is None and name not in bad]:
        part.notes.append(f"{title}: {name}: not compared; {rows[name].get('said', '')}")
