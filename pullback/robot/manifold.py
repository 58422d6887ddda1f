"""The manifold of coordinates: the change from one point to another, and a point that is moved by a change.

A change of coordinates δ has nv numbers, those of velocities: for a joint with one coordinate its change; for a ball
joint, and for the turn of a free one, the rotation vector in the body's own axes; for the place of a free joint the
motion in the axes that the body has before it (docs/derivations/ilqr.md, section 1). Everything is torch, batched and
differentiable, twice where nothing is turned by pi. In kernels: `joint_integrate`, `joint_difference`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pullback.description.joints import JointKind
from pullback.spatial.rotations_torch import (
    conjugate,
    inverse_right_jacobian,
    quaternion_from_vector,
    quaternion_product,
    rotate,
    rotation_from_quaternion,
    vector_from_quaternion,
)

Tensor = torch.Tensor


class Manifold:
    """The coordinates of joints in a row: numbers, quaternions, and places in turning axes."""

    def __init__(self, kinds: Sequence[JointKind], device: torch.device) -> None:
        def index(rows: list[int]) -> Tensor:
            return torch.tensor(rows, dtype=torch.long, device=device)

        numbers, turns, places = ([], []), ([], []), ([], [])
        self.nq = self.nv = 0
        free = []
        for kind in kinds:
            if kind.travels:
                free.append(len(turns[0]) // 4)
                _extend(places, self.nq, 3, self.nv + 3, 3)
            if kind.turns:
                _extend(turns, self.nq + kind.nq - 4, 4, self.nv, 3)
            else:
                _extend(numbers, self.nq, kind.nq, self.nv, kind.nv)
            self.nq, self.nv = self.nq + kind.nq, self.nv + kind.nv
        self.is_flat = not turns[0]
        """Whether all coordinates are numbers, and changes plain differences."""
        self.count = len(turns[0]) // 4, len(free)
        self.q_scalar, self.v_scalar = map(index, numbers)
        self.q_turn, self.v_turn = map(index, turns)
        self.q_place, self.v_place = map(index, places)
        self.is_free = index(free)
        # where each coordinate and each velocity stands in (scalars, turns, places)
        self.q_order = torch.argsort(torch.cat([self.q_scalar, self.q_turn, self.q_place]))
        self.v_order = torch.argsort(torch.cat([self.v_scalar, self.v_turn, self.v_place]))

    def difference(self, a: Tensor, b: Tensor) -> Tensor:
        """Return δ (..., nv) that moves the coordinates a (..., nq) to b."""
        if self.is_flat:
            return b - a
        a, b = torch.broadcast_tensors(a, b)
        before, after = self._turns(a), self._turns(b)
        turn = vector_from_quaternion(quaternion_product(conjugate(before), after))
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
        after = quaternion_product(
            before, quaternion_from_vector(delta[..., self.v_turn].unflatten(-1, (self.count[0], 3)))
        )
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
        back[..., self.v_place] = -rotate(conjugate(quaternion_from_vector(turn)), way).flatten(-2)
        return back

    def difference_jacobian(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the derivative (..., nv, nv) of `difference(a, b)` by a small motion of b, in b's own axes."""
        a, b = torch.broadcast_tensors(a, b)
        jacobian = torch.eye(self.nv, dtype=b.dtype, device=b.device).repeat(*b.shape[:-1], 1, 1)
        if self.is_flat:
            return jacobian
        between = quaternion_product(conjugate(self._turns(a)), self._turns(b))
        turned = inverse_right_jacobian(vector_from_quaternion(between))
        rows = self.v_turn.view(-1, 3)
        jacobian[..., rows[:, :, None], rows[:, None, :]] = turned
        if self.count[1]:
            rows = self.v_place.view(-1, 3)
            jacobian[..., rows[:, :, None], rows[:, None, :]] = rotation_from_quaternion(between[..., self.is_free, :])
        return jacobian

    def _turns(self, q: Tensor) -> Tensor:
        """Return the unit quaternions (..., n, 4) among the coordinates."""
        quat = q[..., self.q_turn].unflatten(-1, (self.count[0], 4))
        return quat / torch.linalg.vector_norm(quat, dim=-1, keepdim=True)


def _extend(rows: tuple[list[int], list[int]], q_start: int, nq: int, v_start: int, nv: int) -> None:
    rows[0].extend(range(q_start, q_start + nq))
    rows[1].extend(range(v_start, v_start + nv))
