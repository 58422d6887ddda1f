"""Explicit Runge-Kutta steps of one robot in plain float64 torch, over the accelerations that RobotModel computes.

The state is (q, z): z is qd, but free joints' linear velocities are in the axes they move in. Everything is one vector,
and the method is the textbook's, with a tableau; quaternions are made unit after each step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import pullback as pb
from pullback.description.compile import COORDINATES
from tests.reference.dynamics import rotation_of_quaternion
from tests.reference.step import replaced

Tensor = torch.Tensor
Acceleration = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From q, qd and u to qdd."""

TABLEAUS = {
    "explicit": ([[]], [1.0]),
    "rk4": ([[], [0.5], [0.0, 0.5], [0.0, 0.0, 1.0]], [1 / 6, 1 / 3, 1 / 3, 1 / 6]),
}


def spun(quat: Tensor, w: Tensor) -> Tensor:
    """Return quat (w, 0) / 2 by the matrix of a product with quat."""
    x, y, z, s = quat
    rows = [(s, -z, y), (z, s, -x), (-y, x, s), (-x, -y, -z)]
    return 0.5 * torch.stack([torch.stack(row) for row in rows]) @ w


def joints(robot: pb.RobotModel) -> list[tuple[str, int, int, int, int]]:
    """Return kind, first coordinate, first velocity and numbers of both for each joint."""
    model = robot.model
    return [
        (body.kind, model.q_start[body.joint.name], model.v_start[body.joint.name], *COORDINATES[body.kind])
        for body in model.bodies
    ]


def with_axes(robot: pb.RobotModel, q: Tensor, x: Tensor, into_body: bool) -> Tensor:
    """Return velocities with free joints' linear parts turned into the body's axes, or out of them."""
    for kind, qi, vi, _, _ in joints(robot):
        if kind == "free":
            R = rotation_of_quaternion(q[qi + 3 : qi + 7])
            x = replaced(x, vi + 3, (R.T if into_body else R) @ x[vi + 3 : vi + 6])
    return x


def rate(robot: pb.RobotModel, y: Tensor, u: Tensor, acceleration: Acceleration) -> Tensor:
    """Return dy/dt."""
    q, z = y[: robot.nq], y[robot.nq :]
    qd = with_axes(robot, q, z, into_body=True)
    change = acceleration(q, qd, u)
    pieces = []
    for kind, qi, vi, _, nv in joints(robot):
        if nv == 1:
            pieces.append(z[vi : vi + 1])
            continue
        if kind == "free":
            pieces.append(z[vi + 3 : vi + 6])
            change = replaced(
                change, vi + 3, change[vi + 3 : vi + 6] + torch.linalg.cross(qd[vi:][:3], qd[vi + 3 :][:3])
            )
        at = qi + 3 if kind == "free" else qi
        pieces.append(spun(q[at : at + 4], qd[vi : vi + 3]))
    return torch.cat([*pieces, with_axes(robot, q, change, into_body=False)])


def step(
    robot: pb.RobotModel, method: str, dt: float, q: Tensor, qd: Tensor, u: Tensor, acceleration: Acceleration
) -> tuple[Tensor, Tensor]:
    """Return the state a step later."""
    A, b = TABLEAUS[method]
    y = torch.cat([q, with_axes(robot, q, qd, into_body=False)])
    rates: list[Tensor] = []
    for row in A:
        stage = y + dt * sum((a * k for a, k in zip(row, rates)), torch.zeros_like(y))
        rates.append(rate(robot, stage, u, acceleration))
    y = y + dt * sum((w * k for w, k in zip(b, rates)), torch.zeros_like(y))
    q, z = y[: robot.nq], y[robot.nq :]
    for kind, qi, _, nq, _ in joints(robot):
        if nq > 1:
            at = qi + 3 if kind == "free" else qi
            q = replaced(q, at, q[at : at + 4] / q[at : at + 4].norm())
    return q, with_axes(robot, q, z, into_body=True)
