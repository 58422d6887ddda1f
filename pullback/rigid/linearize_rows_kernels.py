"""Matrices that stand row by row in the rows of a world: loops over their columns (docs/derivations/linearize.md).

On a CPU the rows of a world are neighbours in memory, as for pullback/spatial/arrays.py, and these are loops over plain
memory, which do not overlap; on a GPU it is the worlds of a row that are.
"""

import warp as wp

_RUN = """
    char* {x}_at = reinterpret_cast<char*>({x}.data) + size_t(w) * {x}.strides[1];
#if defined(__CUDA_ARCH__)
    const size_t {x}_step = {x}.strides[0];
#else
    const size_t {x}_step = sizeof(*{x}.data);
#endif
    {x}_at += {x}_row * {x}_step;
"""

_SOLVE = """
#define PULLBACK_A(i, j) (*reinterpret_cast<{real}*>(a_at + ((i) * n + (j)) * a_step))
#define PULLBACK_X(i, k) (*reinterpret_cast<{real}*>(x_at + ((i) * columns + (k)) * x_step))
    for (int j = 0; j < n; ++j) {{
        int pivot = j;
        for (int i = j + 1; i < n; ++i)
            if (fabs(PULLBACK_A(i, j)) > fabs(PULLBACK_A(pivot, j))) pivot = i;
        if (pivot != j) {{
            for (int k = j; k < n; ++k) {{
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
            if (factor != 0) {{
                PULLBACK_TOGETHER
                for (int k = j + 1; k < n; ++k) PULLBACK_A(i, k) -= factor * PULLBACK_A(j, k);
                PULLBACK_TOGETHER
                for (int k = 0; k < columns; ++k) PULLBACK_X(i, k) -= factor * PULLBACK_X(j, k);
            }}
        }}
    }}
    for (int j = n - 1; j >= 0; --j) {{
        for (int i = j + 1; i < n; ++i) {{
            const {real} factor = PULLBACK_A(j, i);
            PULLBACK_TOGETHER
            for (int k = 0; k < columns; ++k) PULLBACK_X(j, k) -= factor * PULLBACK_X(i, k);
        }}
        const {real} inverse = PULLBACK_A(j, j);
        for (int k = 0; k < columns; ++k) PULLBACK_X(j, k) *= inverse;
    }}
#undef PULLBACK_A
#undef PULLBACK_X
"""

_FACTOR = """
#define PULLBACK_L(i, j) (*reinterpret_cast<{real}*>(l_at + ((i) * n + (j)) * l_step))
#define PULLBACK_X(i, k) (*reinterpret_cast<{real}*>(x_at + ((i) * columns + (k)) * x_step))
    for (int b = 0; b < n; ++b) {{
        const int v = transposed ? n - 1 - b : b;
        const {real} inverse = PULLBACK_L(v, v);
        if (transposed)
            for (int k = 0; k < columns; ++k) PULLBACK_X(v, k) *= inverse;
        for (int u = parent.data[v]; u >= 0; u = parent.data[u]) {{
            const {real} factor = PULLBACK_L(v, u);
            const int to = transposed ? u : v, from = transposed ? v : u;
            PULLBACK_TOGETHER
            for (int k = 0; k < columns; ++k) PULLBACK_X(to, k) -= factor * PULLBACK_X(from, k);
        }}
        if (!transposed)
            for (int k = 0; k < columns; ++k) PULLBACK_X(v, k) *= inverse;
    }}
#undef PULLBACK_L
#undef PULLBACK_X
"""

_OUTER = """
#define PULLBACK_X(k) (*reinterpret_cast<{real}*>(x_at + (k) * x_step))
#define PULLBACK_Y(d, k) (*reinterpret_cast<{real}*>(y_at + ((d) * columns + (k)) * y_step))
    PULLBACK_TOGETHER
    for (int k = 0; k < columns; ++k) {{
        const {real} value = PULLBACK_X(k);
        PULLBACK_Y(0, k) += factor[0] * value;
        PULLBACK_Y(1, k) += factor[1] * value;
        PULLBACK_Y(2, k) += factor[2] * value;
    }}
#undef PULLBACK_X
#undef PULLBACK_Y
"""

_INNER = """
#define PULLBACK_X(d, k) (*reinterpret_cast<{real}*>(x_at + ((d) * columns + (k)) * x_step))
#define PULLBACK_Y(k) (*reinterpret_cast<{real}*>(y_at + (k) * y_step))
    PULLBACK_TOGETHER
    for (int k = 0; k < columns; ++k)
        PULLBACK_Y(k) += factor[0] * PULLBACK_X(0, k) + factor[1] * PULLBACK_X(1, k) + factor[2] * PULLBACK_X(2, k);
#undef PULLBACK_X
#undef PULLBACK_Y
"""

# rows of one matrix that differ do not overlap, which a compiler cannot know
_TOGETHER = '_Pragma("clang loop vectorize(assume_safety)")'


def _value(real: str, x: str) -> str:
    return f"*reinterpret_cast<{real}*>({x}_at + k * {x}_step)"


def _loop(real: str, action: str) -> str:
    return f"    for (int k = 0; k < n; ++k) {_value(real, 'x')} {action};"


def _loops(real: str, code: str, *arrays: str, starts: str = "") -> str:
    """Return the code, with the starts of its arrays before it and loops that may do several columns at once."""
    together = f"""
#if defined(__CUDA_ARCH__)
#define PULLBACK_TOGETHER
#else
#define PULLBACK_TOGETHER {_TOGETHER}
#endif
"""
    runs = "".join(_RUN.format(x=x) for x in arrays)
    return together + starts + runs + code.format(real=real) + "#undef PULLBACK_TOGETHER\n"


for _real, _name in ((wp.float32, "float"), (wp.float64, "double")):
    _a = wp.array2d(dtype=_real)
    _v3 = wp.types.vector(3, _real)

    @wp.func_native(_RUN.format(x="x") + _loop(_name, "= 0"))
    def fill(x: _a, x_row: int, n: int, w: int):
        """Write n zeros."""

    @wp.func_native(_RUN.format(x="x") + _RUN.format(x="y") + _loop(_name, "= " + _value(_name, "y")))
    def copy_run(x: _a, x_row: int, y: _a, y_row: int, n: int, w: int):
        """Write n rows of y to x."""

    @wp.func_native(_loops(_name, _OUTER, "x", "y"))
    def add_outer(y: _a, y_row: int, factor: _v3, x: _a, x_row: int, columns: int, w: int):
        """Add a row of x, times each of three factors, to three rows of the matrix y."""

    @wp.func_native(_loops(_name, _INNER, "x", "y"))
    def add_inner(y: _a, y_row: int, factor: _v3, x: _a, x_row: int, columns: int, w: int):
        """Add three rows of the matrix x, each times its factor, to a row of y."""

    @wp.func_native(_loops(_name, _FACTOR, "l", "x", starts="    const int l_row = 0, x_row = 0;"))
    def solve_columns(n: int, columns: int, transposed: bool, parent: wp.array(dtype=wp.int32), w: int, l: _a, x: _a):
        """Replace all columns of x by L^-1 x, or by L^-T x; see `solve_factor`."""

    @wp.func_native(_loops(_name, _SOLVE, "a", "x", starts="    const int a_row = 0, x_row = 0;"))
    def eliminate(n: int, columns: int, w: int, a: _a, x: _a):
        """Solve the n by n system a for all columns of x, in place, with partial pivoting."""
