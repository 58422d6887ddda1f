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

from pullback.control.riccati_kernels import RESULTS, kernels, lanes_on, make_riccati
from pullback.core.bridge import REAL, current_stream, device_name
from pullback.core.errors import PullbackError
from pullback.core.launch import Launcher, Strided, shards_for

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
    """What to change in the controls, du = a k + K dx for a step a in (0, 1], and what the cost should change by.

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
    """The largest |Qu| of a control that its box lets follow it (B,); infinite where not ok."""
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
    steps, problems, _, m = B.shape
    _check(A, B, gaps, cost, controls, regularization)
    low, high = _bound("lower", lower, controls, -torch.inf), _bound("upper", upper, controls, torch.inf)
    n = A.shape[-1]
    bounded = lower is not None or upper is not None
    launcher, numbers = _launcher(steps, problems, n, m, bounded, B.dtype, B.device)
    k, K = B.new_empty(steps, problems, m), B.new_empty(steps, problems, m, n)
    result, on_cpu = B.new_empty(RESULTS, problems), B.is_cpu
    shards = shards_for(problems, torch.get_num_threads()) if on_cpu else 1
    scratch = B.new_empty(shards if on_cpu else problems, numbers + SHARD_GAP)
    kept: list[Tensor] = []
    read = (A, B, gaps, cost.x, cost.u, cost.xx, cost.uu, cost.ux, controls, low, high)
    arrays = [_items(x, kept) for x in read]
    arrays += [_columns(regularization[None], kept), _items(k, kept), _items(K, kept), _columns(result, kept)]
    stride = (numbers + SHARD_GAP) * B.element_size()
    arrays.append((scratch.data_ptr(), numbers, 0, 0 if on_cpu else stride, stride, False))
    launcher(arrays, problems * lanes_on(launcher.device), shards, stream=current_stream(B.device))
    linear, quadratic, gradient, ok = result
    return Policy(k, K, linear, quadratic, gradient, ok > 0.0)


SHARD_GAP = 64
"""Numbers between the scratch of two threads."""


@lru_cache(32)
def _launcher(
    steps: int, problems: int, n: int, m: int, bounded: bool, dtype: torch.dtype, device: torch.device
) -> tuple[Launcher, int]:
    """Return the kernel for problems of one size, and how many numbers of scratch each takes."""
    name = device_name(device)
    job, numbers = make_riccati(steps, problems, n, m, bounded=bounded, device=name)
    return Launcher(kernels(REAL[dtype]), name, job), numbers


def _items(x: Tensor, kept: list[Tensor]) -> Strided:
    """Return (T, B, ...) as the kernel sees it: items T B apart by one stride, rows by another."""
    step, item = x.stride()[:2]
    if x.shape[1] == 1:
        item = step
    elif step != item * x.shape[1] and len(x) > 1:
        x, item = x.contiguous(), x[0, 0].numel()
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        x, item = x.contiguous(), x[0, 0].numel()
    kept.append(x)
    size = x.element_size()
    return x.data_ptr(), x.shape[2], x.stride(2) * size, item * size, 0, False


def _columns(x: Tensor, kept: list[Tensor]) -> Strided:
    """Return (rows, B) as the kernel sees it."""
    kept.append(x)
    size = x.element_size()
    return x.data_ptr(), x.shape[0], x.stride(0) * size, x.stride(1) * size, 0, False


def _bound(name: str, bound: Tensor | None, controls: Tensor, default: float) -> Tensor:
    """Return a bound for every control."""
    if bound is None:
        return torch.full_like(controls, default)
    if bound.shape not in (controls.shape, controls.shape[-1:]):
        raise PullbackError(
            f"{name} is {tuple(bound.shape)}; expected {tuple(controls.shape[-1:])} or {tuple(controls.shape)}"
        )
    return bound.to(controls).expand_as(controls)


def _check(A: Tensor, B: Tensor, gaps: Tensor, cost: Quadratic, controls: Tensor, regularization: Tensor) -> None:
    """Name a tensor whose shape does not go with that of B."""
    steps, worlds, n, m = B.shape
    expected = {
        "A": (A, (steps, worlds, n, n)),
        "gaps": (gaps, (steps, worlds, n)),
        "cost.x": (cost.x, (steps + 1, worlds, n)),
        "cost.u": (cost.u, (steps, worlds, m)),
        "cost.xx": (cost.xx, (steps + 1, worlds, n, n)),
        "cost.uu": (cost.uu, (steps, worlds, m, m)),
        "cost.ux": (cost.ux, (steps, worlds, m, n)),
        "controls": (controls, (steps, worlds, m)),
        "regularization": (regularization, (worlds,)),
    }
    for name, (x, shape) in expected.items():
        if x.dtype != B.dtype or x.device != B.device:
            raise PullbackError(f"{name} is {x.dtype} on {x.device}, B {B.dtype} on {B.device}; give all alike")
        if x.shape != shape:
            raise PullbackError(f"{name} is {tuple(x.shape)}; with B {tuple(B.shape)} it must be {shape}")
