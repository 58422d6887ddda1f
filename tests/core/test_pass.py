"""Passes: a kernel over items, of which only integers change from launch to launch."""

import torch
import warp as wp

from pullback.core.modules import kernel_module
from pullback.core.passes import Pass
from pullback.core.tensors import view


@wp.kernel(module=kernel_module("test_pass", wp.float64))
def add(first: int, amount: int, x: wp.array(dtype=wp.float64)):
    i = first + wp.tid()
    x[i] = x[i] + wp.float64(amount * i)


def test_a_pass_takes_the_items_it_is_told():
    x = wp.zeros(10, dtype=wp.float64, device="cpu")
    run = Pass(add, [x], "cpu", integers=1)
    run(2, 3, 10)
    run(3, 1, 100)
    run(5, 0, 1)
    assert x.numpy().tolist() == [0, 0, 20, 330, 40, 0, 0, 0, 0, 0]


def test_threads_share_the_items(monkeypatch):
    monkeypatch.setattr(Pass, "ITEMS_PER_THREAD", 4)
    for count in (1, 7, 8, 1000, 1001):
        x = wp.zeros(count, dtype=wp.float64, device="cpu")
        run = Pass(add, [x], "cpu", integers=1, threads=3)
        for amount in (1, 2):
            run(0, count, amount)
        assert x.numpy().tolist() == [3.0 * i for i in range(count)]


def test_a_view_has_no_destructor_that_could_swallow_ctrl_c():
    x = torch.zeros(4, dtype=torch.float64)
    argument = view(x)
    assert not hasattr(argument, "__del__")
    Pass(add, [argument], "cpu", integers=1)(1, 2, 5)
    assert x.tolist() == [0, 5, 10, 0]
