"""Structs by reference in generated C++: that ours are, that others are not, and that nobody writes to one."""

import ast
import re
from pathlib import Path

import pytest
import torch
import warp as wp

import pullback
from pullback.core.codegen import BY_REFERENCE
from pullback.core.modules import CPU_FLAGS, LARGE_CPU_FLAGS, initialize, kernel_module
from pullback.core.tensors import view


@wp.struct
class Size:
    height: int
    width: int


@wp.struct
class Shape:
    size: Size
    depth: int


@wp.func
def area(size: Size):
    return size.height * size.width


@wp.func
def volume(shape: Shape):
    return area(shape.size) * shape.depth


def shape_kernel(module):
    @wp.kernel(module=module, enable_backward=False)
    def write_volume(shape: Shape, out: wp.array(dtype=wp.float64)):
        out[wp.tid()] = wp.float64(volume(shape))

    return write_volume


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return an empty cache of kernels: Warp leaves the C++ of a module there."""
    initialize()
    monkeypatch.setattr(wp.config, "kernel_cache_dir", str(tmp_path))
    return tmp_path


def source_of(module, cache):
    (source,) = cache.rglob(f"{module.get_module_identifier(block_dim=1)}.cpp")
    return source.read_text()


def volumes(module):
    shape = Shape()
    shape.size.height, shape.size.width, shape.depth = 2, 3, 7
    out = torch.zeros(4, dtype=torch.float64)
    wp.launch(shape_kernel(module), dim=4, inputs=[shape, view(out)], device="cpu")
    return out.tolist()


def by_value(source):
    return re.findall(r"^    (?:Shape|Size)_\w+ var_\w+(?:[,)]| = _wp_args)", source, re.MULTILINE)


def references(source):
    return re.findall(r"^    (?:Shape|Size)_\w+& var_\w+(?:[,)]| = _wp_args)", source, re.MULTILINE)


def test_our_kernels_take_structs_by_reference(cache):
    module = kernel_module("test_by_reference", wp.float64)
    assert volumes(module) == [42.0] * 4
    source = source_of(module, cache)
    assert len(references(source)) >= 3
    assert not by_value(source)


def test_kernels_of_others_stay_as_they_are(cache):
    module = wp.get_module("somebody.elses")
    assert volumes(module) == [42.0] * 4
    source = source_of(module, cache)
    assert len(by_value(source)) >= 3
    assert not references(source)


def test_binaries_with_and_without_references_have_different_names(cache):
    """Their C++ differs and their Python does not, so a flag must tell them apart."""
    ours, plain = kernel_module("test_two_names", wp.float64), wp.get_module("pullback.test_two_names.plain")
    plain.options.update({**ours.options, "cpu_compiler_flags": CPU_FLAGS.replace(BY_REFERENCE, "")})
    for module in (ours, plain):
        shape_kernel(module)
    assert BY_REFERENCE in CPU_FLAGS
    assert ours.get_module_hash(1) != plain.get_module_hash(1)


def test_large_kernels_are_told_to_inline_less():
    """Where Warp's flags change, this is to be looked at again."""
    assert "inline-threshold=1000 " in LARGE_CPU_FLAGS
    assert "inline-cold-callsite-threshold=300 " in LARGE_CPU_FLAGS


def decorated(node, *names):
    found = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(ast.unparse(d) in names for d in found)


def root(target):
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else None


def written_to(function):
    """Return the names that a function assigns to, or to whose fields it does; not entries of arrays in them."""
    found = set()
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        for target in targets:
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                if not isinstance(one, ast.Subscript):
                    found.add(root(one))
    return found


def test_no_function_writes_to_a_struct_it_is_given():
    trees = [ast.parse(path.read_text()) for path in Path(pullback.__file__).parent.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    structs = {node.name for node in nodes if isinstance(node, ast.ClassDef) and decorated(node, "wp.struct")}
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef) and decorated(n, "wp.func", "wp.kernel")]
    assert {"Job", "Scene", "Topology"} <= structs
    seen = 0
    for function in functions:
        arguments = [a for a in function.args.args if a.annotation is not None]
        given = {a.arg for a in arguments if ast.unparse(a.annotation) in structs}
        seen += len(given)
        assert not given & written_to(function), function.name
    assert seen > 200


def test_large_modules_compute_the_same_from_less_code(cache):
    module = kernel_module("test_large_module", wp.float64, large=True)
    assert volumes(module) == [42.0] * 4
    source = source_of(module, cache)
    assert not by_value(source)
    assert "wp::mul(" not in source
    assert "adj_volume" not in source
    assert not list(cache.rglob("*.pch"))
