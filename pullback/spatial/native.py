"""C++ that native functions share: where the rows of a world lie in memory.

On a CPU the rows of a world are neighbours (`core/arrays.py` sees to it); on a GPU the worlds of a row are.
"""

_RUN = """
#if defined(__CUDA_ARCH__)
    // products of 32-bit numbers: those of 64 bits take four instructions
    const long long {x}_step = {x}.strides[0];
    char* {x}_at = reinterpret_cast<char*>({x}.data) + static_cast<long long>(w) * {x}.strides[1];
    {x}_at += static_cast<long long>({x}_row) * {x}.strides[0];
#else
    const size_t {x}_step = sizeof(*{x}.data);
    char* {x}_at = reinterpret_cast<char*>({x}.data) + size_t(w) * {x}.strides[1];
    {x}_at += {x}_row * {x}_step;
#endif
"""


def runs(*arrays: str) -> str:
    """Return code that sets, for each array x, `x_at` to its row `x_row` of world w, and `x_step` from row to row."""
    return "".join(_RUN.format(x=x) for x in arrays)


def value(real: str, x: str) -> str:
    """Return the expression for the k-th number from there on."""
    return f"*reinterpret_cast<{real}*>({x}_at + k * {x}_step)"
