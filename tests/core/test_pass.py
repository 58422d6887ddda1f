"""Passes: a kernel over items, of which only integers change from launch to launch, with arguments by name and type."""

import pytest
import torch
import warp as wp

from pullback.core.modules import kernel_module
from pullback.core.passes import Pass
from pullback.core.tensors import make_struct, view

vec3 = wp.types.vector(3, wp.float64)


@wp.struct
class Line:
    slope: wp.float64
    offset: wp.array(dtype=wp.float64)
    direction: wp.array(dtype=vec3)


@wp.struct
class Other:
    slope: wp.float64


@wp.kernel(module=kernel_module("test_pass", wp.float64))
def add(first: int, amount: int, x: wp.array(dtype=wp.float64)):
    i = first + wp.tid()
    x[i] = x[i] + wp.float64(amount * i)


@wp.kernel(module=kernel_module("test_pass_struct", wp.float64))
def along(first: int, line: Line, count: wp.array(dtype=wp.int32), out: wp.array2d(dtype=wp.float64)):
    i = first + wp.tid()
    for k in range(3):
        out[i, k] = line.slope * line.direction[i][k] * wp.float64(count[i])
        if line.offset:
            out[i, k] = out[i, k] + line.offset[i]


def zeros(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


def test_a_pass_takes_the_items_it_is_told():
    x = zeros(10)
    run = Pass(add, {"x": x}, "cpu", integers=1)
    run(2, 3, 10)
    run(3, 1, 100)
    run(5, 0, 1)
    assert x.tolist() == [0, 0, 20, 330, 40, 0, 0, 0, 0, 0]


def test_threads_share_the_items(monkeypatch):
    monkeypatch.setattr(Pass, "ITEMS_PER_THREAD", 4)
    for count in (1, 7, 8, 1000, 1001):
        x = zeros(count)
        run = Pass(add, {"x": x}, "cpu", integers=1, threads=3)
        for amount in (1, 2):
            run(0, count, amount)
        assert x.tolist() == [3.0 * i for i in range(count)]


def test_a_view_has_no_destructor_that_could_swallow_ctrl_c():
    assert not hasattr(view(zeros(4)), "__del__")


@pytest.mark.parametrize("offset", [None, torch.ones(2, dtype=torch.float64)])
def test_structs_hold_tensors_by_name(offset):
    out, count = zeros(2, 3), torch.tensor([1, 2], dtype=torch.int32)
    # the only references to these tensors are the struct's
    line = make_struct(Line, slope=2.0, offset=offset, direction=torch.arange(6, dtype=torch.float64).view(2, 3))
    Pass(along, {"line": line, "count": count, "out": out}, "cpu")(0, 2)
    expected = 2.0 * torch.tensor([[0.0, 1.0, 2.0], [6.0, 8.0, 10.0]]) + (0.0 if offset is None else 1.0)
    assert out.tolist() == expected.tolist()


def arguments(**changes):
    line = make_struct(Line, slope=1.0, offset=None, direction=zeros(2, 3))
    return {"line": line, "count": zeros(2, dtype=torch.int32), "out": zeros(2, 3), **changes}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"outs": zeros(2, 3)}, r"kernel along: missing \[\], unknown \['outs'\]; it takes \['line', 'count', 'out'\]"),
        ({"count": zeros(2)}, r"count is \(2,\) of torch.float64; expected \(n\) of int32"),
        ({"count": zeros(2, 3)}, r"count is \(2, 3\)"),
        ({"out": zeros(2, 3, dtype=torch.float32)}, r"out is \(2, 3\) of torch.float32; expected \(n, n\) of float64"),
        ({"line": 1.0}, "line is a float; expected a Line"),
        ({"line": make_struct(Other, slope=1.0)}, "line is a Other; expected a Line"),
        ({"line": zeros(2)}, "line is a Tensor; expected a Line"),
    ],
)
def test_arguments_of_another_name_or_type_are_refused(changes, text):
    Pass(along, arguments(), "cpu")
    with pytest.raises(TypeError, match=text):
        Pass(along, arguments(**changes), "cpu")


def test_a_missing_argument_is_named():
    with pytest.raises(TypeError, match=r"missing \['out'\]"):
        Pass(along, {k: v for k, v in arguments().items() if k != "out"}, "cpu")
    with pytest.raises(TypeError, match=r"struct Line: missing \['offset'\]"):
        make_struct(Line, slope=1.0, direction=zeros(2, 3))


def test_fields_of_another_type_are_refused():
    with pytest.raises(TypeError, match=r"direction is \(2, 4\) of torch.float64; expected \(n, 3\) of float64"):
        make_struct(Line, slope=1.0, offset=None, direction=zeros(2, 4))
