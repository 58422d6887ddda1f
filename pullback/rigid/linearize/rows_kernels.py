"""Matrices that stand row by row in the rows of a world: loops over their columns (docs/derivations/linearize.md).

On a CPU the rows of a world are neighbours in memory, as for pullback/spatial/arrays.py, and columns are done in strips
that stay in registers; on a GPU it is the worlds of a row that are neighbours, and columns are done one by one.
"""

import warp as wp

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
#define PULLBACK_X(i, k) (*reinterpret_cast<{real}*>(x_at + ((i) * columns + (k)) * x_step))
    for (int j = 0; j < n; ++j) {{
        int pivot = j;
        for (int i = j + 1; i < n; ++i)
            if (fabs(PULLBACK_A(i, j)) > fabs(PULLBACK_A(pivot, j))) pivot = i;
        if (pivot != j) {{
            for (int k = 0; k < n; ++k) {{
                {real} t = PULLBACK_A(j, k);
                PULLBACK_A(j, k) = PULLBACK_A(pivot, k);
                PULLBACK_A(pivot, k) = t;
            }}
            for (int k = 0; k < columns; ++k) {{
                {real} t = PULLBACK_X(j, k);
                PULLBACK_X(j, k) = PULLBACK_X(pivot, k);
                PULLBACK_X(pivot, k) = t;
            }}
        }}
        const {real} inverse = 1 / PULLBACK_A(j, j);
        PULLBACK_A(j, j) = inverse;
        for (int i = j + 1; i < n; ++i) {{
            const {real} factor = PULLBACK_A(i, j) * inverse;
            PULLBACK_A(i, j) = factor;
            if (factor != 0) {{
                PULLBACK_TOGETHER
                for (int k = j + 1; k < n; ++k) PULLBACK_A(i, k) -= factor * PULLBACK_A(j, k);
            }}
        }}
    }}
#undef PULLBACK_A
#undef PULLBACK_X
"""

_SUBSTITUTE = """
        for (int i = 1; i < n; ++i) {{
            PULLBACK_GET(mine, x, i);
            for (int j = 0; j < i; ++j) {{
                const {real} factor = A(i * n + j);
                if (factor != 0) {{
                    PULLBACK_GET(other, x, j);
                    mine -= factor * other;
                }}
            }}
            PULLBACK_PUT(x, i, mine);
        }}
        for (int i = n - 1; i >= 0; --i) {{
            PULLBACK_GET(mine, x, i);
            for (int j = i + 1; j < n; ++j) {{
                const {real} factor = A(i * n + j);
                if (factor != 0) {{
                    PULLBACK_GET(other, x, j);
                    mine -= factor * other;
                }}
            }}
            mine *= A(i * n + i);
            PULLBACK_PUT(x, i, mine);
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
        + _LOWER_UPPER.format(real=_name)
        + "#undef PULLBACK_TOGETHER\n"
        + _number(_name, "A", "a")
        + _strips(_name, _SUBSTITUTE, 128)
    )
    def eliminate(n: int, columns: int, w: int, a: _a, x: _a):
        """Solve the n by n system a for all columns of x, in place, with partial pivoting."""
