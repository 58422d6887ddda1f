"""Every pair of shapes against an oracle and against differences: `python -m checks.pairs` writes docs/pairs.md."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

import pullback as pb
from checks.pair_oracles import PRIMITIVES, Poses, coal_distances, dense_distances, distances, oracle_name
from checks.pair_scene import SHAPES, Pair

MARGIN = 0.02
"""Closer than this [m] shapes are in contact."""
DEEPEST, FURTHEST = -0.01, 0.018
"""Distances [m] that shapes are placed at."""
POSES = 300
ASKED = 100
"""Poses whose contacts are differentiated."""
STEPS = (1e-6, 1e-7, 1e-8)
"""Of differences, the best of which counts: near corners that nearly touch normals turn fast."""
CLEAR = 1e-3
"""Closer to zero [m] an oracle's direction is not one."""
PAGE = Path(__file__).parent.parent / "docs" / "pairs.md"

ABSENT = {
    ("plane", "plane"): "both are the world, and nothing moves them",
    ("heights", "plane"): "both are ground; a height field has no end, hence no samples, and cannot be a free body",
    ("heights", "heights"): "as above",
}


@dataclass
class Row:
    """What was found for a pair."""

    names: tuple[str, str]
    room: int
    gap: tuple[float, float]
    """The error [m] that 99 of 100 stay below, and the worst."""
    normal: tuple[float, float]
    missed: tuple[int, int]
    """Poses without a contact, apart and overlapping."""
    derivatives: int
    gradient: float
    changed: int
    """Contacts that were not differentiated."""


def rotations(rng: np.random.Generator, n: int) -> np.ndarray:
    """Return n random rotation matrices."""
    Q, R = np.linalg.qr(rng.normal(size=(n, 3, 3)))
    Q = Q * np.sign(np.einsum("nii->ni", R))[:, None]
    return Q * np.linalg.det(Q)[:, None, None]


def place(a: str, b: str, n: int, rng: np.random.Generator) -> Poses:
    """Return random poses in which the shapes are as far apart, or overlap as much, as is drawn."""
    target = rng.uniform(DEEPEST, FURTHEST, n)
    R_a, R_b = rotations(rng, n), rotations(rng, n)
    if b in ("plane", "heights"):
        R_b, p_b = np.broadcast_to(np.eye(3), (n, 3, 3)), np.zeros((n, 3))
        p_a = np.column_stack([rng.uniform(-0.5, 0.5, (n, 2)), np.full(n, 0.5)])
    else:
        ahead = rng.normal(size=(n, 3))
        p_b = rng.normal(size=(n, 3))
        p_a = p_b + ahead / np.linalg.norm(ahead, axis=1, keepdims=True)
    poses = [R_a, p_a, R_b, p_b]
    # towards each other along the line on which they are nearest; over hills straight down, again and again
    for _ in range(4 if b == "heights" else 1):
        distance, n_ba = (dense_distances if b == "heights" else coal_distances)(a, b, poses)
        move = (target - distance)[:, None] * n_ba
        if b == "heights":
            move = np.array([0.0, 0.0, 1.0]) * ((target - distance) / n_ba[:, 2])[:, None]
        poses[1] = poses[1] + move
    return poses


def measure(a: str, b: str) -> Row:
    """Compare the contacts of a pair with its oracle, and their gradients with differences."""
    rng = np.random.default_rng(SHAPES.index(a) * len(SHAPES) + SHAPES.index(b))
    pair = Pair(a, b)
    poses = place(a, b, POSES, rng)
    counts, contacts = pair.find(poses, MARGIN)
    is_one = np.arange(pair.room) < counts[:, None]
    best = contacts[np.arange(POSES), np.where(is_one, contacts[:, :, 3], np.inf).argmin(1)]
    expected, direction = distances(a, b, poses, [rows[:count, 7:] for rows, count in zip(contacts, counts)])
    found = counts > 0
    missed = ~found & (expected < MARGIN - 1e-3)
    gap = np.abs(best[:, 3] - expected)[found]
    clear = found & (np.abs(expected) > CLEAR)
    # where a field is asked both ways the second pair is the other way round
    towards_a = np.where(np.nan_to_num(best[:, :1]) == 1.0, -1.0, 1.0)
    normal = np.linalg.norm(towards_a * best[:, 7:] - direction, axis=1)[clear]
    derivatives, gradient, changed = differentiate(pair, [x[:ASKED] for x in poses], rng)
    overlaps = int((missed & (expected < -1e-4)).sum())
    return Row(
        names=(a, b),
        room=pair.room,
        gap=(float(np.quantile(gap, 0.99)), float(gap.max())),
        normal=(float(np.quantile(normal, 0.99)), float(normal.max())),
        missed=(int(missed.sum()) - overlaps, overlaps),
        derivatives=derivatives,
        gradient=gradient,
        changed=changed,
    )


def moved(poses: Poses, body: int, axis: int, step: float) -> Poses:
    """Return poses with one body turned about (axis < 3) or shifted along an axis of the world."""
    poses = [x.copy() for x in poses]
    ahead = np.eye(3)[axis % 3]
    if axis >= 3:
        poses[2 * body + 1] += step * ahead
        return poses
    K = np.cross(np.eye(3), ahead)
    turn = np.eye(3) + np.sin(step) * K + (1.0 - np.cos(step)) * K @ K
    poses[2 * body], poses[2 * body + 1] = turn @ poses[2 * body], poses[2 * body + 1] @ turn.T
    return poses


def differentiate(pair: Pair, poses: Poses, rng: np.random.Generator) -> tuple[int, float, int]:
    """Return how many derivatives were compared, the worst error, and how many contacts changed features."""
    counts, contacts = pair.find(poses, MARGIN)
    compared, worst, changed = 0, 0.0, 0
    for k in range(min(int(counts.max()), 2)):
        # where a smooth shape is in a crease of a field nothing is differentiable
        has = (counts > k) & ~(pair.is_refined & (contacts[:, k, 1] >= 0.0))
        at, chosen = [x[has] for x in poses], contacts[has, k]
        adj = rng.normal(size=chosen.shape)
        adj[:, :3] = 0.0

        def value(at: Poses, more: np.ndarray, chosen=chosen, adj=adj) -> np.ndarray:
            found, after = pair.find(at, MARGIN + 1e-3, pair.shapes + more)
            same = (after[:, :, :3] == chosen[:, None, :3]).all(2) & (np.arange(pair.room) < found[:, None])
            values = (np.take_along_axis(after, same.argmax(1)[:, None, None], 1)[:, 0] * adj)[:, 3:].sum(1)
            return np.where(same.any(1), values, np.nan)

        wrench, adj_shapes = pair.pull_back(at, chosen, adj)
        still = np.zeros_like(pair.shapes)
        ours, theirs = [], []
        for body, axis in product(range(1 + pair.is_free), range(6)):
            ours.append(wrench[:, 6 * body + axis])
            ends = [[value(moved(at, body, axis, sign * h), still) for sign in (1, -1)] for h in STEPS]
            theirs.append([(ahead - behind) / (2.0 * h) for (ahead, behind), h in zip(ends, STEPS)])
        for change in pair.size_changes():
            ours.append(adj_shapes @ change)
            ends = [[value(at, sign * h * change[None]) for sign in (1, -1)] for h in STEPS]
            theirs.append([(ahead - behind) / (2.0 * h) for (ahead, behind), h in zip(ends, STEPS)])
        ours, theirs = np.array(ours), np.array(theirs)
        kept = np.isfinite(theirs).all((0, 1))
        off = np.abs(ours[:, None] - theirs)[..., kept].min(1)
        error = off / (1.0 + np.abs(ours).max(0)[kept])
        compared, changed = compared + error.size, changed + int((~kept).sum())
        worst = max(worst, float(error.max(initial=0.0)))
    return compared, worst, changed


# -- the page --------------------------------------------------------------------------------------------------------


def algorithm(a: str, b: str) -> str:
    """Return how the contacts of a pair are found."""
    if "field" in (a, b) or b == "heights":
        both = a in ("box", "field") and b == "field"
        if a == "ellipsoid":
            return f"Newton on the {b}'s field, from samples"
        return "samples of each, distance from the other" if both else f"samples of the {a}, distance from the {b}"
    if a == "ellipsoid":
        return "support point" if b == "plane" else "Newton on support functions"
    if a in PRIMITIVES and b in PRIMITIVES:
        if b == "plane":
            return "vertices"
        return {"sphere": "nearest feature", "capsule": "features of segments"}.get(a, "separating axes, clipping")
    if b == "plane":
        return "vertices, rim or side" if a == "cylinder" else "vertices"
    if (a, b) == ("sphere", "cylinder"):
        return "nearest feature"
    return "GJK, EPA, clipping" + ("; rims in closed form" if "cylinder" in (a, b) else "")


def page(rows: list[Row]) -> str:
    """Write the results as a page of the docs."""
    lines = [
        "# Pairs of shapes",
        "",
        f"Written by `python -m checks.pairs`, version {pb.__version__}; do not edit.",
        "",
        f"Each pair in {POSES} random poses, from {-1e3 * DEEPEST:g} mm of overlap to {1e3 * FURTHEST:g} mm apart, the",
        f"margin being {1e3 * MARGIN:g} mm, shapes of 0.1 to 0.3 m, float64. **Gap** and **normal** are the deepest",
        "contact's less what the oracle says: 99 of 100 poses are below the first figure, all below the second.",
        "**Missed** are poses in which shapes are nearer than the margin by a millimetre or more and have no contact:",
        "apart, and overlapping. **Gradient** is the worst error of the adjoint of gap, point and normal by both poses",
        "and all sizes against central differences, relative to 1 + the largest derivative, in brackets how many were",
        "compared; contacts whose features change on the way have no derivative and are left out.",
        "",
        "| pair | found by | contacts at most | oracle | gap [m] | normal | missed | gradient |",
        "|---" * 8 + "|",
    ]
    for row in rows:
        a, b = row.names
        lines.append(
            f"| {a}, {b} | {algorithm(a, b)} | {row.room} | {oracle_name(a, b)} | {row.gap[0]:.0e}, {row.gap[1]:.0e} "
            f"| {row.normal[0]:.0e}, {row.normal[1]:.0e} | {row.missed[0]}, {row.missed[1]} "
            f"| {row.gradient:.0e} ({row.derivatives:,}) |"
        )
    lines += [
        "",
        "Oracles: `mj_geomDistance` of MuJoCo; coal's GJK and EPA to 1e-10; the definition, which is the largest",
        "separation over all directions, by search; 20,000 points of the shape, and the distance of the nearest from",
        "the analytic hills by Newton's steps. The field is a box by its signed distance, so what others say of boxes",
        "is right for it too.",
        "",
        "## Why they differ",
        "",
        "- Samples see what is at a sample: a gap against a field is too large, never too small, by what lies between",
        "  two of them. A sphere has one, its centre, and no such error; a capsule has 17 on its axis. Edges of boxes,",
        "  cylinders and meshes are searched, and apart they meet those of a field to fractions of a millimetre;",
        "  overlapping, the depth of a sample is that below the nearest face, less than the way which parts two edges.",
        "  Boxes and fields are asked both ways. Meshes and cylinders have no field: corners of a field on their faces",
        "  come late. Edges of a field's own surface are not known.",
        "- Between cylinders and what has edges a prism of 32 sides decides which features are nearest, and stands for",
        "  one of two rims: up to 0.5 % of the radius, 0.4 mm here.",
        "- Where two edges are nearest and a face is nearly so, its contacts come along, and may be deeper than theirs",
        "  by a hundredth of the size, 2 mm here. Boxes prefer a face to edges that gain little.",
        "- Two boxes apart: a vertex or an edge beside the other's face has a contact only once it is over it.",
        "- An ellipsoid's contact with a field is where the field is least on it. Overlapping, that may be a crease",
        "  inside a sharp field: its depth is then that below the nearest face, as above, and such contacts are left",
        "  out of the gradients.",
        "- Over hills distances are φ / |∇φ|, right to first order.",
        "- Where two faces are equally deep, oracles may choose the other one: gaps agree and normals do not.",
        "",
        "## Pairs that do not exist",
        "",
        "| pair | why |",
        "|---|---|",
        *[f"| {a}, {b} | {why} |" for (a, b), why in ABSENT.items()],
        "| field on mesh, field on cylinder | one way only: samples of the mesh or cylinder, field of the other |",
        "| two shapes of the world, of a link, or of a link and its parent | nothing moves them apart |",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure all pairs, or those whose names hold the argument, and write the page."""
    console = Console()
    pairs = [pair for pair in combinations_with_replacement(SHAPES, 2) if pair not in ABSENT]
    chosen = [(a, b) for a, b in pairs if len(sys.argv) < 2 or sys.argv[1] in f"{a}-{b}"]
    text = page([measure(a, b) for a, b in track(chosen, "pairs", console=console)])
    if len(sys.argv) < 2:
        PAGE.write_text(text)
        console.print(f"written: {PAGE}")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
