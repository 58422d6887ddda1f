"""Contact problems as worlds pose them, and answers from elsewhere: a quadratic program, and all cases in turn."""

from __future__ import annotations

from itertools import product

import numpy as np
import scipy.linalg
import scipy.optimize
import torch

from tests.reference.contact_solver import Problem

Array = np.ndarray
DT, GRAVITY, ERP = 1e-3, 9.81, 0.2
MOTIONS = ("rest", "slide", "twist", "impact", "push", "separate")
FRICTIONS = (0.05, 0.3, 0.8, 1.5, 0.0, 0.5)


def contact_rows(point: Array, normal: Array, centres: Array, signs: dict[int, float]) -> Array:
    """Return the normal and tangential rows (3, 6 n) of a contact for free bodies with angular velocity first."""
    axis = np.eye(3)[np.argmin(np.abs(normal))]
    first = axis - (axis @ normal) * normal
    first /= np.linalg.norm(first)
    J = np.zeros((3, 6 * len(centres)))
    for row, direction in enumerate((normal, first, np.cross(normal, first))):
        for body, sign in signs.items():
            arm = np.cross(point - centres[body], direction)
            J[row, 6 * body : 6 * body + 6] = sign * np.concatenate([arm, direction])
    return J


def inverse_masses(mass: float, half: Array) -> Array:
    """Return the inverse inertia of a box about its axes, and three times its inverse mass."""
    inertia = mass / 3 * (half @ half - half**2)
    return 1 / np.array([*inertia, mass, mass, mass])


def velocity(rng: np.random.Generator, motion: str) -> Array:
    """Return a body's velocity at the end of a step of free fall."""
    v = 1e-6 * rng.normal(size=6)
    if motion == "slide":
        v[[2, 3, 4]] = 0.5 * rng.normal(size=3)
    elif motion == "twist":
        v[[2, 3, 4]] = rng.normal(size=3) * (2.0, 0.05, 0.05)
    elif motion == "impact":
        v = rng.normal(size=6) * (1.0, 1.0, 1.0, 0.5, 0.5, 0.5) - np.eye(6)[5]
    elif motion == "push":
        v[3:5] = 0.8 * DT * GRAVITY * rng.normal(size=2)
    elif motion == "separate":
        v = 0.3 * rng.normal(size=6) + 0.3 * np.eye(6)[5]
    v[5] -= DT * GRAVITY
    return v


def posed(J: Array, inverse_mass: Array, v: Array, gap: Array, mu: float, cfm: float) -> Problem:
    b = J @ v
    b[::3] += np.where(gap > 0, 1.0, ERP) * gap / DT
    A = (J * inverse_mass) @ J.T + cfm * np.eye(len(J))
    none = torch.zeros(0, dtype=torch.float64)
    return Problem(
        torch.tensor(A), torch.tensor(b), torch.full((len(gap),), mu, dtype=torch.float64), none, none.clone()
    )


def box_on_plane(rng: np.random.Generator, corners: int, motion: str, mu: float, cfm: float) -> Problem:
    half, mass = rng.uniform(0.05, 0.3, 3), 10 ** rng.uniform(-1, 1)
    points = half * np.array([(x, y, z) for z in (-1, 1) for x in (-1, 1) for y in (-1, 1)])[:corners]
    J = np.concatenate([contact_rows(p, np.eye(3)[2], np.zeros((1, 3)), {0: 1.0}) for p in points])
    gap = np.array([rng.choice([0.0, 1e-5 * rng.normal(), 1e-3 * rng.random()], p=[0.5, 0.3, 0.2]) for _ in points])
    return posed(J, inverse_masses(mass, half), velocity(rng, motion), gap, mu, cfm)


def stack(rng: np.random.Generator, boxes: int, points: int, motion: str, mu: float, cfm: float) -> Problem:
    """Return boxes on each other on the ground, each on 4 or 8 points around where they overlap."""
    halves = rng.uniform(0.05, 0.2, (boxes, 3))
    heights = np.concatenate([[0.0], np.cumsum(2 * halves[:, 2])])
    centres = np.column_stack([rng.uniform(-0.02, 0.02, (boxes, 2)), heights[:-1] + halves[:, 2]])
    J = []
    for k in range(boxes):
        below = k - 1 if k else k
        low = np.maximum(centres[k] - halves[k], centres[below] - halves[below])
        high = np.minimum(centres[k] + halves[k], centres[below] + halves[below])
        for x, y in [*product((0.0, 1.0), (0.0, 1.0)), (0.0, 0.6), (1.0, 0.4), (0.4, 0.0), (0.6, 1.0)][:points]:
            point = np.array([*(low + (high - low) * (x, y, 0))[:2], heights[k]])
            J.append(contact_rows(point, np.eye(3)[2], centres, {k: 1.0, k - 1: -1.0} if k else {0: 1.0}))
    inverse = np.concatenate([inverse_masses(10 ** rng.uniform(-1, 1), half) for half in halves])
    v = np.concatenate([velocity(rng, motion) for _ in range(boxes)])
    gap = rng.choice([0.0, 1e-6, -1e-6], len(J))
    return posed(np.concatenate(J), inverse, v, gap, mu, cfm)


def squeezed(rng: np.random.Generator, motion: str, mu: float, cfm: float) -> Problem:
    """Return a box between two walls that are not parallel, which may jam it: impulses of the order of 1 / cfm."""
    half, mass = rng.uniform(0.05, 0.3, 3), 10 ** rng.uniform(-1, 1)
    J = []
    for side in (1.0, -1.0):
        normal = 0.2 * rng.normal(size=3) + (side, 0.0, 0.3)
        normal /= np.linalg.norm(normal)
        for y, z in product((-1.0, 1.0), (-1.0, 1.0)):
            J.append(contact_rows(half * (-side, y, z), normal, np.zeros((1, 3)), {0: 1.0}))
    gap = rng.choice([0.0, -1e-4, 1e-5], 8)
    return posed(np.concatenate(J), inverse_masses(mass, half), velocity(rng, motion), gap, mu, cfm)


def robot(
    rng: np.random.Generator, nc: int, ns: int, nv: int, motion: str, mu: float, cfm: float, scalars: str = "mixed"
) -> Problem:
    """Return contacts of a robot, joint limits on half of the scalars and dry friction on the others."""
    axes = np.linalg.qr(rng.normal(size=(nv, nv)))[0]
    # a joint has at most one limit near, and one dry friction
    dofs = np.concatenate([rng.permutation(nv)[: ns // 2], rng.permutation(nv)[: ns - ns // 2]])
    J = np.concatenate([rng.normal(size=(3 * nc, nv)), np.eye(nv)[dofs] * rng.choice([-1, 1], (ns, 1))])
    speed = {"rest": 1e-3, "slide": 0.5, "twist": 0.1, "impact": 3.0, "push": 0.01, "separate": 1.0}[motion]
    b = J @ (speed * rng.normal(size=nv))
    b[: 3 * nc : 3] -= speed * rng.random(nc) * (motion != "separate")
    A = (J @ axes) * 10 ** rng.uniform(-1.5, 1.5, nv) @ (J @ axes).T + cfm * np.eye(len(J))
    dry, limits = DT * 10 ** rng.uniform(-2, 2, ns), np.arange(ns) < ns // 2
    lower, upper = np.where(limits, 0.0, -dry), np.where(limits, np.inf, dry)
    if scalars == "every":
        # also bounds above only, and none: a joint that is held
        lower[::4], upper[::4] = -np.inf, 0.0
        lower[1::4], upper[1::4] = -np.inf, np.inf
    numbers = (A, b, np.full(nc, mu), lower, upper)
    return Problem(*(torch.tensor(x, dtype=torch.float64) for x in numbers))


KINDS = {
    "box on a corner": lambda rng, *x: box_on_plane(rng, 1, *x),
    "box on four corners": lambda rng, *x: box_on_plane(rng, 4, *x),
    "box on eight corners": lambda rng, *x: box_on_plane(rng, 8, *x),
    "two boxes, 8 contacts": lambda rng, *x: stack(rng, 2, 4, *x),
    "two boxes, 16 contacts": lambda rng, *x: stack(rng, 2, 8, *x),
    "four boxes, 16 contacts": lambda rng, *x: stack(rng, 4, 4, *x),
    "squeezed box": squeezed,
    "arm, 18 rows": lambda rng, *x: robot(rng, 4, 6, 7, *x),
    "quadruped, 24 rows": lambda rng, *x: robot(rng, 4, 12, 18, *x),
    "jammed arm, 32 rows": lambda rng, *x: robot(rng, 8, 8, 12, *x),
}


def problems(kind: str, count: int, seed: int = 0, cfm: float = 1e-6) -> Problem:
    """Return a batch of problems: motions and friction coefficients in turn."""
    rng = np.random.default_rng(seed)
    drawn = [KINDS[kind](rng, MOTIONS[k % 6], FRICTIONS[k // 6 % 6], cfm) for k in range(count)]
    return Problem(*map(torch.stack, zip(*drawn)))


def quadratic_program(problem: Problem) -> Array:
    """Return the impulses without friction by active sets: the smallest lam A lam / 2 + b lam within the bounds."""
    A, b, mu, lower, upper = (x.numpy() for x in problem)
    assert not mu.any()
    low, high = np.zeros(len(b)), np.full(len(b), np.inf)
    tangent = (np.arange(len(b)) % 3 > 0) & (np.arange(len(b)) < 3 * len(mu))
    low[3 * len(mu) :], high[3 * len(mu) :] = lower, upper
    rows = np.flatnonzero(~tangent)
    L = scipy.linalg.cholesky(A[np.ix_(rows, rows)], lower=True)
    right = scipy.linalg.solve_triangular(L, -b[rows], lower=True)
    lam = np.zeros(len(b))
    lam[rows] = scipy.optimize.lsq_linear(L.T, right, (low[rows], high[rows]), method="bvls", tol=1e-15).x
    return lam


def all_solutions(problem: Problem) -> list[Array]:
    """Return every solution with a pyramid, by trying all cases: a contact open, or its tangents held or at a side."""
    A, b, mu, _, _ = (x.numpy() for x in problem)
    nc, found = len(mu), []
    for cases in product([None, *product((-1, 0, 1), (-1, 0, 1))], repeat=nc):
        # impulses are columns times unknowns, one for each equation r = 0
        columns, rows = [], []
        for c, case in enumerate(cases):
            if case is not None:
                column = np.zeros(3 * nc)
                column[3 * c : 3 * c + 3] = 1.0, mu[c] * case[0], mu[c] * case[1]
                columns.append(column)
                rows.append(3 * c)
                for k in range(2):
                    if case[k] == 0:
                        columns.append(np.eye(3 * nc)[3 * c + 1 + k])
                        rows.append(3 * c + 1 + k)
        lam = np.zeros(3 * nc)
        if rows:
            E = np.array(columns).T
            lam = E @ np.linalg.solve(A[rows] @ E, -b[rows])
        r, ok = A @ lam + b, True
        for c, case in enumerate(cases):
            ok &= r[3 * c] >= -1e-12 if case is None else lam[3 * c] >= 0
            for k, side in enumerate(case or ()):
                i = 3 * c + 1 + k
                ok &= abs(lam[i]) <= mu[c] * lam[3 * c] if side == 0 else side * r[i] <= 0
        if ok:
            found.append(lam)
    return found
