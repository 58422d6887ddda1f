"""The backward pass of differential dynamic programming: a policy from derivatives along a trajectory, for B problems.

    dx' = A dx + B du + gap                                   dynamics, gap = f(x, u) - x'
    v = vx' + Vxx' gap                                        the value's gradient where the gap leads
    Qx = lx + A^T v,  Qu = lu + B^T v,  Qxx = lxx + A^T Vxx' A,  Qux = lux + B^T Vxx' A,  Quu = luu + B^T Vxx' B + r
    du = k + K dx                                             least of the quadratic in the box lower <= u + du <= upper
    vx = Qx + Qux^T k,  Vxx = Qxx + Qux^T K + r

The regularisation r is added to the diagonals of Quu and of Vxx, the last one too, as Crocoddyl does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from pullback.control.ilqr.riccati_kernels import RESULTS, kernels, lanes_on, make_riccati
from pullback.core.errors import PullbackError
from pullback.core.launch import ABSENT, Launcher, Strided
from pullback.core.tensors import REAL, current_stream, device_name
from pullback.core.threads import get_num_threads, shards_for

Tensor = torch.Tensor


class Quadratic(NamedTuple):
    """Gradients and Hessians of the cost along a trajectory of T steps, for B problems."""

    x: Tensor
    """(T+1, B, n)"""
    u: Tensor
    """(T, B, m)"""
    xx: Tensor
    """(T+1, B, n, n)"""
    uu: Tensor
    """(T, B, m, m)"""
    ux: Tensor
    """(T, B, m, n)"""


class Policy(NamedTuple):
    """A change of the controls, du = a k + K dx for a step a in (0, 1], and its expected change of cost.

    The quadratic model expects a change of a linear + a²/2 quadratic, when gaps are closed by their part a as well.
    """

    k: Tensor
    """(T, B, m)"""
    K: Tensor
    """(T, B, m, n); rows of controls that are held at a bound are zero."""
    linear: Tensor
    """(B,)"""
    quadratic: Tensor
    """(B,)"""
    gradient: Tensor
    """The largest |Qu| of a control that is not held at a bound (B,); infinite where not ok."""
    ok: Tensor
    """Whether every Quu was positive definite, and all finite (B,); where not, the policy is zero."""


def backward_pass(
    A: Tensor,
    B: Tensor,
    gaps: Tensor,
    cost: Quadratic,
    controls: Tensor,
    lower: Tensor | None,
    upper: Tensor | None,
    regularization: Tensor,
) -> Policy:
    """Return the policy for dynamics A (T, B, n, n), B (T, B, n, m) and gaps (T, B, n), with `regularization` (B,).

    `lower` and `upper`, (m,) or (T, B, m) or None, bound the controls (T, B, m).
    """
    steps, problems, n, m = B.shape
    bounded = lower is not None or upper is not None
    launcher, numbers = _launcher(steps, problems, n, m, bounded, B.dtype, B.device)
    read = _Reader(B)
    arrays = [
        read("A", A, n, n),
        read("B", B, n, m),
        read("gaps", gaps, n),
        read("cost.x", cost.x, n, more=1),
        read("cost.u", cost.u, m),
        read("cost.xx", cost.xx, n, n, more=1),
        read("cost.uu", cost.uu, m, m),
        read("cost.ux", cost.ux, m, n),
        read("controls", controls, m),
        read("lower", _bound("lower", lower, controls, -torch.inf), m) if bounded else ABSENT,
        read("upper", _bound("upper", upper, controls, torch.inf), m) if bounded else ABSENT,
        read("regularization", regularization.expand(1, -1)),
    ]
    k, K = B.new_empty(steps, problems, m), B.new_empty(steps, problems, m, n)
    result, on_cpu = B.new_empty(RESULTS, problems), B.is_cpu
    shards = shards_for(problems, get_num_threads()) if on_cpu else 1
    scratch = B.new_empty(shards if on_cpu else problems, numbers + SHARD_GAP)
    size = B.element_size()
    stride = (numbers + SHARD_GAP) * size
    arrays += [
        (k.data_ptr(), m, size, m * size, 0, False),
        (K.data_ptr(), m, n * size, m * n * size, 0, False),
        (result.data_ptr(), RESULTS, problems * size, size, 0, False),
        (scratch.data_ptr(), numbers, 0, 0 if on_cpu else stride, stride, False),
    ]
    launcher(arrays, problems * lanes_on(launcher.device), shards, stream=current_stream(B.device))
    linear, quadratic, gradient, ok = result.unbind(0)
    return Policy(k, K, linear, quadratic, gradient, ok > 0.0)


SHARD_GAP = 64
"""Numbers between the scratch of two threads."""


@lru_cache(32)
def _launcher(
    steps: int, problems: int, n: int, m: int, bounded: bool, dtype: torch.dtype, device: torch.device
) -> tuple[Launcher, int]:
    """Return the kernel for problems of one size, and the scratch numbers each needs."""
    name = device_name(device)
    job, numbers = make_riccati(steps, problems, n, m, bounded=bounded, device=name)
    return Launcher(kernels(REAL[dtype]), name, job), numbers


class _Reader:
    """Converts tensors to arrays for the kernel, and keeps the copies it had to make alive."""

    def __init__(self, B: Tensor) -> None:
        self.B, self.dtype, self.device, self.size = B, B.dtype, B.device, B.element_size()
        self.steps, self.problems = B.shape[:2]
        self.kept: list[Tensor] = []

    def __call__(self, name: str, x: Tensor, *inner: int, more: int = 0) -> Strided:
        """Return x (T + more, B, *inner), or (1, B), as an array with one stride between items and one between rows."""
        shape = (self.steps + more, self.problems, *inner) if inner else (1, self.problems)
        if x.shape != shape:
            raise PullbackError(f"{name} is {tuple(x.shape)}; with B {tuple(self.B.shape)} it must be {shape}")
        if x.dtype != self.dtype or x.device != self.device:
            raise PullbackError(f"{name} is {x.dtype} on {x.device}, B {self.dtype} on {self.device}; give all alike")
        strides, size = x.stride(), self.size
        item = strides[0] if self.problems == 1 and inner else strides[1]
        is_even = shape[0] == 1 or strides[0] == item * self.problems
        if inner and not (is_even and (strides[-1] == 1 or inner[-1] == 1)):
            x = x.contiguous()
            self.kept.append(x)
            strides = x.stride()
            item = strides[1]
        return x.data_ptr(), shape[-1], strides[2 if inner else 0] * size, item * size, 0, False


def _bound(name: str, bound: Tensor | None, controls: Tensor, default: float) -> Tensor:
    """Return a bound for every control."""
    if bound is None:
        return torch.full_like(controls, default)
    if bound.shape not in (controls.shape, controls.shape[-1:]):
        raise PullbackError(
            f"{name} is {tuple(bound.shape)}; expected {tuple(controls.shape[-1:])} or {tuple(controls.shape)}"
        )
    return bound.expand_as(controls)
