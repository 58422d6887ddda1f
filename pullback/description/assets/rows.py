"""The words the tables of the shipped robots are written in."""

from __future__ import annotations

from math import cos, hypot, pi, sin
from typing import Any

import numpy as np

from pullback.description.tree import Joint, JointType, Limits, Link, Pose, Shape, Vector

ORIGIN = (0.0, 0.0, 0.0)
X = (1.0, 0.0, 0.0)
Y = (0.0, 1.0, 0.0)
Z = (0.0, 0.0, 1.0)
FREE = Limits()


def link(name: str, mass: float = 0.0, com: Vector = ORIGIN, inertia: Vector = ORIGIN, *shapes: Shape) -> Link:
    """Return a link; `inertia` is (xx, yy, zz) or, as in a URDF, (xx, xy, xz, yy, yz, zz)."""
    if len(inertia) == 3:
        matrix = np.diag(np.array(inertia, dtype=float))
    else:
        xx, xy, xz, yy, yz, zz = inertia
        matrix = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], dtype=float)
    return Link(name, float(mass), np.array(com, dtype=float), matrix, list(shapes))


def joint(
    name: str,
    type: JointType,
    parent: str,
    child: str,
    xyz: Vector = ORIGIN,
    rpy: Vector = ORIGIN,
    axis: Vector = Z,
    limits: Limits = FREE,
    **fields: Any,
) -> Joint:
    """Return a joint whose frame is placed by a translation and roll, pitch, yaw, as in a URDF.

    The other fields of a `Joint`, such as `damping`, are given by name.
    """
    direction = np.array(axis, dtype=float)
    return Joint(
        name=name,
        type=type,
        parent=parent,
        child=child,
        origin=pose(xyz, rpy),
        axis=direction / np.linalg.norm(direction),
        limits=limits,
        **fields,
    )


def pose(xyz: Vector, rpy: Vector = ORIGIN) -> Pose:
    """Return the pose with rotation Rz(yaw) Ry(pitch) Rx(roll)."""
    (cr, cp, cy), (sr, sp, sy) = [cos(angle) for angle in rpy], [sin(angle) for angle in rpy]
    rotation = np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )
    return Pose(np.array(xyz, dtype=float), rotation)


def sphere(radius: float, xyz: Vector = ORIGIN, *, friction: float | None = None) -> Shape:
    """Return a sphere."""
    return Shape("sphere", (radius,), pose(xyz), friction=friction)


def box(size: Vector, xyz: Vector = ORIGIN, rpy: Vector = ORIGIN, *, friction: float | None = None) -> Shape:
    """Return a box of full edge lengths `size`."""
    return Shape("box", size, pose(xyz, rpy), friction=friction)


def capsule(radius: float, start: Vector, end: Vector, *, friction: float | None = None) -> Shape:
    """Return a capsule around the segment from `start` to `end`."""
    length, origin = _along(start, end)
    return Shape("capsule", (radius, length), origin, friction=friction)


def cylinder(radius: float, start: Vector, end: Vector, *, friction: float | None = None) -> Shape:
    """Return a cylinder around the segment from `start` to `end`."""
    length, origin = _along(start, end)
    return Shape("cylinder", (radius, length), origin, friction=friction)


def solid_capsule(
    name: str, radius: float, start: Vector, end: Vector, *, density: float, friction: float | None = None
) -> Link:
    """Return a link that is a solid capsule of `density` [kg/m³] around the segment from `start` to `end` [m]."""
    first, last = np.array(start, dtype=float), np.array(end, dtype=float)
    length = hypot(*(last - first))
    middle = density * pi * radius**2 * length
    caps = density * 4 / 3 * pi * radius**3
    along = middle * radius**2 / 2 + caps * 2 * radius**2 / 5
    across = middle * (radius**2 / 4 + length**2 / 12) + caps * (
        2 * radius**2 / 5 + length**2 / 4 + 3 * radius * length / 8
    )
    direction = (last - first) / length
    result = link(name, middle + caps, tuple((first + last) / 2))
    result.inertia = across * np.eye(3) + (along - across) * np.outer(direction, direction)
    result.shapes.append(capsule(radius, start, end, friction=friction))
    return result


def _along(start: Vector, end: Vector) -> tuple[float, Pose]:
    """Return the length of a segment and the frame at its middle with z along it."""
    first, last = np.array(start, dtype=float), np.array(end, dtype=float)
    length = float(np.linalg.norm(last - first))
    z = (last - first) / length
    # any x across the segment will do: start from the axis that is least along it
    x = np.eye(3)[np.argmin(np.abs(z))]
    x = x - (x @ z) * z
    x = x / np.linalg.norm(x)
    return length, Pose(0.5 * (first + last), np.column_stack([x, np.cross(z, x), z]))
