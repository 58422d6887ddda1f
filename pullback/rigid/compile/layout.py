"""Where things stand in the packed arrays of a step: its parameters, and the scratch of a world.

Each array is declared here once. Names are those of docs/derivations/contact_step.md; m = 3 contacts + scalar rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.core.rows import Group, Layout, Rows
from pullback.rigid.compile.scene import (
    ACTUATOR_ROWS,
    ADJ_CONTACT_ROWS,
    CANDIDATE_ROWS,
    COMPENSATION_ROWS,
    CONTACT_ROWS,
    COUPLING_ROWS,
    EVENT_NUMBERS,
    LOOP_ROWS,
    MATERIAL_ROWS,
    MAX_CANDIDATES,
    MAX_EVENTS,
    MOTION_ROWS,
    PAIR_ROWS,
    POSE_ROWS,
    RECORD_ROWS,
    SHAPE_ROWS,
    TREE_ROWS,
)
from pullback.rigid.solvers.kink_kernels import side_rows
from pullback.rigid.solvers.solver import Solver
from pullback.rigid.step.constraint_kernels import BLOCK_ROWS, SCALAR_ROWS
from pullback.rigid.step.dynamics_kernels import DYNAMICS_ROWS
from pullback.robot.crba_kernels import VJP_ROWS as PRODUCT_ROWS
from pullback.robot.rnea_kernels import VJP_ROWS
from pullback.robot.topology import DOF_ROWS, INERTIA_ROWS, PLACEMENT_ROWS


@dataclass(frozen=True)
class Sizes:
    """How many there are of what a world's arrays are made of."""

    nbody: int
    nq: int
    nv: int
    nu: int
    nactuator: int
    """Those with a control, and springs."""
    nshape: int
    nfield: int
    """Rows of parameters of fields."""
    npair: int
    nloop: int
    ncoupling: int
    compensates: bool
    """Some weights are carried."""
    trees: bool
    """Some bodies hang on others, and steps may correct their velocity products."""
    impulses: int
    """Rows of the impulses that a state holds: none unless the solver starts warm."""
    contacts: int
    scalars: int
    """Rows of loops, couplings, joint limits and dry friction."""
    hulls: bool
    stages: int
    """Evaluations of the acceleration in an explicit step."""
    splits: bool
    """Steps are split where something touches."""
    reports: bool
    """Forces of contacts are asked for, not the state after a step."""
    slots: int
    """States that the adjoint of a rollout keeps in scratch."""
    solver: Solver

    @property
    def m(self) -> int:
        """Rows of the contact problem."""
        return 3 * self.contacts + self.scalars

    @property
    def columns(self) -> int:
        """Columns of a step's Jacobian: by coordinates, velocities and controls."""
        return 2 * self.nv + self.nu

    @property
    def nstate(self) -> int:
        """Rows of a state."""
        return self.nq + self.nv + self.impulses


PARAMETERS = Layout(
    "ParameterRows",
    "The first row of each group of parameters (compile/scene.py says what their rows are).",
    Rows("gravity", lambda n: 3),
    Rows("placements", lambda n: int(PLACEMENT_ROWS) * n.nbody),
    Rows("inertias", lambda n: int(INERTIA_ROWS) * n.nbody),
    Rows("dofs", lambda n: int(DOF_ROWS) * n.nv),
    Rows("friction", lambda n: n.nv),
    Rows("actuators", lambda n: int(ACTUATOR_ROWS) * n.nactuator),
    Rows("shapes", lambda n: int(SHAPE_ROWS) * n.nshape),
    Rows("fields", lambda n: n.nfield),
    Rows("pairs", lambda n: int(PAIR_ROWS) * n.npair),
    Rows("limits", lambda n: 2 * n.nv),
    Rows("loops", lambda n: int(LOOP_ROWS) * n.nloop),
    Rows("couplings", lambda n: int(COUPLING_ROWS) * n.ncoupling),
    Rows("material", lambda n: int(MATERIAL_ROWS), "numbers of a force law of contacts"),
    Rows("compensation", lambda n: int(COMPENSATION_ROWS) * n.nbody * n.compensates),
)

SCRATCH = Layout(
    "ScratchRows",
    "The first row of each array of a step's scratch.",
    # -- every step
    Group(
        "state",
        (
            Rows("q", lambda n: n.nq),
            Rows("qd", lambda n: n.nv),
            Rows("impulses", lambda n: n.impulses, "of the last step, where the solver starts warm"),
        ),
    ),
    Rows("span", lambda n: 1, "time [s] that the step, or the part of it at hand, takes; 0: an impact"),
    Rows("lanes", lambda n: 2, "on a GPU, which worlds do this step together (step/lanes_kernels.py)"),
    Rows("poses", lambda n: int(POSE_ROWS) * n.nbody),
    Rows("dynamics", lambda n: int(DYNAMICS_ROWS) * n.nbody, "of the equations of motion"),
    Rows("L", lambda n: n.nv * n.nv * max(1, n.stages), "factor of the mass matrix, M = L^T L"),
    Rows("trees", lambda n: int(TREE_ROWS) * n.nbody * n.trees, "that turn fast (step/tree_energy_kernels.py)"),
    Rows("corrects", lambda n: 1 * n.trees, "1: velocities of trees are corrected in this step"),
    Rows("correction", lambda n: n.nv * n.trees, "of the velocity after a whole step"),
    Rows("tree_zeros", lambda n: max(n.nv, 3) * n.trees),
    Rows("tree_factor", lambda n: n.nv * n.nv * n.trees, "of the mass matrix without implicit damping"),
    Rows("tree_fall", lambda n: n.nv * n.trees, "acceleration by velocity products"),
    Rows("tree_half", lambda n: n.nv * n.trees, "velocity half a step on"),
    Rows("tree_half_fall", lambda n: n.nv * n.trees, "acceleration by velocity products there"),
    Rows("tree_gain", lambda n: n.nv * n.trees, "by which those change the velocity after the step"),
    Rows("tree_ahead", lambda n: n.nv * n.trees, "velocity after the velocity products"),
    Rows("tree_velocity", lambda n: n.nv * n.trees, "the same without the travel of roots"),
    Rows("tree_momentum", lambda n: n.nv * n.trees),
    Rows("tree_q", lambda n: n.nq * n.trees, "before the last move"),
    Rows("tree_before", lambda n: n.nv * n.trees, "qd in the axes before the last move, without the travel of roots"),
    Rows("tree_momentum_before", lambda n: n.nv * n.trees),
    Rows("carried", lambda n: _carried_rows() * n.nbody if n.compensates else 0, "of gravity compensation"),
    Rows("held", lambda n: n.nactuator, "actuators: 0 within the limit, else the sign of a force at its limit"),
    Rows("unsettled", lambda n: 1, "1 where an actuator is held at a limit that its law does not exceed, else 0"),
    Rows("force", lambda n: n.nv, "L^-T (tau - h)"),
    Rows("start", lambda n: n.nv, "L qd"),
    Rows("s", lambda n: n.nv, "L v, moved by impulses"),
    Rows("free", lambda n: n.nv, "L v without contact"),
    Rows("velocity", lambda n: n.nv, "v after the step, in the axes before it"),
    Rows("shift", lambda n: n.nv, "part of v that impacts late in the step do not move coordinates by"),
    Rows("travel", lambda n: n.nv, "v that coordinates move by"),
    Rows("contacts", lambda n: int(CONTACT_ROWS) * n.contacts),
    Rows("candidates", lambda n: int(CANDIDATE_ROWS) * int(MAX_CANDIDATES), "features of a pair that may touch"),
    Rows("hulls", lambda n: _hull_rows() if n.hulls else 0, "of a pair of hulls"),
    Rows("blocks", lambda n: int(BLOCK_ROWS) * n.contacts, "bias and diagonal block of a contact"),
    Rows("Y", lambda n: 3 * n.nv * n.contacts, "J L^-1 of contacts"),
    Rows("scalars", lambda n: int(SCALAR_ROWS) * n.scalars),
    Rows("Y_scalar", lambda n: n.nv * n.scalars, "J L^-1 of loops, couplings, limits and dry friction"),
    Rows("loops", lambda n: int(LOOP_ROWS) * n.nloop),
    Rows("lam", lambda n: n.m, "impulses"),
    Rows("warm", lambda n: 1, "1: the sweeps started from the impulses of the last step"),
    Rows("material", lambda n: int(MATERIAL_ROWS)),
    Rows("ahead", lambda n: 1 * n.splits, "time [s] that forces of a part look ahead"),
    Rows("solved", lambda n: 3 * n.splits, "contacts, scalar rows and sweeps of a part"),
    Rows("refined", lambda n: 1 * n.splits, "1: an impact was solved once more (step/refine_kernels.py)"),
    Rows("is_mover", lambda n: n.nbody * n.splits, "1: a body of the contacts that may touch, or one that carries it"),
    Rows("trial_q", lambda n: n.nq * n.splits, "on the way to a touch"),
    Rows("trial_rates", lambda n: n.nv * n.splits),
    Rows("trial_poses", lambda n: int(POSE_ROWS) * n.nbody * n.splits),
    Rows("trial_motion", lambda n: int(MOTION_ROWS) * n.nbody * n.splits),
    Rows("trial_contacts", lambda n: int(CONTACT_ROWS) * n.contacts * n.splits),
    Rows("tree_work", lambda n: int(DYNAMICS_ROWS) * n.nbody * n.trees * n.splits, "of inverse dynamics of trees"),
    Rows("records", lambda n: _record_rows(n), "forces of contacts in all parts (step/record_kernels.py)"),
    Rows("stages", lambda n: (n.stages + 1) * (n.nq + 2 * n.nv) if n.stages else 0, "q, qd, qdd of a stage"),
    # -- where the problem is written as a matrix: a step that may be polished, and every adjoint
    Rows("A", lambda n: n.m * n.m),
    Rows("b", lambda n: n.m),
    Rows("mu", lambda n: n.contacts),
    Rows("lower", lambda n: n.scalars),
    Rows("upper", lambda n: n.scalars),
    Rows("residual", lambda n: n.m, "A lam + b of sweeps; impulses that Newton's step tries"),
    Rows("kept_lam", lambda n: n.m, "impulses that sweeps left, before they are polished"),
    Rows("work", lambda n: n.solver.load_kernels().work_rows(n.m, n.solver.iterations), "the solver's own"),
    Rows("columns", lambda n: 3 * n.nv, "three columns of Y^T"),
    # -- the adjoint
    Group(
        "adj_state",
        (
            Rows("adj_q", lambda n: n.nq),
            Rows("adj_qd", lambda n: n.nv),
            Rows("adj_impulses", lambda n: n.impulses),
        ),
    ),
    Group(
        "next_adj_state",
        (
            Rows("next_adj_q", lambda n: n.nq, "cotangents of the state after the step"),
            Rows("next_adj_qd", lambda n: n.nv),
            Rows("next_adj_impulses", lambda n: n.impulses),
        ),
    ),
    Rows(
        "events",
        lambda n: int(MAX_EVENTS) * (int(EVENT_NUMBERS) + n.nq + 2 * n.nv) * n.splits,
        "touches of a step that is split",
    ),
    Rows("adj_records", lambda n: _record_rows(n)),
    Rows("adj_ahead", lambda n: 1 * n.splits, "of the inertias of what looks ahead, by how far, in terms y^T M z"),
    Rows("adj_before", lambda n: n.nv * n.splits, "of qd, by the way to a touch"),
    Rows("kept_adj_impulses", lambda n: n.impulses * n.splits),
    Rows("acceleration", lambda n: n.nv, "a of eq. (8)"),
    Rows("zeta", lambda n: n.nv, "cotangent of travel"),
    Rows("zeta_s", lambda n: n.nv, "L^-T zeta"),
    Rows("gamma", lambda n: n.nv, "L^-T of the cotangent of v"),
    Rows("eta", lambda n: n.nv, "gamma - Y^T kappa, eq. (9)"),
    Rows("nu", lambda n: n.nv, "L^-1 eta"),
    Rows("adj_velocity", lambda n: n.nv, "L^T eta"),
    Rows("adj_start", lambda n: n.nv, "cotangent of L qd in the biases of impacts"),
    Rows("adj_force", lambda n: n.nv, "of inverse dynamics"),
    Rows("adj_lam", lambda n: n.m),
    Rows("start_lam", lambda n: n.m, "impulses that the sweeps started from"),
    Rows("adj_start_lam", lambda n: n.m),
    Rows("multiplier", lambda n: n.m, "kappa"),
    Rows("adj_A", lambda n: n.m * n.m),
    Rows("adj_mu", lambda n: n.contacts),
    Rows("adj_lower", lambda n: n.scalars),
    Rows("adj_upper", lambda n: n.scalars),
    Rows("sides", lambda n: side_rows(n.m) if n.solver.kinks == "downhill" else 0, "of the rows at a kink"),
    Rows("alpha", lambda n: n.m, "weights of a term alpha^T J x"),
    Rows("rates", lambda n: n.nv, "its x"),
    Rows("y", lambda n: n.nv, "of a term y^T M z"),
    Rows("z", lambda n: n.nv),
    Rows("weights", lambda n: n.m, "a row of H in eq. (11)"),
    Rows("adj_contacts", lambda n: int(ADJ_CONTACT_ROWS) * n.contacts),
    Rows("adj_loops", lambda n: int(LOOP_ROWS) * n.nloop),
    Rows("motion", lambda n: int(MOTION_ROWS) * n.nbody, "of bodies, under the rates of a term"),
    Rows("wrench", lambda n: 6 * n.nbody, "cotangents of poses"),
    Rows("recursion", lambda n: max(int(VJP_ROWS), int(PRODUCT_ROWS)) * n.nbody, "of adjoints of dynamics"),
    Rows("tree_adj", lambda n: (2 * n.nq + 8 * n.nv) * n.trees, "of what the correction of trees reads"),
    Rows("stage_adj", lambda n: (n.stages + 2) * (n.nq + n.nv) if n.stages else 0),
    Rows("slots", lambda n: n.slots * n.nstate, "states that the adjoint of a rollout keeps"),
)

FIRST_OF_PROBLEM, FIRST_OF_ADJOINT, LAST = "A", "adj_q", "slots"

KEPT_PARTS = 2
"""Parts of a step that is split once before the last: a drift and an impact."""
MOST_KEPT_ROWS = 1 << 15
"""Rows that are kept of parts at most: beyond that they are solved again."""


def forward_rows(sizes: Sizes, *, as_matrix: bool) -> int:
    """Return the rows of scratch that a step needs, with or without the problem as a matrix."""
    return SCRATCH.rows_until(FIRST_OF_ADJOINT if as_matrix else FIRST_OF_PROBLEM, sizes)


def kept_parts(sizes: Sizes) -> int:
    """Return how many parts of a split step its adjoint keeps as they were solved: none where contacts are many."""
    fits = KEPT_PARTS * SCRATCH.rows_until(LAST, sizes) <= MOST_KEPT_ROWS
    return KEPT_PARTS if sizes.splits and fits else 0


def _record_rows(sizes: Sizes) -> int:
    return (2 + int(RECORD_ROWS) * sizes.contacts) * sizes.splits * sizes.reports


def _hull_rows() -> int:
    # imported lazily: 0.2 s
    from pullback.rigid.collide.convex.convex_kernels import CONVEX_ROWS

    return int(CONVEX_ROWS)


def _carried_rows() -> int:
    # imported lazily: few worlds have it
    from pullback.rigid.step.compensation_kernels import CARRIED_ROWS

    return int(CARRIED_ROWS)
