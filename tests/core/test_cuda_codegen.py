"""CUDA source of our modules: compiled to PTX, which needs no GPU, and what it looks like."""

import re

import pytest
import warp as wp

from pullback.core.cuda_codegen import OUTLINED, for_cuda
from pullback.core.modules import initialize, kernel_module


@wp.struct
class Part:
    rows: int


@wp.struct
class Whole:
    part: Part
    count: int


@wp.func
def total(part: Part, x: wp.array2d(dtype=wp.float64), w: int):
    value = wp.float64(0.0)
    for r in range(part.rows):
        if x[r, w] < wp.float64(0.0):
            continue
        if x[r, w] > wp.float64(9.0):
            break
        value += x[r, w]
    # Warp writes loops over constant ranges in another way
    for _ in range(100):
        if value < wp.float64(1.0):
            break
        value *= wp.float64(0.5)
    return value


@wp.func
def total_of_part(whole: Whole, x: wp.array2d(dtype=wp.float64), w: int):
    part = whole.part
    return total(part, x, w)


def total_kernel(module):
    @wp.kernel(module=module, enable_backward=False)
    def write_totals(whole: Whole, x: wp.array2d(dtype=wp.float64), out: wp.array2d(dtype=wp.float64)):
        w = wp.tid()
        out[0, w] = total_of_part(whole, x, w)

    return write_totals


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return the CUDA source of a module and its PTX."""
    initialize()
    folder = tmp_path_factory.mktemp("ptx")
    module = kernel_module("cuda_codegen_test", wp.float64)
    total_kernel(module)
    wp.compile_aot_module(module, arch=90, module_dir=folder, use_ptx=True)
    (source,) = folder.glob("*.cu")
    (ptx,) = folder.glob("*.ptx")
    return source.read_text(), ptx.read_text()


def test_structs_stay_in_constant_memory(compiled):
    source, ptx = compiled
    assert re.search(r"const __grid_constant__ Whole_\w+ given_var_whole", source)
    assert re.search(r"Whole_\w+& var_whole = const_cast<", source)
    # nothing is copied to the threads' own memory
    assert ".local" not in ptx


def test_parts_of_structs_are_pointed_to(compiled):
    source, _ = compiled
    assert re.search(r"Part_\w+\* at_var_\d+;", source)
    assert not re.search(r"^ +Part_\w+ var_\d+;$", source, re.MULTILINE)


def test_loops_keep_their_meaning(compiled):
    source, _ = compiled
    body = source[source.index("total_0(") :]
    assert body.count("#pragma unroll 1") == 2
    assert "start_for" not in source
    assert re.search(r"goto next_for_(\d+);.*goto end_for_\1;.*next_for_\1:; }\s*end_for_\1:;", body, re.DOTALL)


def test_elements_are_found_by_our_addresses(compiled):
    source, _ = compiled
    assert "*pullback_at(var_out, " in source
    assert "= pullback_at(var_x, " in source
    assert "wp::address(var_x" not in source


def test_large_functions_are_called():
    statement = "    var_1 = wp::add(var_2, var_3);\n"
    small = f"static CUDA_CALLABLE void small_0(\n    int var_x)\n{{\n{statement}}}\n"
    large = f"static CUDA_CALLABLE void large_0(\n    int var_x)\n{{\n{(OUTLINED + 1) * statement}}}\n"
    caller = "static CUDA_CALLABLE void caller_0(\n    int var_x)\n{\n    large_0(var_1);\n    small_0(var_1);\n}\n"
    source = for_cuda(small + large + caller)
    assert re.findall(r"WP_NOINLINE CUDA_CALLABLE void (\w+)", source) == ["large_0"]
