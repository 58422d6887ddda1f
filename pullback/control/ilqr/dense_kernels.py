"""Small dense matrices that stand row by row in memory: views, products, solves (docs/derivations/ilqr.md, section 4).

A matrix is an array2d whose second stride is one number. On a CPU one thread does it all, and sums of several columns
are kept in registers; on a GPU the threads of a block, its `lanes`, share the entries of one product, and every thread
has to call these functions.
"""

from collections.abc import Sequence

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
#define PULLBACK_ROW(x, i) reinterpret_cast<{real}*>(reinterpret_cast<char*>(x.data) + size_t(i) * x.strides[0])
#define PULLBACK_AT(x, i, j) (PULLBACK_ROW(x, i)[j])
"""

_END = """
#undef PULLBACK_ROW
#undef PULLBACK_AT
"""

_SYNC = """
#if defined(__CUDA_ARCH__)
    __syncthreads();
#endif
"""

_PRODUCT = """
#if defined(__CUDA_ARCH__)
    for (int e = lane; e < rows * columns; e += lanes) {{
        const int i = e / columns, j = e - i * columns;
        if ({lower} && j > i) continue;
        {real} sum = {start};
        for (int k = 0; k < inner; ++k) sum += {factor} * PULLBACK_AT(b, k, j);
        PULLBACK_AT(y, i, j) = sum;
    }}
    __syncthreads();
#else
    int i = 0;
{blocks}
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
        PULLBACK_AT(y, 0, i) = PULLBACK_AT(plus, 0, i) + ((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }}
#endif
"""

_SOLVE = """
            for (int i = 0; i < n; ++i) {{
                {pack} sum = {x_i};
                for (int k = 0; k < i; ++k) sum -= PULLBACK_AT(l, i, k) * {x_k};
                {x_i} = sum * PULLBACK_AT(l, i, i);
            }}
            for (int i = n - 1; i >= 0; --i) {{
                {pack} sum = {x_i};
                for (int k = i + 1; k < n; ++k) sum -= PULLBACK_AT(l, k, i) * {x_k};
                {x_i} = sum * PULLBACK_AT(l, i, i);
            }}
"""

_FACTOR = """
    bool positive = true;
    for (int i = 0; i < n; ++i) {{
        for (int j = 0; j <= i; ++j) {{
            {real} sum = PULLBACK_AT(a, i, j);
            for (int k = 0; k < j; ++k) sum -= PULLBACK_AT(a, i, k) * PULLBACK_AT(a, j, k);
            if (i == j) {{
                positive = positive && sum > 0;
                PULLBACK_AT(a, i, i) = 1 / sqrt(sum);
            }} else
                PULLBACK_AT(a, i, j) = sum * PULLBACK_AT(a, j, j);
        }}
    }}
"""

_MIRROR = """
    for (int i = 0; i < n; ++i)
        for (int j = lane; j <= i; j += lanes) {{
            const {real} entry = PULLBACK_AT(a, i, j) + (i == j ? shift : 0);
            PULLBACK_AT(y, i, j) = entry;
            PULLBACK_AT(y, j, i) = entry;
        }}
"""

ROWS, WIDTHS = (4, 1), (8, 4, 2, 1)
"""How many rows and columns of a product are summed up in registers at once on a CPU."""


def _pack(real: str, width: int) -> str:
    """Return the definition of `width` neighbouring numbers."""
    attributes = f"vector_size({width} * sizeof({real})), aligned(sizeof({real})), may_alias"
    return f"typedef {real} pack{width}" + (f" __attribute__(({attributes}));" if width > 1 else ";")


def _packed(width: int, x: str, row: str) -> str:
    """Return `width` numbers of a row of x from column j on."""
    return f"*reinterpret_cast<pack{width}*>(PULLBACK_ROW({x}, {row}) + j)"


def _block(real: str, rows: int, width: int, start: str | None, factor: str) -> str:
    """Return the code of `rows` rows of y = start + a b, by runs of `width` columns while there are as many."""
    every = range(rows)
    pack = f"pack{width}"
    starts = " ".join(f"{pack} sum{r} = {_packed(width, start, f'i + {r}') if start else '{}'};" for r in every)
    sums = " ".join(f"sum{r} += {factor.replace('i', f'i + {r}')} * x;" for r in every)
    stores = " ".join(f"{_packed(width, 'y', f'i + {r}')} = sum{r};" for r in every)
    return f"""        {_pack(real, width)}
        for (; j + {width} <= last; j += {width}) {{
            {starts}
            for (int k = 0; k < inner; ++k) {{
                const {pack} x = {_packed(width, "b", "k")};
                {sums}
            }}
            {stores}
        }}
"""


def _solve(real: str) -> str:
    """Return the code that solves l l^T x = x, the diagonal of l inverted."""
    code = f"#if defined(__CUDA_ARCH__)\n    {_pack(real, 1)}\n    for (int j = lane; j < columns; j += lanes) {{\n"
    code += (
        _SOLVE.format(pack="pack1", x_i=_packed(1, "x", "i"), x_k=_packed(1, "x", "k")) + "    }\n#else\n    int j = 0;"
    )
    for width in WIDTHS:
        body = _SOLVE.format(pack=f"pack{width}", x_i=_packed(width, "x", "i"), x_k=_packed(width, "x", "k"))
        code += f"\n    {_pack(real, width)}\n    for (; j + {width} <= columns; j += {width}) {{\n{body}    }}"
    return _native(real, code + "\n#endif\n")


def _product(
    real: str, start: str | None, factor: tuple[str, str], *, rows: Sequence[int] = ROWS, lower: bool = False
) -> str:
    """Return the code of y = start + a b, with a's entry at `factor`; of the lower triangle, and a bit, if `lower`."""
    entry = f"PULLBACK_AT(a, {factor[0]}, {factor[1]})"
    blocks = ""
    for count in rows:
        last = f"(i + {count} < columns ? i + {count} : columns)" if lower else "columns"
        inner = "".join(_block(real, count, width, start, entry) for width in WIDTHS)
        blocks += f"    for (; i + {count} <= rows; i += {count}) {{\n        const int last = {last};\n"
        blocks += f"        int j = 0;\n{inner}    }}\n"
    first = f"PULLBACK_AT({start}, i, j)" if start else "0"
    code = _PRODUCT.format(real=real, start=first, factor=entry, lower=str(lower).lower(), blocks=blocks)
    return _native(real, code)


def _native(real: str, code: str) -> str:
    """Return code between the definitions that it uses and their end."""
    return _AT.format(real=real) + code + _END


_PLAIN, _TRANSPOSED = ("i", "k"), ("k", "i")


@wp.func_native(_SYNC)
def sync():
    """Wait for the other lanes, and see what they have written."""


for _real, _name in ((wp.float32, "float"), (wp.float64, "double")):
    _a = wp.array2d(dtype=_real)

    @wp.func_native(_MATRIX.format(real=_name))
    def matrix(a: _a, item: int, start: int, columns: int) -> _a:
        """See what starts in an item of `a` as a matrix; 0 columns: its rows lie as far apart as those of `a`."""

    @wp.func_native(_product(_name, None, _PLAIN))
    def product(y: _a, a: _a, b: _a, rows: int, inner: int, columns: int, lane: int, lanes: int):
        """Write a b to y."""

    @wp.func_native("    const int rows = 1;\n" + _product(_name, None, _PLAIN, rows=(1,)))
    def row_product(y: _a, a: _a, b: _a, inner: int, columns: int, lane: int, lanes: int):
        """Write a b to y for a row a."""

    @wp.func_native("    const int rows = 1;\n" + _product(_name, "plus", _PLAIN, rows=(1,)))
    def plus_row_product(y: _a, plus: _a, a: _a, b: _a, inner: int, columns: int, lane: int, lanes: int):
        """Write plus + a b to y, which may be `plus`, for a row a."""

    @wp.func_native(_product(_name, "plus", _TRANSPOSED))
    def plus_transposed(y: _a, plus: _a, a: _a, b: _a, rows: int, inner: int, columns: int, lane: int, lanes: int):
        """Write plus + a^T b to y, which may be `plus`."""

    @wp.func_native(_product(_name, "plus", _TRANSPOSED, lower=True))
    def plus_symmetric(y: _a, plus: _a, a: _a, b: _a, rows: int, inner: int, columns: int, lane: int, lanes: int):
        """Write the lower triangle of plus + a^T b, which is symmetric, to y, which may be `plus`."""

    @wp.func_native(_native(_name, _MIRROR.format(real=_name)))
    def mirror(y: _a, a: _a, shift: _real, n: int, lane: int, lanes: int):
        """Write the symmetric matrix whose lower triangle is that of a to y, with `shift` added to its diagonal."""

    @wp.func_native(_native(_name, _DOTS.format(real=_name)))
    def plus_dots(y: _a, plus: _a, a: _a, x: _a, rows: int, inner: int, lane: int, lanes: int):
        """Write plus + a x to y, all vectors rows."""

    @wp.func_native(_solve(_name))
    def solve_cholesky(l: _a, x: _a, n: int, columns: int, lane: int, lanes: int):
        """Solve a x = x in place, l from `factor_cholesky`; a lane has its own columns and waits for no other."""

    @wp.func_native(_native(_name, _FACTOR.format(real=_name)) + "    return positive;")
    def factor_cholesky(a: _a, n: int) -> bool:
        """Replace the lower triangle of a by its Cholesky factor, diagonal inverted; false if a is not positive."""
