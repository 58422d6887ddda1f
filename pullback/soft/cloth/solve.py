"""Newton's method with sparse factors: docs/derivations/cloth.md, section 5."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pullback.core.errors import GradientError
from pullback.soft.cloth.equations import Equations

NEWTON = 200
"""Newton's steps, at most."""

CLOSE = 0.1
"""Below this step, in mean edges, the matrix is the true one and no longer made positive."""

SOLVED = 1e-8
"""Newton's method with the true matrix ends after a step this small, in mean edges; `ACCURATE` of it is left."""

STALLED = 1e-5
"""Steps below this, in mean edges, may be rounding."""

SLOPE = 1e-4
"""Share of the predicted decrease that a step must bring."""

ROUNDING = 1e-13
"""Decreases below this share of the energy are not seen in it."""


ACCURATE = 1e-4
"""Share of the residual, as the preconditioner measures it, at which conjugate gradients end."""

CONJUGATE = 15
"""Conjugate gradients, at most; beyond, new factors are cheaper."""


class Found(NamedTuple):
    """Positions (B, n, 3), whether each world was solved (B,), Newton's steps of each (B,)."""

    x: np.ndarray
    solved: np.ndarray
    steps: np.ndarray


def factors(matrix: Any) -> Any:
    """Return the factors of a symmetric matrix; fill is kept low by the order of its graph."""
    from scipy.sparse.linalg import splu

    return splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


class SingleFactors:
    """Factors in float32: half the memory to go through, and near enough for a preconditioner."""

    def __init__(self, matrix: Any) -> None:
        self.inverse = factors(matrix.astype(np.float32))

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return nearly the solution, in float64."""
        largest = float(np.abs(right).max()) or 1.0
        return largest * self.inverse.solve((right / largest).astype(np.float32)).astype(np.float64)


def newton(equations: Equations, start: np.ndarray, skip: np.ndarray | None = None) -> Found:
    """Return where the energy of a step is least, from `start` (B, n, 3), whose pins are where they shall be.

    Worlds to `skip` (B,) are not solved.
    """
    free, edge, worlds = equations.layout.free, equations.layout.edge, equations.worlds
    x = start.copy()
    energy = equations.energies(x)
    solved = np.zeros(worlds, bool) if len(free) else np.ones(worlds, bool)
    lost = ~np.isfinite(energy)
    if skip is not None:
        lost |= skip
    exact = np.zeros(worlds, bool)
    steps, last = np.zeros(worlds, int), np.full(worlds, np.inf)
    directions = [Directions() for _ in range(worlds)]
    for _ in range(NEWTON):
        active = ~(solved | lost)
        if not active.any():
            break
        residual = equations.linearize(x, ~exact)[:, free]
        move = np.zeros_like(x)
        slope, size = np.zeros(worlds), np.zeros(worlds)
        for world in np.flatnonzero(active).tolist():
            step = directions[world](equations.matrix(world), residual[world])
            slope[world] = np.vdot(step, residual[world])
            if not slope[world] < 0.0 and exact[world] and np.abs(step).max() > SOLVED * edge:
                # the true matrix is not positive here: make it so once more
                exact[world] = False
                continue
            move[world, free] = step
            size[world] = np.abs(step).max()
        steps += active
        moving = active & (size > 0.0)
        x, energy, length = _search(equations, x, energy, move, slope, size <= STALLED * edge)
        lost |= moving & ~np.isfinite(size)
        full = length == 1.0
        solved |= moving & exact & full & (size <= SOLVED * edge)
        # steps that no longer shrink are rounding
        solved |= moving & exact & full & (size <= STALLED * edge) & (size > 0.5 * last)
        last = np.where(moving, size, last)
        # no force at all is solved as well
        solved |= active & (np.abs(residual).max((1, 2)) == 0.0)
        exact = np.where(moving, full & (size < CLOSE * edge), exact)
        lost |= moving & (length == 0.0) & ~solved
    return Found(x, solved & ~lost, steps)


class Directions:
    """Newton's directions of one world in one step: factors of the first matrix lead on with the others."""

    def __init__(self) -> None:
        self.inverse: Any = None

    def __call__(self, matrix: Any, residual: np.ndarray) -> np.ndarray:
        """Return the direction (f, 3), NaN for a singular matrix."""
        right = -residual.ravel()
        try:
            if self.inverse is None:
                self.inverse = SingleFactors(matrix)
            found = conjugate_gradients(matrix, right, self.inverse)
        except RuntimeError:
            # singular in float32
            found = None
        if found is None:
            try:
                self.inverse = factors(matrix)
            except RuntimeError:
                return np.full_like(residual, np.nan)
            found = self.inverse.solve(right)
        return found.reshape(-1, 3)


def conjugate_gradients(matrix: Any, right: np.ndarray, near: Any) -> np.ndarray | None:
    """Return the solution with the factors of a matrix nearby as preconditioner; None if that leads nowhere."""
    x, r = np.zeros_like(right), right
    z = near.solve(r)
    p, rz = z, float(r @ z)
    goal = ACCURATE**2 * abs(rz)
    for _ in range(CONJUGATE):
        q = matrix @ p
        curvature = float(p @ q)
        if not (0.0 < rz < np.inf and 0.0 < curvature < np.inf):
            return None
        x = x + (rz / curvature) * p
        r = r - (rz / curvature) * q
        z = near.solve(r)
        rz, old = float(r @ z), rz
        if abs(rz) <= goal:
            return x
        p = z + (rz / old) * p
    return None


def _search(
    equations: Equations, x: np.ndarray, energy: np.ndarray, move: np.ndarray, slope: np.ndarray, small: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions and energy after steps, halved until the energy falls, and their lengths (B,), 0: none.

    Steps that are `small` (B,) are taken: what they change in the energy is rounding.
    """
    moving = np.isfinite(move).all((1, 2)) & (np.abs(move).max((1, 2)) > 0.0)
    length, waiting = np.where(moving, 1.0, 0.0), moving.copy()
    found, found_energy = x.copy(), energy.copy()
    for _ in range(40):
        if not waiting.any():
            break
        trial = np.where(
            waiting[:, None, None], x + length[:, None, None] * np.where(moving[:, None, None], move, 0.0), found
        )
        now = equations.energies(trial)
        enough = small | (now <= energy + SLOPE * length * slope + ROUNDING * np.abs(energy))
        good = waiting & enough
        found[good], found_energy[good] = trial[good], now[good]
        waiting &= ~good
        length[waiting] *= 0.5
    length[waiting] = 0.0
    return found, found_energy, length


def solve_adjoint(equations: Equations, right: np.ndarray) -> np.ndarray:
    """Return the multipliers of free vertices (B, f, 3) of the true matrix that `equations` holds; refined once."""
    found = np.zeros_like(right)
    for world in range(equations.worlds):
        if not right[world].size or not np.any(right[world]):
            continue
        matrix, b = equations.matrix(world), right[world].ravel()
        try:
            inverse = factors(matrix)
        except RuntimeError:
            raise GradientError(
                "the matrix of a cloth's step has no inverse: where it ended it is just about to buckle; damp it, or "
                "make dt smaller"
            ) from None
        y = inverse.solve(b)
        y = y + inverse.solve(b - matrix @ y)
        found[world] = y.reshape(-1, 3)
    return found
