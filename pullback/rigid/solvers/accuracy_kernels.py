"""How exactly a contact problem can be solved in each floating-point type (docs/derivations/exact_solver.md)."""

from typing import Any

import warp as wp


@wp.func
def proximal(size: wp.float32):
    """Return what is added to the diagonal of Newton's system, eq. (13)."""
    return wp.float32(4e-6) * size


@wp.func
def proximal(size: wp.float64):  # noqa: F811
    """Return what is added to the diagonal of Newton's system, eq. (13)."""
    return wp.float64(1e-12) * size


@wp.func
def rounding(x: wp.float32):
    """Return the spacing of numbers around one."""
    return wp.float32(1.2e-7)


@wp.func
def rounding(x: wp.float64):  # noqa: F811
    """Return the spacing of numbers around one."""
    return wp.float64(2.2e-16)


@wp.func
def coarsest(x: wp.float32):
    """Return the largest residual [m/s] that may count as rounding."""
    return wp.float32(1e-3)


@wp.func
def coarsest(x: wp.float64):  # noqa: F811
    """Return the largest residual [m/s] that may count as rounding."""
    return wp.float64(1e-8)


@wp.func
def allowed_residual(tolerance: Any, largest: Any):
    """Return the |G| of a solution: the tolerance, or what rounding leaves of a |lam| up to `largest`, eq. (14)."""
    return wp.max(tolerance, wp.min(type(tolerance)(36.0) * rounding(tolerance) * largest, coarsest(tolerance)))
