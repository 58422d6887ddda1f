"""Rotations in torch: for parameters, for states on their manifold, and for what is small and not in a hot path.

Quaternions are xyzw; a rotation vector is axis times angle [rad]. `rotations.py` is the same in kernels.
"""

import torch

Tensor = torch.Tensor

SMALL = 1e-2
"""Squared angles [rad²] below this go through a series."""


def rotation_from_rpy(rpy: Tensor) -> Tensor:
    """Return the rotation matrices (*, 3, 3) of roll, pitch, yaw [rad], shape (*, 3): Rz(yaw) Ry(pitch) Rx(roll)."""
    (sr, sp, sy), (cr, cp, cy) = rpy.sin().unbind(-1), rpy.cos().unbind(-1)
    rows = [
        cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr,
        sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr,
        -sp, cp * sr, cp * cr,
    ]  # fmt: skip
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def rpy_from_rotation(R: Tensor) -> Tensor:
    """Return roll, pitch, yaw [rad] of rotation matrices (*, 3, 3).

    Yaw is poorly defined where pitch is near +-90 degrees; roll is taken of what remains once yaw is undone, so that
    the three together give R to rounding everywhere.
    """
    yaw = torch.atan2(R[..., 1, 0], R[..., 0, 0])
    s, c = yaw.sin(), yaw.cos()
    pitch = torch.atan2(-R[..., 2, 0], c * R[..., 0, 0] + s * R[..., 1, 0])
    roll = torch.atan2(s * R[..., 0, 2] - c * R[..., 1, 2], c * R[..., 1, 1] - s * R[..., 0, 1])
    return torch.stack([roll, pitch, yaw], -1)


def rotate(quat: Tensor, x: Tensor) -> Tensor:
    """Rotate the vectors x (*, 3) by unit quaternions xyzw (*, 4)."""
    xyz, w = quat[..., :3], quat[..., 3:]
    t = 2.0 * torch.linalg.cross(xyz, x)
    return x + w * t + torch.linalg.cross(xyz, t)


def quaternion_product(a: Tensor, b: Tensor) -> Tensor:
    """Return the quaternion xyzw of the rotation b followed by a."""
    av, aw, bv, bw = a[..., :3], a[..., 3:], b[..., :3], b[..., 3:]
    xyz = aw * bv + bw * av + torch.linalg.cross(av, bv)
    return torch.cat([xyz, aw * bw - (av * bv).sum(-1, keepdim=True)], -1)


def conjugate(quat: Tensor) -> Tensor:
    """Return the inverse of unit quaternions xyzw."""
    return quat * quat.new_tensor([-1.0, -1.0, -1.0, 1.0])


def quaternion_from_vector(x: Tensor) -> Tensor:
    """Return the quaternion xyzw of the rotation vector x [rad], smooth at zero to all orders that torch asks for."""
    s = 0.25 * x.square().sum(-1, keepdim=True)
    small = s < SMALL
    half = torch.where(small, torch.ones_like(s), s).sqrt()
    sinc = torch.where(small, 1.0 - s / 6.0 * (1.0 - s / 20.0 * (1.0 - s / 42.0 * (1.0 - s / 72.0))), half.sin() / half)
    series = 1.0 - s / 2.0 * (1.0 - s / 12.0 * (1.0 - s / 30.0 * (1.0 - s / 56.0 * (1.0 - s / 90.0))))
    return torch.cat([0.5 * sinc * x, torch.where(small, series, half.cos())], -1)


def vector_from_quaternion(quat: Tensor) -> Tensor:
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


def rotation_from_quaternion(quat: Tensor) -> Tensor:
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
