"""Matrices that stand row by row in the rows of a world: loops over their columns (docs/derivations/linearize.md).

On a CPU the rows of a world are neighbours in memory, as for pullback/spatial/arrays.py, and columns are done in strips
that stay in registers; on a GPU it is the worlds of a row that are neighbours, and columns are done one by one.
"""

import warp as wp

from pullback.rigid.solvers.rows_kernels import NEGLIGIBLE
from pullback.spatial.native import runs, value

# what a strip does stands between these two: T holds the numbers of its columns, from `column` on
_STRIP = """
#if defined(__CUDA_ARCH__)
#define PULLBACK_COPY(to, from) *reinterpret_cast<{real}*>(to) = *reinterpret_cast<const {real}*>(from)
#else
#define PULLBACK_COPY(to, from) __builtin_memcpy(to, from, sizeof(T))
#endif
#define PULLBACK_GET(value, x, i) T value; PULLBACK_COPY(&value, x##_at + ((i) * columns + column) * x##_step)
#define PULLBACK_PUT(x, i, value) PULLBACK_COPY(x##_at + ((i) * columns + column) * x##_step, &value)
    auto strip = [&](auto none, int column) {{
        typedef decltype(none) T;
"""
_STRIPS = """
    }};
    int column = 0;
#if !defined(__CUDA_ARCH__)
    typedef {real} Wide __attribute__((ext_vector_type({wide})));
    typedef {real} Four __attribute__((ext_vector_type(4)));
    for (; column + {wide} <= columns; column += {wide}) strip(Wide(0), column);
    for (; column + 4 <= columns; column += 4) strip(Four(0), column);
#endif
    for (; column < columns; ++column) strip(static_cast<{real}>(0), column);
#undef PULLBACK_COPY
#undef PULLBACK_GET
#undef PULLBACK_PUT
"""

_NUMBER = """
    auto {name} = [&](int k) {{ return *reinterpret_cast<{real}*>({x}_at + k * {x}_step); }};
"""

_FACTOR = """
        if (transposed) {{
            for (int v = n - 1; v >= 0; --v) {{
                PULLBACK_GET(mine, x, v);
                mine *= L(v * n + v);
                PULLBACK_PUT(x, v, mine);
                for (int u = parent.data[v]; u >= 0; u = parent.data[u]) {{
                    PULLBACK_GET(other, x, u);
                    other -= L(v * n + u) * mine;
                    PULLBACK_PUT(x, u, other);
                }}
            }}
        }} else {{
            for (int v = 0; v < n; ++v) {{
                PULLBACK_GET(mine, x, v);
                for (int u = parent.data[v]; u >= 0; u = parent.data[u]) {{
                    PULLBACK_GET(other, x, u);
                    mine -= L(v * n + u) * other;
                }}
                mine *= L(v * n + v);
                PULLBACK_PUT(x, v, mine);
            }}
        }}
"""

_LOWER_UPPER = """
#define PULLBACK_A(i, j) (*reinterpret_cast<{real}*>(a_at + ((i) * n + (j)) * a_step))
#define PULLBACK_EQUATION(j) (*reinterpret_cast<{real}*>(a_at + (equation + (j)) * a_step))
    int rank = 0;
    for (int j = 0; j < n; ++j) {{
        int pivot = rank;
        for (int i = rank + 1; i < n; ++i)
            if (fabs(PULLBACK_A(i, j)) > fabs(PULLBACK_A(pivot, j))) pivot = i;
        {real} size = 0;
        for (int i = 0; i < rank; ++i) size += fabs(PULLBACK_A(i, j));
        PULLBACK_EQUATION(j) = -1;
        if (fabs(PULLBACK_A(pivot, j)) <= {negligible} * size) continue;
        PULLBACK_EQUATION(n + rank) = pivot;
        if (pivot != rank)
            for (int k = 0; k < n; ++k) {{
                const {real} t = PULLBACK_A(rank, k);
                PULLBACK_A(rank, k) = PULLBACK_A(pivot, k);
                PULLBACK_A(pivot, k) = t;
            }}
        const {real} inverse = 1 / PULLBACK_A(rank, j);
        PULLBACK_A(rank, j) = inverse;
        for (int i = rank + 1; i < n; ++i) {{
            const {real} factor = PULLBACK_A(i, j) * inverse;
            PULLBACK_A(i, j) = factor;
            if (factor != 0) {{
                PULLBACK_TOGETHER
                for (int k = j + 1; k < n; ++k) PULLBACK_A(i, k) -= factor * PULLBACK_A(rank, k);
            }}
        }}
        PULLBACK_EQUATION(j) = rank++;
    }}
#undef PULLBACK_A
#undef PULLBACK_EQUATION
"""

_SUBSTITUTE = """
        // the transpose of the upper factor; the solution of its row k takes the place of entry k
        for (int j = 0; j < n; ++j) {{
            const int row = static_cast<int>(A(equation + j));
            if (row < 0) continue;
            PULLBACK_GET(mine, x, j);
            for (int i = 0; i < row; ++i) {{
                const {real} factor = A(i * n + j);
                if (factor != 0) {{
                    PULLBACK_GET(other, x, i);
                    mine -= factor * other;
                }}
            }}
            mine *= A(row * n + j);
            PULLBACK_PUT(x, row, mine);
        }}
        const T zero = T(0);
        for (int i = rank; i < n; ++i) PULLBACK_PUT(x, i, zero);
        // the transpose of the lower factor
        for (int j = n - 1; j >= 0; --j) {{
            const int row = static_cast<int>(A(equation + j));
            if (row < 0) continue;
            PULLBACK_GET(mine, x, row);
            for (int i = row + 1; i < rank; ++i) {{
                const {real} factor = A(i * n + j);
                if (factor != 0) {{
                    PULLBACK_GET(other, x, i);
                    mine -= factor * other;
                }}
            }}
            PULLBACK_PUT(x, row, mine);
        }}
        // the exchanges, undone in reverse
        for (int i = rank - 1; i >= 0; --i) {{
            const int pivot = static_cast<int>(A(equation + n + i));
            if (pivot != i) {{
                PULLBACK_GET(mine, x, i);
                PULLBACK_GET(other, x, pivot);
                PULLBACK_PUT(x, i, other);
                PULLBACK_PUT(x, pivot, mine);
            }}
        }}
"""

_OUTER = """
        PULLBACK_GET(first, y, 0);
        PULLBACK_GET(second, y, 1);
        PULLBACK_GET(third, y, 2);
        for (int d = start; d < end; ++d) {{
            const int v = dof.data[d];
            PULLBACK_GET(value, x, v);
            first += F(3 * v) * value;
            second += F(3 * v + 1) * value;
            third += F(3 * v + 2) * value;
        }}
        PULLBACK_PUT(y, 0, first);
        PULLBACK_PUT(y, 1, second);
        PULLBACK_PUT(y, 2, third);
"""

_INNER = """
        PULLBACK_GET(first, x, 0);
        PULLBACK_GET(second, x, 1);
        PULLBACK_GET(third, x, 2);
        for (int d = start; d < end; ++d) {{
            const int v = dof.data[d];
            PULLBACK_GET(value, y, v);
            value += F(3 * v) * first + F(3 * v + 1) * second + F(3 * v + 2) * third;
            PULLBACK_PUT(y, v, value);
        }}
"""

# rows of one matrix that differ do not overlap, which a compiler cannot know
_TOGETHER = """
#if defined(__CUDA_ARCH__)
#define PULLBACK_TOGETHER
#else
#define PULLBACK_TOGETHER _Pragma("clang loop vectorize(assume_safety)")
#endif
"""


def _loop(real: str, action: str) -> str:
    return f"    for (int k = 0; k < n; ++k) {value(real, 'x')} {action};"


def _number(real: str, name: str, x: str) -> str:
    """Return code that makes the numbers of an array a function of their place."""
    return _NUMBER.format(name=name, real=real, x=x)


def _strips(real: str, code: str, wide: int) -> str:
    """Return code that is done for all columns, in strips of `wide` bytes."""
    return (_STRIP + code + _STRIPS).format(real=real, wide=wide // (4 if real == "float" else 8))


for _real, _name in ((wp.float32, "float"), (wp.float64, "double")):
    _a = wp.array2d(dtype=_real)
    _i = wp.array(dtype=wp.int32)

    @wp.func_native(runs("x") + _loop(_name, "= 0"))
    def fill(x: _a, x_row: int, n: int, w: int):
        """Write n zeros."""

    @wp.func_native(runs("x", "y") + _loop(_name, "= " + value(_name, "y")))
    def copy_run(x: _a, x_row: int, y: _a, y_row: int, n: int, w: int):
        """Write n rows of y to x."""

    @wp.func_native(runs("f", "x", "y") + _number(_name, "F", "f") + _strips(_name, _OUTER, 64))
    def add_rows_of_dofs(
        dof: _i, start: int, end: int, f: _a, f_row: int, x: _a, x_row: int, columns: int, w: int, y: _a, y_row: int
    ):
        """Add the rows of x of some dofs, each times its three factors, to three rows of y."""

    @wp.func_native(runs("f", "x", "y") + _number(_name, "F", "f") + _strips(_name, _INNER, 64))
    def add_to_rows_of_dofs(
        dof: _i, start: int, end: int, f: _a, f_row: int, x: _a, x_row: int, columns: int, w: int, y: _a, y_row: int
    ):
        """Add three rows of x, times the three factors of a dof, to the row of y of each of some dofs."""

    @wp.func_native(
        "    const int l_row = 0, x_row = 0;" + runs("l", "x") + _number(_name, "L", "l") + _strips(_name, _FACTOR, 128)
    )
    def solve_columns(n: int, columns: int, transposed: bool, parent: _i, w: int, l: _a, x: _a):
        """Replace all columns of x by L^-1 x, or by L^-T x; see `solve_factor`."""

    @wp.func_native(
        "    const int a_row = 0, x_row = 0;"
        + _TOGETHER
        + runs("a", "x")
        + _number(_name, "A", "a")
        + _LOWER_UPPER.format(real=_name, negligible=NEGLIGIBLE[_name])
        + "#undef PULLBACK_TOGETHER\n"
        + _strips(_name, _SUBSTITUTE, 128)
    )
    def eliminate_transposed(n: int, columns: int, equation: int, w: int, a: _a, x: _a):
        """Solve the transpose of the n by n system a for all columns of x, in place, by elimination of a.

        Where a is singular this is the transpose of what `solve_large` does with it, eq. (26): entries of x that belong
        to columns left out there are ignored, and unknowns that belong to equations left out are zero. From row
        `equation` on, a keeps 2 n numbers: by which equation each column was eliminated, or -1, and the exchanges.
        """
