"""Products of runs of rows, for the adjoints of the contact solver (docs/derivations/contact_solver.md).

An array is indexed [row, world]. On a CPU the rows of a world must be neighbours in memory, as for
pullback/spatial/arrays.py, so that these loops are loops over plain memory.
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
_VALUE = "*reinterpret_cast<{real}*>({x}_at + k * {x}_step)"


def _product(real: str) -> str:
    x, y = (_VALUE.format(real=real, x=name) for name in "xy")
    loop = f"    {real} sum = 0; for (int k = 0; k < n; ++k) sum += {x} * {y}; return sum;"
    return _RUN.format(x="x") + _RUN.format(x="y") + loop


def _addition(real: str) -> str:
    x, y = (_VALUE.format(real=real, x=name) for name in "xy")
    # four at a time, read before they are written: a GPU then waits once for all of them
    four = "; ".join(f"{real} s{i} = {x}, t{i} = {y}".replace("k *", f"(k + {i}) *") for i in range(4))
    sums = "; ".join(f"{y} = t{i} + factor * s{i}".replace("k *", f"(k + {i}) *") for i in range(4))
    loop = f"    int k = 0; for (; k + 3 < n; k += 4) {{ {four}; {sums}; }} for (; k < n; ++k) {y} += factor * {x};"
    return _RUN.format(x="x") + _RUN.format(x="y") + loop


for _real, _name in ((wp.float32, "float"), (wp.float64, "double")):
    _a = wp.array2d(dtype=_real)

    @wp.func_native(_product(_name))
    def dot_rows(x: _a, x_row: int, y: _a, y_row: int, n: int, w: int) -> _real:
        """Return the sum of the products of n rows of x and of y."""

    @wp.func_native(_addition(_name))
    def add_multiple(y: _a, y_row: int, factor: _real, x: _a, x_row: int, n: int, w: int):
        """Add `factor` times n rows of x to as many of y."""
