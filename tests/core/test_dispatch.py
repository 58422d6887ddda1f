"""Kernel functions made from tables of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from pullback.core.dispatch import dispatched


@wp.func
def double(kind: int, x: Any):
    return x + x


@wp.func
def square(kind: int, x: Any):
    return x * x


@wp.func
def write_one(kind: int, out: wp.array(dtype=Any), k: int):
    out[k] = out.dtype(1.0)


def declared(kind: int, x: Any) -> Any:
    """Declare a function of which there are several."""


def declared_constant(kind: int) -> Any:
    """Declare a function that returns a constant."""


def declared_write(kind: int, out: wp.array(dtype=Any), k: int):
    """Declare a function that writes."""


chosen = dispatched(declared, "kind", {0: double, 1: square, 4: double})
constant = dispatched(declared_constant, "kind", {0: 3, 1: 5})
written = dispatched(declared_write, "kind", {2: write_one})


@wp.kernel(enable_backward=False)
def run(x: wp.array(dtype=float), y: wp.array(dtype=float), z: wp.array(dtype=int), out: wp.array(dtype=float)):
    k = wp.tid()
    y[k] = chosen(k, x[k])
    z[k] = constant(k)
    written(k, out, k)


def test_each_number_has_its_branch_and_others_the_last():
    x = wp.array([3.0, 3.0, 3.0, 3.0, 3.0], dtype=float, device="cpu")
    y, out = wp.zeros(5, dtype=float, device="cpu"), wp.zeros(5, dtype=float, device="cpu")
    z = wp.zeros(5, dtype=int, device="cpu")
    wp.launch(run, 5, inputs=[x, y, z, out], device="cpu")
    # branches that are the same function are tested together; the last of them is not tested for
    assert y.numpy().tolist() == [6.0, 9.0, 9.0, 9.0, 6.0]
    assert z.numpy().tolist() == [3, 5, 5, 5, 5]
    np.testing.assert_array_equal(out.numpy(), [0.0, 0.0, 1.0, 0.0, 0.0])


def test_what_is_declared_is_kept():
    assert chosen.key.endswith("declared")
    assert chosen.func.__doc__ == declared.__doc__
