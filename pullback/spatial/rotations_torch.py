"""Rotations in torch, for parameters and other things that are small and not in a hot path."""

import torch

Tensor = torch.Tensor


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


def quaternion_from_vector(x: Tensor) -> Tensor:
    """Return the quaternion xyzw of the rotation vector x [rad], shape (*, 3)."""
    half = 0.5 * torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.cat([0.5 * torch.sinc(half / torch.pi) * x, half.cos()], -1)


def vector_from_quaternion(quat: Tensor) -> Tensor:
    """Return the rotation vector [rad], shape (*, 3), of at most pi, of unit quaternions xyzw."""
    quat = torch.where(quat[..., 3:] < 0, -quat, quat)
    sine = torch.linalg.vector_norm(quat[..., :3], dim=-1, keepdim=True)
    angle = 2.0 * torch.atan2(sine, quat[..., 3:])
    return torch.where(sine > 1e-12, angle / sine.clamp(min=1e-12), 2.0 * torch.ones_like(sine)) * quat[..., :3]


def conjugate(quat: Tensor) -> Tensor:
    """Return the inverse of unit quaternions xyzw."""
    return quat * quat.new_tensor([-1.0, -1.0, -1.0, 1.0])
