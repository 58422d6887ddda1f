"""A contact problem in rows of one array, as solvers and their adjoints take it.

    r = A lam + b,    contact c: rows 3c (normal), 3c+1, 3c+2 (tangents),    scalar s: row 3 nc + s

A at row i m + j, m = 3 nc + ns; b, lam at row i; mu at row c; lower, upper at row s.
"""

import warp as wp


@wp.struct
class Problem:
    """How large a contact problem is, and the first row of each of its arrays."""

    nc: int  # contacts
    ns: int  # joint limits, dry friction, rows of loops
    cone: int  # 1: friction cone, 0: pyramid
    A: int
    b: int
    mu: int
    lower: int
    upper: int
    lam: int
    residual: int  # m rows of scratch
    work: int  # the solver's own scratch
    # its adjoint; that of b is minus the multiplier
    start: int  # impulses that sweeps started from
    adj_start: int
    adj_lam: int
    multiplier: int
    adj_A: int
    adj_mu: int
    adj_lower: int
    adj_upper: int
