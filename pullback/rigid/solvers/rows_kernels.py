"""Products of runs of rows, for the contact solver and its adjoints (docs/derivations/contact_solver.md).

An array is indexed [row, world]. On a CPU the rows of a world must be neighbours in memory, as for
pullback/spatial/arrays.py, so that these loops are loops over plain memory.
"""

import warp as wp

from pullback.spatial.native import runs, value


def _product(real: str) -> str:
    x, y = (value(real, name) for name in "xy")
    loop = f"    {real} sum = 0; for (int k = 0; k < n; ++k) sum += {x} * {y}; return sum;"
    return runs("x", "y") + loop


def _addition(real: str) -> str:
    x, y = (value(real, name) for name in "xy")
    # four at a time, read before they are written: a GPU then waits once for all of them
    four = "; ".join(f"{real} s{i} = {x}, t{i} = {y}".replace("k *", f"(k + {i}) *") for i in range(4))
    sums = "; ".join(f"{y} = t{i} + factor * s{i}".replace("k *", f"(k + {i}) *") for i in range(4))
    loop = f"    int k = 0; for (; k + 3 < n; k += 4) {{ {four}; {sums}; }} for (; k < n; ++k) {y} += factor * {x};"
    return runs("x", "y") + loop


_ADD_THREE = """
    int k = 0;
#if !defined(__CUDA_ARCH__)
    typedef {real} Four __attribute__((ext_vector_type(4)));
    for (; k + 4 <= n; k += 4) {{
        Four sum, a, b, c;
        __builtin_memcpy(&sum, y_at + k * y_step, sizeof(Four));
        __builtin_memcpy(&a, x_at + k * x_step, sizeof(Four));
        __builtin_memcpy(&b, x_at + (n + k) * x_step, sizeof(Four));
        __builtin_memcpy(&c, x_at + (2 * n + k) * x_step, sizeof(Four));
        sum += first * a + second * b + third * c;
        __builtin_memcpy(y_at + k * y_step, &sum, sizeof(Four));
    }}
#endif
#define PULLBACK_X(k) (*reinterpret_cast<{real}*>(x_at + (k) * x_step))
    for (; k < n; ++k)
        *reinterpret_cast<{real}*>(y_at + k * y_step) +=
            first * PULLBACK_X(k) + second * PULLBACK_X(n + k) + third * PULLBACK_X(2 * n + k);
#undef PULLBACK_X
"""

_PRODUCTS = """
    {real} sum[9] = {{0}};
    for (int d = start; d < end; ++d) {{
        const int v = 3 * dof.data[d];
        for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j)
                sum[3 * i + j] += *reinterpret_cast<{real}*>(y_at + (v + i) * y_step)
                    * *reinterpret_cast<{real}*>(x_at + (v + j) * x_step);
    }}
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) {{
            *reinterpret_cast<{real}*>(a_at + ((row + i) * n + column + j) * a_step) = sum[3 * i + j];
            *reinterpret_cast<{real}*>(a_at + ((column + j) * n + row + i) * a_step) = sum[3 * i + j];
        }}
"""

_ISLANDS = """
    auto first = [=](int i) -> {real}& {{ return *reinterpret_cast<{real}*>(island_at + i * island_step); }};
    for (int i = 0; i < m; ++i) first(i) = i < 3 * nc ? i - i % 3 : i;
    for (int i = 0; i < m; ++i)
        for (int j = i + 1; j < m; ++j)
            if (*reinterpret_cast<{real}*>(A_at + (i * m + j) * A_step) != 0) {{
                int a = i, b = j;
                while (first(a) != a) a = first(a);
                while (first(b) != b) b = first(b);
                first(a < b ? b : a) = a < b ? a : b;
            }}
    for (int i = 0; i < m; ++i) first(i) = first(first(i));
"""

_SOLVE = """
    // elimination with partial pivoting on a copy that a thread has to itself: in registers and caches, not in the
    // arrays that all worlds share
    {real} a[SMALL * SMALL], x[SMALL];
    int row_of[SMALL], rank = 0;
    for (int k = 0; k < n * n; ++k) a[k] = *reinterpret_cast<{real}*>(work_at + k * work_step);
    for (int k = 0; k < n; ++k) x[k] = *reinterpret_cast<{real}*>(work_at + (right + k) * work_step);
    for (int j = 0; j < n; ++j) {{
        int pivot = rank;
        for (int i = rank + 1; i < n; ++i)
            if (fabs(a[i * n + j]) > fabs(a[pivot * n + j])) pivot = i;
        {real} size = 0;
        for (int i = 0; i < rank; ++i) size += fabs(a[i * n + j]);
        row_of[j] = -1;
        if (fabs(a[pivot * n + j]) <= {negligible} * size) continue;
        if (pivot != rank) {{
            for (int k = j; k < n; ++k) {{
                {real} t = a[rank * n + k];
                a[rank * n + k] = a[pivot * n + k];
                a[pivot * n + k] = t;
            }}
            {real} t = x[rank]; x[rank] = x[pivot]; x[pivot] = t;
        }}
        for (int i = rank + 1; i < n; ++i) {{
            const {real} factor = a[i * n + j] / a[rank * n + j];
            if (factor != 0) {{
                for (int k = j + 1; k < n; ++k) a[i * n + k] -= factor * a[rank * n + k];
                x[i] -= factor * x[rank];
            }}
        }}
        row_of[j] = rank++;
    }}
    for (int j = n - 1; j >= 0; --j) {{
        const int row = row_of[j];
        {real} sum = 0;
        if (row >= 0) {{
            sum = x[row];
            for (int k = j + 1; k < n; ++k) sum -= a[row * n + k] * x[k];
            sum /= a[row * n + j];
        }}
        x[j] = sum;
        *reinterpret_cast<{real}*>(work_at + (right + j) * work_step) = sum;
    }}
"""
SMALL = wp.constant(24)
NEGLIGIBLE = {"float": 5e-7, "double": 1e-13}
"""A pivot this small beside its column is rounding: the unknown is one that others make up for, and stays zero."""

for _real, _name in ((wp.float32, "float"), (wp.float64, "double")):
    _a = wp.array2d(dtype=_real)
    _i = wp.array(dtype=wp.int32)

    @wp.func_native(_product(_name))
    def dot_rows(x: _a, x_row: int, y: _a, y_row: int, n: int, w: int) -> _real:
        """Return the sum of the products of n rows of x and of y."""

    @wp.func_native(_addition(_name))
    def add_multiple(y: _a, y_row: int, factor: _real, x: _a, x_row: int, n: int, w: int):
        """Add `factor` times n rows of x to as many of y."""

    @wp.func_native("    const int y_row = 0;" + runs("x", "y") + _ADD_THREE.format(real=_name))
    def add_three_rows(y: _a, first: _real, second: _real, third: _real, x: _a, x_row: int, n: int, w: int):
        """Add three neighbouring rows of the matrix x, n wide, each times its factor, to the n rows of y."""

    @wp.func_native("    const int x_row = 0, a_row = 0;" + runs("x", "y", "a") + _PRODUCTS.format(real=_name))
    def write_products(
        dof: _i, start: int, end: int, y: _a, y_row: int, x: _a, n: int, w: int, a: _a, row: int, column: int
    ):
        """Write the products of three columns of y with three of x, over some dofs, to the symmetric n by n matrix."""

    @wp.func_native("    const int A_row = 0;" + runs("A", "island") + _ISLANDS.format(real=_name))
    def find_islands(nc: int, m: int, A: _a, w: int, island: _a, island_row: int):
        """Write for each row the first one of its island, within which the symmetric matrix couples contacts and rows.

        From row `island_row` of `island` on; an entry is a row's number.
        """

    @wp.func_native(
        "    const int work_row = 0;"
        + runs("work")
        + _SOLVE.format(real=_name, negligible=NEGLIGIBLE[_name]).replace("SMALL", str(int(SMALL)))
    )
    def solve_small(n: int, right: int, w: int, work: _a):
        """Solve the n by n system, n <= SMALL, in the first rows of work; the solution replaces the right-hand side.

        Columns that depend on those before get zeros, and as many equations are left out.
        """
