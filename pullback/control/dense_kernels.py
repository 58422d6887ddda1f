"""Small dense matrices that stand row by row in memory: views of them, products, triangular solves.

A matrix is an array2d whose second stride is one number. On a CPU one thread does it all, and sums of several columns
are kept in registers; on a GPU the threads of a block, its `lanes`, share the entries of one product, and every thread
has to call these functions.
"""

import warp as wp

BLOCK = 64
"""Lanes of a problem on a GPU: those of one block of threads, as pullback/core/launch.py launches them."""

_MATRIX = """
    wp::array_t<{real}> x = a;
    x.data = reinterpret_cast<{real}*>(reinterpret_cast<char*>(a.data) + size_t(item) * a.strides[1]) + start;
    if (columns) x.strides[0] = columns * sizeof({real});
    x.strides[1] = sizeof({real});
    return x;
"""

_AT = """
#define PULLBACK_AT(x, i, j) (reinterpret_cast<{real}*>(reinterpret_cast<char*>(x.data) + size_t(i) * x.strides[0])[j])
"""

_COLUMNS = """
        for (; j + {width} <= last; j += {width}) {{
            {real} sum[{width}];
            for (int c = 0; c < {width}; ++c) sum[c] = {start};
            for (int k = 0; k < inner; ++k) {{
                const {real} factor = {factor};
                for (int c = 0; c < {width}; ++c) sum[c] += factor * PULLBACK_AT(b, k, j + c);
            }}
            for (int c = 0; c < {width}; ++c) PULLBACK_AT(y, i, j + c) = sum[c];
        }}
"""

_SYNC = """
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
"""

_DOTS = """
#if defined(__CUDA_ARCH__)
    for (int i = lane; i < rows; i += lanes) {{
        {real} sum = PULLBACK_AT(plus, 0, i);
        for (int k = 0; k < inner; ++k) sum += PULLBACK_AT(a, i, k) * PULLBACK_AT(x, 0, k);
        PULLBACK_AT(y, 0, i) = sum;
    }}
    __syncthreads();
#else
    for (int i = 0; i < rows; ++i) {{
        {real} sum[4] = {{}};
        int k = 0;
        for (; k + 4 <= inner; k += 4)
            for (int c = 0; c < 4; ++c) sum[c] += PULLBACK_AT(a, i, k + c) * PULLBACK_AT(x, 0, k + c);
        for (; k < inner; ++k) sum[0] += PULLBACK_AT(a, i, k) * PULLBACK_AT(x, 0, k);
        PULLBACK_AT(y, 0, i) = PULLBACK_AT(plus, 0, i) + (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }}
#endif
#undef PULLBACK_AT
"""

_SOLVE = """
    for (int i = 0; i < n; ++i) {{
        for (int k = 0; k < i; ++k) {{
            const {real} factor = PULLBACK_AT(l, i, k);
            for (int j = lane; j < columns; j += lanes) PULLBACK_AT(x, i, j) -= factor * PULLBACK_AT(x, k, j);
        }}
        const {real} inverse = 1 / PULLBACK_AT(l, i, i);
        for (int j = lane; j < columns; j += lanes) PULLBACK_AT(x, i, j) *= inverse;
    }}
    for (int i = n - 1; i >= 0; --i) {{
        for (int k = i + 1; k < n; ++k) {{
            const {real} factor = PULLBACK_AT(l, k, i);
            for (int j = lane; j < columns; j += lanes) PULLBACK_AT(x, i, j) -= factor * PULLBACK_AT(x, k, j);
        }}
        const {real} inverse = 1 / PULLBACK_AT(l, i, i);
        for (int j = lane; j < columns; j += lanes) PULLBACK_AT(x, i, j) *= inverse;
    }}
#undef PULLBACK_AT
"""

_FACTOR = """
    for (int i = 0; i < n; ++i) {{
        for (int j = 0; j <= i; ++j) {{
            {real} sum = PULLBACK_AT(a, i, j);
            for (int k = 0; k < j; ++k) sum -= PULLBACK_AT(a, i, k) * PULLBACK_AT(a, j, k);
            if (i == j) {{
                if (!(sum > 0)) return false;
                PULLBACK_AT(a, i, i) = sqrt(sum);
            }} else
                PULLBACK_AT(a, i, j) = sum / PULLBACK_AT(a, j, j);
        }}
    }}
    return true;
#undef PULLBACK_AT
"""


_MIRROR = """
    for (int i = 0; i < n; ++i)
        for (int j = lane; j <= i; j += lanes) {{
            const {real} entry = PULLBACK_AT(a, i, j) + (i == j ? shift : 0);
            PULLBACK_AT(y, i, j) = entry;
            PULLBACK_AT(y, j, i) = entry;
        }}
#undef PULLBACK_AT
"""

_PRODUCT = """
#if defined(__CUDA_ARCH__)
    for (int e = lane; e < rows * columns; e += lanes) {{
        const int i = e / columns, j = e - i * columns, c = 0;
        if (lower && j > i) continue;
        {real} sum = {start};
        for (int k = 0; k < inner; ++k) sum += {factor} * PULLBACK_AT(b, k, j);
        PULLBACK_AT(y, i, j) = sum;
    }}
    __syncthreads();
#else
    for (int i = 0; i < rows; ++i) {{
        const int last = lower ? i + 1 : columns;
        int j = 0;
{blocks}
    }}
#endif
#undef PULLBACK_AT
"""


def _product(real: str, start: str, factor: str, lower: str = "false") -> str:
    """Return the code of y = start + a b, whose entry of a is `factor`; of its lower triangle only, if `lower`."""
    blocks = "".join(_COLUMNS.format(real=real, width=width, start=start, factor=factor) for width in (8, 4, 2, 1))
    code = _PRODUCT.format(real=real, start=start, factor=factor, blocks=blocks)
    return _AT.format(real=real) + f"    const bool lower = {lower};\n" + code


_PLUS = "PULLBACK_AT(plus, i, j + c)"
_PLAIN = "PULLBACK_AT(a, i, k)"
_TRANSPOSED = "PULLBACK_AT(a, k, i)"


@wp.func_native(_SYNC)
def sync():
    """Wait for the other lanes, and see what they have written."""


for _real, _name in ((wp.float32, "float"), (wp.float64, "double")):
    _a = wp.array2d(dtype=_real)
    _at = _AT.format(real=_name)

    @wp.func_native(_MATRIX.format(real=_name))
    def matrix(a: _a, item: int, start: int, columns: int) -> _a:
        """See what starts in an item of `a` as a matrix; 0 columns: its rows lie as far apart as those of `a`."""

    @wp.func_native(_product(_name, "0", _PLAIN))
    def product(y: _a, a: _a, b: _a, rows: int, inner: int, columns: int, lane: int, lanes: int):
        """Write a b to y."""

    @wp.func_native(_product(_name, _PLUS, _PLAIN))
    def plus_product(y: _a, plus: _a, a: _a, b: _a, rows: int, inner: int, columns: int, lane: int, lanes: int):
        """Write plus + a b to y, which may be `plus`."""

    @wp.func_native(_product(_name, _PLUS, _TRANSPOSED))
    def plus_transposed(y: _a, plus: _a, a: _a, b: _a, rows: int, inner: int, columns: int, lane: int, lanes: int):
        """Write plus + a^T b to y, which may be `plus`."""

    @wp.func_native(_product(_name, _PLUS, _TRANSPOSED, lower="true"))
    def plus_symmetric(y: _a, plus: _a, a: _a, b: _a, rows: int, inner: int, columns: int, lane: int, lanes: int):
        """Write the lower triangle of plus + a^T b, which is symmetric, to y, which may be `plus`."""

    @wp.func_native(_at + _MIRROR.format(real=_name))
    def mirror(y: _a, a: _a, shift: _real, n: int, lane: int, lanes: int):
        """Write the symmetric matrix whose lower triangle is that of a to y, with `shift` added to its diagonal."""

    @wp.func_native(_at + _DOTS.format(real=_name))
    def plus_dots(y: _a, plus: _a, a: _a, x: _a, rows: int, inner: int, lane: int, lanes: int):
        """Write plus + a x to y, all vectors rows."""

    @wp.func_native(_at + _SOLVE.format(real=_name))
    def solve_cholesky(l: _a, x: _a, n: int, columns: int, lane: int, lanes: int):
        """Solve l l^T x = x in place; each lane has columns of its own, and does not wait for the others."""

    @wp.func_native(_at + _FACTOR.format(real=_name))
    def factor_cholesky(a: _a, n: int) -> bool:
        """Replace the lower triangle of a by its Cholesky factor, by one thread; false if a is not positive."""
