"""States as points of a manifold: the change from one to another, and a state that is moved by a change.

A change of state is dx = (δ, dqd), 2 nv numbers, in the axes of `Sim.linearize`: for a joint with one coordinate δ is
its change; for a ball joint, and for the turn of a free one, the rotation vector in the body's own axes; for the
place of a free joint the motion in the axes that the body has before it (docs/derivations/ilqr.md, section 1).
Everything is torch, batched and differentiable, twice where nothing is turned by pi.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pullback.rigid.compile.compile import SceneArrays
from pullback.robot.topology import BALL, FREE
from pullback.spatial.rotations_torch import conjugate, quaternion_product, rotate

Tensor = torch.Tensor

SMALL = 1e-2
"""Squared angles [rad²] below this go through a series."""


class Manifold:
    """The coordinates of a world: which are numbers, which are quaternions, which are places in turning axes."""

    def __init__(self, arrays: SceneArrays, device: torch.device) -> None:
        def index(rows: Any) -> Tensor:
            return torch.as_tensor(np.asarray(rows, dtype=np.int64), device=device)

        turning = [k for k, kind in enumerate(arrays.kind) if kind in (int(BALL), int(FREE))]
        free = [k for k in turning if arrays.kind[k] == int(FREE)]
        scalar = [k for k in range(arrays.nbody) if k not in turning]
        q_start, v_start = arrays.q_start, arrays.v_start
        self.nq, self.nv = arrays.nq, arrays.nv
        self.is_flat = not turning
        """Whether all coordinates are numbers, and changes plain differences."""
        self.count = len(turning), len(free)
        self.q_scalar, self.v_scalar = index(q_start[scalar]), index(v_start[scalar])
        after_place = [3 * (arrays.kind[k] == int(FREE)) for k in turning]
        self.q_turn = index([q_start[k] + s + i for k, s in zip(turning, after_place) for i in range(4)])
        self.v_turn = index([v_start[k] + i for k in turning for i in range(3)])
        self.q_place = index([q_start[k] + i for k in free for i in range(3)])
        self.v_place = index([v_start[k] + 3 + i for k in free for i in range(3)])
        self.is_free = index([turning.index(k) for k in free])
        # where each coordinate and each velocity stands in (scalars, turns, places)
        self.q_order = torch.argsort(torch.cat([self.q_scalar, self.q_turn, self.q_place]))
        self.v_order = torch.argsort(torch.cat([self.v_scalar, self.v_turn, self.v_place]))

    def difference(self, a: Tensor, b: Tensor) -> Tensor:
        """Return δ (..., nv) that moves the coordinates a (..., nq) to b."""
        if self.is_flat:
            return b - a
        a, b = torch.broadcast_tensors(a, b)
        before, after = self._turns(a), self._turns(b)
        turn = rotation_vector(quaternion_product(conjugate(before), after))
        way = (b - a)[..., self.q_place].unflatten(-1, (self.count[1], 3))
        way = rotate(conjugate(before[..., self.is_free, :]), way)
        parts = [(b - a)[..., self.q_scalar], turn.flatten(-2), way.flatten(-2)]
        return torch.cat(parts, -1)[..., self.v_order]

    def retract(self, q: Tensor, delta: Tensor) -> Tensor:
        """Return the coordinates (..., nq) that q moved by δ (..., nv) has."""
        if self.is_flat:
            return q + delta
        q = q.expand(*torch.broadcast_shapes(q.shape[:-1], delta.shape[:-1]), self.nq)
        delta = delta.expand(*q.shape[:-1], self.nv)
        before = self._turns(q)
        after = quaternion_product(before, quaternion(delta[..., self.v_turn].unflatten(-1, (self.count[0], 3))))
        way = rotate(before[..., self.is_free, :], delta[..., self.v_place].unflatten(-1, (self.count[1], 3)))
        parts = [q[..., self.q_scalar] + delta[..., self.v_scalar], after.flatten(-2)]
        return torch.cat([*parts, q[..., self.q_place] + way.flatten(-2)], -1)[..., self.q_order]

    def reverse(self, dx: Tensor) -> Tensor:
        """Return the change that undoes dx (..., 2 nv): from x moved by dx back to x."""
        if self.is_flat:
            return -dx
        back = -dx
        turn = dx[..., self.v_turn].unflatten(-1, (self.count[0], 3))[..., self.is_free, :]
        way = dx[..., self.v_place].unflatten(-1, (self.count[1], 3))
        back[..., self.v_place] = -rotate(conjugate(quaternion(turn)), way).flatten(-2)
        return back

    def difference_jacobian(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the derivative (..., nv, nv) of `difference(a, b)` by a small motion of b, in b's own axes."""
        a, b = torch.broadcast_tensors(a, b)
        jacobian = torch.eye(self.nv, dtype=b.dtype, device=b.device).repeat(*b.shape[:-1], 1, 1)
        if self.is_flat:
            return jacobian
        between = quaternion_product(conjugate(self._turns(a)), self._turns(b))
        turned = inverse_right_jacobian(rotation_vector(between))
        rows = self.v_turn.view(-1, 3)
        jacobian[..., rows[:, :, None], rows[:, None, :]] = turned
        if self.count[1]:
            rows = self.v_place.view(-1, 3)
            jacobian[..., rows[:, :, None], rows[:, None, :]] = rotation(between[..., self.is_free, :])
        return jacobian

    def _turns(self, q: Tensor) -> Tensor:
        """Return the unit quaternions (..., n, 4) among the coordinates."""
        quat = q[..., self.q_turn].unflatten(-1, (self.count[0], 4))
        return quat / torch.linalg.vector_norm(quat, dim=-1, keepdim=True)


def quaternion(x: Tensor) -> Tensor:
    """Return the quaternion xyzw of the rotation vector x [rad], smooth at zero to all orders that torch asks for."""
    s = 0.25 * x.square().sum(-1, keepdim=True)
    small = s < SMALL
    half = torch.where(small, torch.ones_like(s), s).sqrt()
    sinc = torch.where(small, 1.0 - s / 6.0 * (1.0 - s / 20.0 * (1.0 - s / 42.0 * (1.0 - s / 72.0))), half.sin() / half)
    series = 1.0 - s / 2.0 * (1.0 - s / 12.0 * (1.0 - s / 30.0 * (1.0 - s / 56.0 * (1.0 - s / 90.0))))
    return torch.cat([0.5 * sinc * x, torch.where(small, series, half.cos())], -1)


def rotation_vector(quat: Tensor) -> Tensor:
    """Return the rotation vector [rad], at most pi long, of unit quaternions xyzw, smooth at zero."""
    quat = torch.where(quat[..., 3:] < 0, -quat, quat)
    xyz, w = quat[..., :3], quat[..., 3:]
    s = xyz.square().sum(-1, keepdim=True)
    small = s < SMALL
    sine = torch.where(small, torch.ones_like(s), s).sqrt()
    # asin(x) / x as a series in x²
    series = 1.0 + s * (
        1 / 6 + s * (3 / 40 + s * (15 / 336 + s * (105 / 3456 + s * (945 / 42240 + s * 10395 / 599040))))
    )
    return 2.0 * torch.where(small, series, torch.atan2(sine, w) / sine) * xyz


def rotation(quat: Tensor) -> Tensor:
    """Return the rotation matrices (..., 3, 3) of unit quaternions xyzw."""
    axes = torch.eye(3, dtype=quat.dtype, device=quat.device)
    return rotate(quat[..., None, :], axes.expand(*quat.shape[:-1], 3, 3)).mT


def skew(x: Tensor) -> Tensor:
    """Return the matrices (..., 3, 3) whose product with y is x × y."""
    a, b, c = x.unbind(-1)
    zero = torch.zeros_like(a)
    return torch.stack([zero, -c, b, c, zero, -a, -b, a, zero], -1).unflatten(-1, (3, 3))


def inverse_right_jacobian(x: Tensor) -> Tensor:
    """Return J (..., 3, 3) with exp(x) exp(d) = exp(x + J d) for small d, the inverse right Jacobian of rotations."""
    s = x.square().sum(-1)[..., None, None]
    small = s < SMALL
    angle = torch.where(small, torch.ones_like(s), s).sqrt()
    # 1/s - cot(angle/2) / (2 angle)
    factor = torch.where(
        small,
        1 / 12 + s * (1 / 720 + s * (1 / 30240 + s / 1209600)),
        1.0 / angle.square() - 0.5 / (angle * (0.5 * angle).tan()),
    )
    cross = skew(x)
    return torch.eye(3, dtype=x.dtype, device=x.device) + 0.5 * cross + factor * (cross @ cross)
