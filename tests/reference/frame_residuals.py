"""How far a frame is from a pose, and the Jacobian of that (docs/derivations/ilqr.md, section 3)."""

from __future__ import annotations

import torch

from pullback.spatial.rotations_torch import (
    conjugate,
    inverse_right_jacobian,
    quaternion_product,
    rotate,
    rotation_from_quaternion,
    skew,
    vector_from_quaternion,
)

Tensor = torch.Tensor


def split_residual(
    p: Tensor, quat: Tensor, position: Tensor | None, orientation: Tensor | None, jacobian: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the way from a position and the rotation from an orientation, each if given, and their Jacobian.

    `jacobian` (..., 6, nv) is the frame's, linear then angular in world axes.
    """
    residuals, rows = [], []
    if position is not None:
        residuals.append(p - position)
        rows.append(None if jacobian is None else jacobian[..., :3, :])
    if orientation is not None:
        turn = vector_from_quaternion(quaternion_product(conjugate(orientation).expand_as(quat), quat))
        residuals.append(turn)
        if jacobian is not None:
            rows.append(inverse_right_jacobian(turn) @ (rotation_from_quaternion(quat).mT @ jacobian[..., 3:, :]))
    r = residuals[0] if len(residuals) == 1 else torch.cat(residuals, -1)
    if jacobian is None:
        return r, None
    return r, rows[0] if len(rows) == 1 else torch.cat(rows, -2)


def screw_residual(
    p: Tensor, quat: Tensor, position: Tensor | None, orientation: Tensor | None, jacobian: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the logarithm (linear, angular) of the frame's pose as the target sees it, and its Jacobian."""
    assert position is not None
    assert orientation is not None
    back = conjugate(orientation).expand_as(quat)
    between = quaternion_product(back, quat)
    turn = vector_from_quaternion(between)
    way = rotate(back, p - position)
    # the inverse of the integral of exp(t turn) over t in (0, 1): the inverse left Jacobian
    left = inverse_right_jacobian(turn).mT
    linear = (left @ way[..., None])[..., 0]
    r = torch.cat([linear, turn], -1)
    if jacobian is None:
        return r, None
    return r, screw_jacobian(linear, turn) @ _local(quat, jacobian)


def _local(quat: Tensor, jacobian: Tensor) -> Tensor:
    """Return a Jacobian (..., 6, nv) in the frame's own axes."""
    R = rotation_from_quaternion(quat).mT[..., None, :, :]
    return (R @ jacobian.unflatten(-2, (2, 3))).flatten(-3, -2)


def screw_jacobian(linear: Tensor, angular: Tensor) -> Tensor:
    """Return the inverse right Jacobian (..., 6, 6) of SE(3) at the screw (linear, angular)."""
    W, V = skew(angular), skew(linear)
    J = inverse_right_jacobian(angular)
    # the inverse of a block triangular matrix: [J, -J Q J; 0, J]
    upper = -(J @ _coupling(angular, W, V) @ J)
    top = torch.cat([J, upper], -1)
    return torch.cat([top, torch.cat([torch.zeros_like(J), J], -1)], -2)


def _coupling(angular: Tensor, W: Tensor, V: Tensor) -> Tensor:
    """Return how the right Jacobian of SE(3) couples a rotation into the motion of the origin."""
    s = angular.square().sum(-1)[..., None, None]
    small = s < 1e-2
    safe = torch.where(small, torch.ones_like(s), s)
    t = safe.sqrt()
    a = torch.where(small, 1 / 6 - s / 120 * (1 - s / 42 * (1 - s / 72)), (t - t.sin()) / (t * safe))
    b = torch.where(small, 1 / 24 - s / 720 * (1 - s / 56 * (1 - s / 90)), (safe + 2 * t.cos() - 2) / (2 * safe * safe))
    c = torch.where(
        small,
        1 / 120 - s / 2520 * (1 - s / 48 * (1 - s * 2 / 165)),
        (2 * t - 3 * t.sin() + t * t.cos()) / (2 * safe * safe * t),
    )
    WV, VW = W @ V, V @ W
    WVW = WV @ W
    # the left Jacobian's coupling at the opposite screw
    return -0.5 * V + a * (WV + VW - WVW) + b * (W @ WV + VW @ W - 3 * WVW) * -1.0 + c * (WVW @ W + W @ WVW)
