"""The two gradients of a step at a kink, and which of them to take (docs/derivations/kinks.md), in plain numpy.

v = v* + M^-1 J^T lam,    r = J v,    loss g · v,    contact c: rows 3c (normal), 3c+1, 3c+2 (tangents)
"""

from typing import Literal, NamedTuple

import numpy as np

Case = Literal["open", "slides", "sticks"]
Array = np.ndarray


class Step(NamedTuple):
    """A step whose contacts are solved, at v = v* + M^-1 J^T lam."""

    M: Array  # (nv, nv)
    J: Array  # (3 nc, nv)
    mu: Array  # (nc,)
    lam: Array  # (3 nc,)
    v: Array  # (nv,)


class Side(NamedTuple):
    """One side of a kink: the multiplier of each row, and the gradient by v*."""

    kappa: Array
    gradient: Array


def side(step: Step, cases: list[Case], g: Array) -> Side:
    """Return the adjoint for contacts in these cases, eqs. (13) and (14) of contact_solver.md without softness."""
    M, J, mu, lam, v = step
    K = np.linalg.solve(M, J.T)
    trial, test, diagonal = [], [], []

    def unknown(row: int, e: Array, r: Array, softness: float = 0.0) -> None:
        for column, values in ((trial, e), (test, r)):
            column.append(np.zeros(len(lam)))
            column[-1][row : row + len(values)] = values
        diagonal.append(softness)

    for c, case in enumerate(cases):
        n, r_t, lam_t = 3 * c, (J @ v)[3 * c + 1 : 3 * c + 3], lam[3 * c + 1 : 3 * c + 3]
        if case == "sticks":
            for row in range(n, n + 3):
                unknown(row, np.ones(1), np.ones(1))
        elif case == "slides":
            e = np.zeros(2)
            if np.linalg.norm(lam_t) > 0 or np.linalg.norm(r_t) > 1e-12:
                e = lam_t / np.linalg.norm(lam_t) if np.linalg.norm(lam_t) > 0 else -r_t / np.linalg.norm(r_t)
            unknown(n, np.array([1.0, *(mu[c] * e)]), np.ones(1))
            if mu[c] * lam[n] > 0:
                across = np.array([-e[1], e[0]])
                unknown(n + 1, across, across, float(np.linalg.norm(r_t) / (mu[c] * lam[n])))
    E, R = (np.array(x).reshape(-1, len(lam)).T for x in (trial, test))
    y = np.linalg.solve((R.T @ J @ K @ E + np.diag(diagonal)).T, E.T @ (K.T @ g))
    kappa = R @ y
    return Side(kappa, g - J.T @ kappa)


def is_convex(step: Step, c: int, tight: Side) -> bool:
    """Tell whether the kink of contact c bends the loss upwards, by the multiplier on the side that holds: eq. (5)."""
    if step.lam[3 * c] == 0.0:
        return bool(tight.kappa[3 * c] > 0.0)
    return bool(step.lam[3 * c + 1 : 3 * c + 3] @ tight.kappa[3 * c + 1 : 3 * c + 3] < 0.0)


def control_gradient(step: Step, B: Array, one: Side) -> Array:
    """Return the gradient by the controls u of M dv* = B du."""
    return B.T @ np.linalg.solve(step.M, one.gradient)


def takes_tight(step: Step, c: int, tight: Side, loose: Side, B: Array) -> bool:
    """Tell whether to take the side that holds: the longer gradient of a concave kink, else the shorter: eq. (4)."""
    a, b = (float(np.linalg.norm(control_gradient(step, B, x))) for x in (tight, loose))
    return a < b if is_convex(step, c, tight) else a > b


def choose(step: Step, cases: list[Case], tied: list[int], g: Array, B: Array) -> tuple[list[Case], Side]:
    """Return the cases to differentiate in where several contacts are tied, and their side: section 4.

    Tied contacts without impulse are held as "slides" and let go as "open", others as "sticks" and "slides".
    """
    names: dict[int, tuple[Case, Case]] = {
        c: ("slides", "open") if step.lam[3 * c] == 0.0 else ("sticks", "slides") for c in tied
    }
    ways = []
    for start in (1, 0):
        here = list(cases)
        for c in tied:
            here[c] = names[c][start]
        best = side(step, here, g)
        for _ in range(4):
            before = list(here)
            for c in tied:
                other = list(here)
                other[c] = names[c][1 - names[c].index(here[c])]
                found = side(step, other, g)
                holds = here[c] == names[c][0]
                tight, loose = (best, found) if holds else (found, best)
                if takes_tight(step, c, tight, loose, B) != holds:
                    here, best = other, found
            if here == before:
                break
        ways.append((here, best))
    first, second = (float(np.linalg.norm(control_gradient(step, B, one))) for _, one in ways)
    return ways[1] if second > first * (1.0 + 1e-9) else ways[0]
