"""What kernels are told, and a step's contact problem as a whole and as a matrix (docs/derivations/contact_step.md)."""

from typing import Any

import warp as wp

from pullback.rigid.compile.layout import PARAMETERS, SCRATCH
from pullback.rigid.compile.scene import CONTACT_ROWS, PAIR, Scene
from pullback.rigid.solvers.problem import Problem
from pullback.rigid.solvers.rows_kernels import write_products
from pullback.rigid.step.constraint_kernels import (
    BIAS,
    BLOCK_ROWS,
    FRICTION,
    LOWER,
    SCALAR_BIAS,
    SCALAR_ROWS,
    UPPER,
    ContactSettings,
    add_rows,
    add_scalar_row,
    own_diagonal,
    row_dots,
    scalar_dot,
    softness,
)
from pullback.spatial.arrays import load3, rows_from, store

ParameterRows = PARAMETERS.struct
ScratchRows = SCRATCH.struct


@wp.struct
class Job:
    """Everything that is the same for all worlds: the scene, how contact is resolved, and where things stand."""

    scene: Scene
    settings: ContactSettings
    parameters: ParameterRows
    scratch: ScratchRows
    steps: int
    substeps: int
    stages: int  # of an explicit step without contact: 1 or 4; else 0
    has_trees: int  # 1: bodies hang on others, and the step keeps the energy of those that turn fast
    nkept_part: int  # parts of a split step, from the first on, that its adjoint keeps as they were solved
    kept_parts: int  # the row at which scratch of the second part starts; each has that of a step
    reports: int  # 1: a split step adds up the forces of its contacts
    nstate: int  # rows of a state
    nimpulse: int  # rows of impulses in a state: none unless the solver starts warm
    skipped: int  # 1: the initial state is not among those returned
    nkept: int
    kept: wp.array(dtype=wp.int32)
    nactions: int
    actions: wp.array(dtype=wp.int32)
    group: int  # the row at which that of scratch starts which only groups of worlds need (step/group_kernels.py)
    rests: wp.array(dtype=wp.int32)  # steps that such groups still do without lanes
    stop: wp.array(dtype=wp.int32)  # one number that Ctrl-C makes 1; without data on a GPU and in short launches


@wp.func
def is_stopped(job: Job):
    """Return whether the user has interrupted the launch."""
    stopped = bool(False)
    if job.stop:
        stopped = job.stop[0] != 0
    return stopped


@wp.struct
class Motion:
    """The first rows, in scratch, of a state, its acceleration, and their cotangents."""

    q: int
    qd: int
    acceleration: int
    adj_q: int
    adj_qd: int
    adj_force: int  # negated by `forces_vjp`


@wp.func
def problem_of(job: Job, nc: int, ns: int):
    """Return where the step's contact problem and its adjoint stand in scratch."""
    place = job.scratch
    problem = Problem()
    problem.nc = nc
    problem.ns = ns
    problem.cone = job.settings.cone
    problem.A = place.A
    problem.b = place.b
    problem.mu = place.mu
    problem.lower = place.lower
    problem.upper = place.upper
    problem.lam = place.lam
    problem.residual = place.residual
    problem.work = place.work
    problem.start = place.start_lam
    problem.adj_start = place.adj_start_lam
    problem.adj_lam = place.adj_lam
    problem.multiplier = place.multiplier
    problem.adj_A = place.adj_A
    problem.adj_mu = place.adj_mu
    problem.adj_lower = place.adj_lower
    problem.adj_upper = place.adj_upper
    return problem


@wp.func
def rows_of(
    job: Job,
    nc: int,
    ns: int,
    x: wp.array2d(dtype=Any),
    w: int,
    scratch: wp.array2d(dtype=Any),
    out: wp.array2d(dtype=Any),
):
    """Write Y x for all rows."""
    place = job.scratch
    for c in range(nc):
        store(
            out, 3 * c, w, row_dots(job.scene, rows_from(scratch, place.contacts), c, rows_from(scratch, place.Y), x, w)
        )
    for k in range(ns):
        out[3 * nc + k, w] = scalar_dot(
            job.scene, rows_from(scratch, place.scalars), k, rows_from(scratch, place.Y_scalar), x, w
        )


@wp.func
def add_all_rows(
    job: Job,
    nc: int,
    ns: int,
    weights: wp.array2d(dtype=Any),
    factor: Any,
    w: int,
    scratch: wp.array2d(dtype=Any),
    out: wp.array2d(dtype=Any),
):
    """Add factor Y^T weights to `out`."""
    place = job.scratch
    for c in range(nc):
        add_rows(
            job.scene, rows_from(scratch, place.contacts), c, rows_from(scratch, place.Y),
            factor * load3(weights, 3 * c, w), w, out,
        )  # fmt: skip
    for k in range(ns):
        add_scalar_row(
            job.scene, rows_from(scratch, place.scalars), k, rows_from(scratch, place.Y_scalar),
            factor * weights[3 * nc + k, w], w, out,
        )  # fmt: skip


@wp.func
def write_problem(job: Job, nc: int, ns: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Write the contact problem as a matrix: A, b, friction coefficients and bounds."""
    scene = job.scene
    place = job.scratch
    nv = scene.topology.nv
    contacts = rows_from(scratch, place.contacts)
    blocks = rows_from(scratch, place.blocks)
    scalars = rows_from(scratch, place.scalars)
    Y = rows_from(scratch, place.Y)
    Y_scalar = rows_from(scratch, place.Y_scalar)
    s = rows_from(scratch, place.s)
    A = rows_from(scratch, place.A)
    b = rows_from(scratch, place.b)
    mu = rows_from(scratch, place.mu)
    lower = rows_from(scratch, place.lower)
    upper = rows_from(scratch, place.upper)
    columns = rows_from(scratch, place.columns)
    m = 3 * nc + ns
    zero = scratch.dtype(0.0)
    cfm = softness(job.settings, scratch[place.span, w])
    for c in range(nc):
        free = row_dots(scene, contacts, c, Y, s, w)
        store(b, 3 * c, w, wp.vector(free[0] + blocks[c * BLOCK_ROWS + BIAS, w], free[1], free[2]))
        mu[c, w] = blocks[c * BLOCK_ROWS + FRICTION, w]
    for k in range(ns):
        b[3 * nc + k, w] = scalar_dot(scene, scalars, k, Y_scalar, s, w) + scalars[k * SCALAR_ROWS + SCALAR_BIAS, w]
        lower[k, w] = scalars[k * SCALAR_ROWS + LOWER, w]
        upper[k, w] = scalars[k * SCALAR_ROWS + UPPER, w]
    # A = Y Y^T: three columns of Y^T at once, then one by one
    for r in range(3 * nv):
        columns[r, w] = zero
    for c in range(nc):
        pair = int(contacts[c * CONTACT_ROWS + PAIR, w])
        start = scene.pair_dof_start[pair]
        end = scene.pair_dof_start[pair + 1]
        for k in range(start, end):
            v = scene.pair_dof[k]
            store(columns, 3 * v, w, load3(Y, 3 * (c * nv + v), w))
        for d in range(c, nc):
            other = int(contacts[d * CONTACT_ROWS + PAIR, w])
            first = scene.pair_dof_start[other]
            last = scene.pair_dof_start[other + 1]
            # a pair has dofs, listed last first: where two pairs' ranges do not meet, nothing is in common
            if scene.pair_dof[first] < scene.pair_dof[end - 1] or scene.pair_dof[last - 1] > scene.pair_dof[start]:
                last = first
            write_products(scene.pair_dof, first, last, Y, 3 * d * nv, columns, m, w, A, 3 * d, 3 * c)
        # only what was written: of many bodies few move a contact
        for k in range(start, end):
            store(columns, 3 * scene.pair_dof[k], w, wp.vector(zero, zero, zero))
    for k in range(ns):
        j = 3 * nc + k
        for v in range(nv):
            columns[v, w] = zero
        add_scalar_row(scene, scalars, k, Y_scalar, scratch.dtype(1.0), w, columns)
        for c in range(nc):
            dots = row_dots(scene, contacts, c, Y, columns, w)
            store(A, j * m + 3 * c, w, dots)
            for r in range(3):
                A[(3 * c + r) * m + j, w] = dots[r]
        for l in range(k, ns):
            value = scalar_dot(scene, scalars, l, Y_scalar, columns, w)
            A[(3 * nc + l) * m + j, w] = value
            A[j * m + 3 * nc + l, w] = value
    for j in range(m):
        A[j * m + j, w] = own_diagonal(A[j * m + j, w] + cfm)
