"""Where things stand in the packed arrays of a step: its parameters, and the scratch of a world."""

from __future__ import annotations

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import (
    ACTUATOR_ROWS,
    CANDIDATE_ROWS,
    CONTACT_ROWS,
    LOOP_ROWS,
    MATERIAL_ROWS,
    MAX_CANDIDATES,
    PAIR_ROWS,
    POSE_ROWS,
    SHAPE_ROWS,
)
from pullback.rigid.solvers.kink_kernels import side_rows
from pullback.rigid.solvers.solver import Solver
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, SCALAR_ROWS
from pullback.rigid.step.dynamics_kernels import DYNAMICS_ROWS
from pullback.robot.crba_kernels import VJP_ROWS as PRODUCT_ROWS
from pullback.robot.rnea_kernels import VJP_ROWS
from pullback.robot.topology import DOF_ROWS, INERTIA_ROWS, PLACEMENT_ROWS


@wp.struct
class ParameterRows:
    """The first row of each group of parameters."""

    gravity: int
    placements: int
    inertias: int
    dofs: int
    friction: int
    actuators: int
    shapes: int
    fields: int
    pairs: int
    limits: int
    loops: int
    material: int  # stiffness and damping of compliant contact


@wp.struct
class ScratchRows:
    """The first row of each array of a step's scratch."""

    q: int
    qd: int
    impulses: int
    poses: int
    dynamics: int
    L: int
    force: int
    start: int
    s: int
    free: int
    contacts: int
    candidates: int
    hulls: int
    blocks: int
    Y: int
    scalars: int
    Y_scalar: int
    loops: int
    lam: int
    warm: int
    stages: int
    material: int
    # the adjoint's
    adj_q: int
    adj_qd: int
    adj_impulses: int
    next_adj_q: int
    next_adj_qd: int
    next_adj_impulses: int
    start_lam: int
    moved: int
    gamma: int
    nu: int
    columns: int  # of Y^T, three of them
    zeta: int
    shift: int
    rates: int
    acceleration: int
    A: int
    adj_A: int
    b: int
    mu: int
    lower: int
    upper: int
    adj_lam: int
    multiplier: int
    sides: int
    alpha: int
    kept_lam: int
    adj_mu: int
    adj_lower: int
    adj_upper: int
    adj_contacts: int
    adj_loops: int
    motion: int
    wrench: int
    recursion: int
    stage_adj: int
    solver: int
    slots: int


def parameter_rows(
    nbody: int, nv: int, nu: int, nshape: int, nfield: int, npair: int, nloop: int
) -> tuple[Any, dict[str, int]]:
    """Return where each group of parameters starts, and how many rows each has, in order."""
    sizes = {
        "gravity": 3,
        "placements": int(PLACEMENT_ROWS) * nbody,
        "inertias": int(INERTIA_ROWS) * nbody,
        "dofs": int(DOF_ROWS) * nv,
        "friction": nv,
        "actuators": int(ACTUATOR_ROWS) * nu,
        "shapes": int(SHAPE_ROWS) * nshape,
        "fields": nfield,
        "pairs": int(PAIR_ROWS) * npair,
        "limits": 2 * nv,
        "loops": int(LOOP_ROWS) * nloop,
        "material": int(MATERIAL_ROWS),
    }
    rows = ParameterRows()
    _place(rows, sizes)
    return rows, sizes


def scratch_rows(
    *,
    nbody: int,
    nq: int,
    nv: int,
    impulses: int,
    contacts: int,
    scalars: int,
    loops: int,
    solver: Solver,
    double: bool,
    hulls: bool,
    slots: int,
    stages: int,
) -> tuple[Any, int, int]:
    """Return where each array of scratch starts, how many rows a step needs, and how many its adjoint."""
    m = 3 * contacts + scalars
    sizes = {
        "q": nq,
        "qd": nv,
        "impulses": impulses,
        "poses": int(POSE_ROWS) * nbody,
        "dynamics": int(DYNAMICS_ROWS) * nbody,
        "L": nv * nv * max(1, stages),
        "force": nv,
        "start": nv,
        "s": nv,
        "free": nv,
        "contacts": int(CONTACT_ROWS) * contacts,
        "candidates": int(CANDIDATE_ROWS) * int(MAX_CANDIDATES),
        "hulls": _hull_rows() if hulls else 0,
        "blocks": int(BLOCK_ROWS) * contacts,
        "Y": 3 * nv * contacts,
        "scalars": int(SCALAR_ROWS) * scalars,
        "Y_scalar": nv * scalars,
        "loops": int(LOOP_ROWS) * loops,
        "lam": m,
        "warm": 1,
        "stages": (stages + 1) * (nq + 2 * nv) if stages else 0,
        "material": int(MATERIAL_ROWS),
    }
    problem = {
        "A": m * m,
        "b": m,
        "mu": contacts,
        "lower": scalars,
        "upper": scalars,
        "alpha": m,
        "kept_lam": m,
        "solver": solver.load_kernels().work_rows(m, solver.iterations),
        "nu": nv,
        "columns": 3 * nv,
    }
    # a step that may sweep over the problem as a matrix, or end in Newton's, needs that
    forward = sum((sizes | problem).values()) if solver.finishing_steps(double=double) else sum(sizes.values())
    sizes |= problem
    sizes |= {
        "adj_q": nq,
        "adj_qd": nv,
        "adj_impulses": impulses,
        "next_adj_q": nq,
        "next_adj_qd": nv,
        "next_adj_impulses": impulses,
        "start_lam": m,
        "moved": nv,
        "gamma": nv,
        "zeta": nv,
        "shift": nv,
        "rates": nv,
        "acceleration": nv,
        "adj_A": m * m,
        "adj_lam": m,
        "multiplier": m,
        "sides": side_rows(m) if solver.kinks == "downhill" else 0,
        "adj_mu": contacts,
        "adj_lower": scalars,
        "adj_upper": scalars,
        "adj_contacts": 7 * contacts,
        "adj_loops": int(LOOP_ROWS) * loops,
        "motion": 12 * nbody,
        "wrench": 6 * nbody,
        "recursion": max(int(VJP_ROWS), int(PRODUCT_ROWS)) * nbody,
        "stage_adj": (stages + 2) * (nq + nv) if stages else 0,
        "slots": slots * (nq + nv + impulses),
    }
    rows = ScratchRows()
    total = _place(rows, sizes)
    return rows, forward, total


def _place(rows: object, sizes: dict[str, int]) -> int:
    total = 0
    for name, size in sizes.items():
        setattr(rows, name, total)
        total += size
    return total


# imported lazily: 0.2 s


def _hull_rows() -> int:
    from pullback.rigid.collide.convex.convex_kernels import CONVEX_ROWS

    return int(CONVEX_ROWS)
