"""Reading and writing small vectors and matrices in the arrays every kernel works on.

All arrays are indexed `[row, world]`: row r of world w. The world's stride may be 0, for what all worlds share and for
scratch on a CPU, where worlds are worked through one after another. On a CPU the rows of a world are neighbours in
memory (`core/arrays.py` sees to it), and these functions rely on that; on a GPU it is the worlds of a row that are.

They are written in C++ because Warp's own indexing multiplies by a run-time stride for each element, which cost the
articulated-body algorithm a tenth of its time on a CPU.
"""

from typing import Any

import warp as wp

from pullback.spatial.native import runs, value

_AT = "    const int a_row = row;" + runs("a")
_VALUE = value("{real}", "a")
_LOAD = _AT + f"    {{c}} x; for (int k = 0; k < {{n}}; ++k) {{field}} = {_VALUE}; return x;"
_STORE = _AT + f"    for (int k = 0; k < {{n}}; ++k) {_VALUE} {{op}} {{field}};"
_ROWS_FROM = """
    wp::array_t<{real}> x = a;
    const long long offset = static_cast<long long>(row) * a.strides[0];
    if (a.data) x.data = reinterpret_cast<{real}*>(reinterpret_cast<char*>(a.data) + offset);
    return x;
"""
_VECTOR = "x.c[k]"
_MATRIX = "x.data[k / 3][k % 3]"

for _real, _name in ((wp.float32, "float"), (wp.float64, "double")):
    _a = wp.array2d(dtype=_real)
    _v3, _v4, _v6, _v10 = (wp.types.vector(n, _real) for n in (3, 4, 6, 10))
    _m33 = wp.types.matrix((3, 3), _real)

    @wp.func_native(_LOAD.format(c=f"wp::vec_t<3, {_name}>", n=3, field=_VECTOR, real=_name))
    def load3(a: _a, row: int, w: int) -> _v3:
        """Read the 3-vector that starts at `row`."""

    @wp.func_native(_LOAD.format(c=f"wp::vec_t<4, {_name}>", n=4, field=_VECTOR, real=_name))
    def load4(a: _a, row: int, w: int) -> _v4:
        """Read the 4-vector that starts at `row`."""

    @wp.func_native(_LOAD.format(c=f"wp::vec_t<6, {_name}>", n=6, field=_VECTOR, real=_name))
    def load6(a: _a, row: int, w: int) -> _v6:
        """Read the spatial vector that starts at `row`."""

    @wp.func_native(_LOAD.format(c=f"wp::vec_t<10, {_name}>", n=10, field=_VECTOR, real=_name))
    def load10(a: _a, row: int, w: int) -> _v10:
        """Read the 10-vector that starts at `row`."""

    @wp.func_native(_LOAD.format(c=f"wp::mat_t<3, 3, {_name}>", n=9, field=_MATRIX, real=_name))
    def load33(a: _a, row: int, w: int) -> _m33:
        """Read the 3x3 matrix stored row by row from `row` on."""

    @wp.func_native(_STORE.format(n=9, field=_MATRIX, real=_name, op="="))
    def store33(a: _a, row: int, w: int, x: _m33):
        """Write the 3x3 matrix `x` row by row from `row` on."""

    @wp.func_native(_STORE.format(n=9, field=_MATRIX, real=_name, op="+="))
    def accumulate33(a: _a, row: int, w: int, x: _m33):
        """Add the 3x3 matrix `x`, row by row, to what stands from `row` on."""

    @wp.func_native(_ROWS_FROM.format(real=_name))
    def rows_from(a: _a, row: int) -> _a:
        """See the rows of `a` from `row` on as an array of their own; an absent array stays absent."""

    for _n, _v in ((3, _v3), (4, _v4), (6, _v6), (10, _v10)):

        @wp.func_native(_STORE.format(n=_n, field=_VECTOR, real=_name, op="="))
        def store(a: _a, row: int, w: int, x: _v):
            """Write the vector `x` from `row` on."""

        @wp.func_native(_STORE.format(n=_n, field=_VECTOR, real=_name, op="+="))
        def accumulate(a: _a, row: int, w: int, x: _v):
            """Add the vector `x` to what stands from `row` on."""


@wp.func
def full_symmetric(s: Any):
    """Return the symmetric 3x3 matrix given as xx, xy, xz, yy, yz, zz."""
    return wp.matrix_from_rows(wp.vector(s[0], s[1], s[2]), wp.vector(s[1], s[3], s[4]), wp.vector(s[2], s[4], s[5]))


@wp.func
def upper_triangle(m: Any):
    """Return xx, xy, xz, yy, yz, zz of a symmetric 3x3 matrix."""
    return wp.vector(m[0, 0], m[0, 1], m[0, 2], m[1, 1], m[1, 2], m[2, 2])
