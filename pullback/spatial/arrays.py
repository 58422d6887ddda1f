"""Reading and writing small vectors and matrices in the arrays every kernel works on.

All arrays are indexed `[row, world]`: row r of world w. The world's stride may be 0, for what all worlds share and for
scratch on a CPU, where worlds are worked through one after another.
"""

from typing import Any

import warp as wp


@wp.func
def load3(a: wp.array2d(dtype=Any), row: int, w: int):
    """Read the 3-vector that starts at `row`."""
    return wp.vector(a[row, w], a[row + 1, w], a[row + 2, w])


@wp.func
def load4(a: wp.array2d(dtype=Any), row: int, w: int):
    """Read the 4-vector that starts at `row`."""
    return wp.vector(a[row, w], a[row + 1, w], a[row + 2, w], a[row + 3, w])


@wp.func
def load6(a: wp.array2d(dtype=Any), row: int, w: int):
    """Read the spatial vector that starts at `row`."""
    return wp.vector(a[row, w], a[row + 1, w], a[row + 2, w], a[row + 3, w], a[row + 4, w], a[row + 5, w])


@wp.func
def load33(a: wp.array2d(dtype=Any), row: int, w: int):
    """Read the 3x3 matrix stored row by row from `row` on."""
    return wp.matrix_from_rows(load3(a, row, w), load3(a, row + 3, w), load3(a, row + 6, w))


@wp.func
def load_symmetric(a: wp.array2d(dtype=Any), row: int, w: int):
    """Read the symmetric 3x3 matrix stored as xx, xy, xz, yy, yz, zz."""
    xy = a[row + 1, w]
    xz = a[row + 2, w]
    yz = a[row + 4, w]
    return wp.matrix_from_rows(
        wp.vector(a[row, w], xy, xz), wp.vector(xy, a[row + 3, w], yz), wp.vector(xz, yz, a[row + 5, w])
    )


@wp.func
def store(a: wp.array2d(dtype=Any), row: int, w: int, x: Any):
    """Write the vector `x` from `row` on."""
    for k in range(wp.static(len(x))):
        a[row + k, w] = x[k]


@wp.func
def accumulate(a: wp.array2d(dtype=Any), row: int, w: int, x: Any):
    """Add the vector `x` to what stands from `row` on."""
    for k in range(wp.static(len(x))):
        a[row + k, w] = a[row + k, w] + x[k]


@wp.func
def store33(a: wp.array2d(dtype=Any), row: int, w: int, m: Any):
    """Write the 3x3 matrix `m` row by row from `row` on."""
    for i in range(3):
        for j in range(3):
            a[row + 3 * i + j, w] = m[i, j]


@wp.func
def accumulate33(a: wp.array2d(dtype=Any), row: int, w: int, m: Any):
    """Add the 3x3 matrix `m`, row by row, to what stands from `row` on."""
    for i in range(3):
        for j in range(3):
            a[row + 3 * i + j, w] = a[row + 3 * i + j, w] + m[i, j]


@wp.func
def upper_triangle(m: Any):
    """Return xx, xy, xz, yy, yz, zz of a symmetric 3x3 matrix."""
    return wp.vector(m[0, 0], m[0, 1], m[0, 2], m[1, 1], m[1, 2], m[2, 2])
