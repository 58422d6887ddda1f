"""A two-link arm whose tip falls on the ground, integrated to rounding in plain torch: a truth for `make impacts`.

Angles are absolute, from the x axis downwards: a1 = q1, a2 = q1 + q2.
"""

from __future__ import annotations

import numpy as np
import torch

from pullback.description.tree import Joint, Link, Pose, Shape, Tree

Tensor = torch.Tensor

GRAVITY, LENGTH, MASS, TIP, BASE = 9.81, 0.5, 1.0, 0.02, 0.5
STEPS = 64
"""Of Runge and Kutta's method, before the touch and after it."""


def arm_tree() -> Tree:
    """Return the arm: two rods in the plane of x and z, its base BASE above the ground, a ball at its tip."""
    inertia = MASS * LENGTH**2 / 12.0 * np.diag([1e-3, 1.0, 1.0])
    middle, end = np.array([LENGTH / 2, 0.0, 0.0]), np.array([LENGTH, 0.0, 0.0])
    ball = Shape("sphere", (TIP,), Pose(translation=end))
    links = [Link("root"), Link("upper", MASS, middle, inertia), Link("lower", MASS, middle, inertia, [ball])]
    y = np.array([0.0, 1.0, 0.0])
    joints = [
        Joint("shoulder", "continuous", "root", "upper", Pose(translation=np.array([0.0, 0.0, BASE])), y),
        Joint("elbow", "continuous", "upper", "lower", Pose(translation=end), y),
    ]
    return Tree("arm", links, joints)


def mass_and_force(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mass matrix (B, 2, 2) and the forces (B, 2) of states (B, 4) of angles and rates."""
    a1, a2, w1, w2 = x.unbind(1)
    half = LENGTH / 2
    inertia = MASS * LENGTH**2 / 12.0
    coupling = MASS * LENGTH * half
    m12 = coupling * (a1 - a2).cos()
    m11, m22 = MASS * half**2 + inertia + MASS * LENGTH**2, MASS * half**2 + inertia
    M = torch.stack([torch.stack([m11 + 0 * m12, m12], 1), torch.stack([m12, m22 + 0 * m12], 1)], 1)
    turning = coupling * (a1 - a2).sin()
    f1 = MASS * GRAVITY * (half + LENGTH) * a1.cos() - turning * w2 * w2
    f2 = MASS * GRAVITY * half * a2.cos() + turning * w1 * w1
    return M, torch.stack([f1, f2], 1)


def tip(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tip's gap (B,), its Jacobian (B, 2), and the acceleration (B,) it has at none of the angles."""
    a, w = x[:, :2], x[:, 2:]
    gap = BASE - LENGTH * a.sin().sum(1) - TIP
    return gap, -LENGTH * a.cos(), (LENGTH * a.sin() * w * w).sum(1)


def rate(x: Tensor, held: bool) -> Tensor:
    """Return the time derivative of states, with the tip on the ground if it is held there."""
    M, f = mass_and_force(x)
    acceleration = torch.linalg.solve(M, f)
    if held:
        _, J, rest = tip(x)
        K = torch.linalg.solve(M, J)
        acceleration = acceleration - K * (((J * acceleration).sum(1) + rest) / (J * K).sum(1))[:, None]
    return torch.cat([x[:, 2:], acceleration], 1)


def flow(x: Tensor, time: Tensor, held: bool = False) -> Tensor:
    """Return states after times (B,), by Runge and Kutta's method."""
    h = (time / STEPS)[:, None]
    for _ in range(STEPS):
        k1 = rate(x, held)
        k2 = rate(x + 0.5 * h * k1, held)
        k3 = rate(x + 0.5 * h * k2, held)
        k4 = rate(x + h * k3, held)
        x = x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return x


def arm_outcome(q: Tensor, restitution: float, time: float) -> Tensor:
    """Return joint rates (B, 2) at a time after one impact of the tip, of arms let go at joint angles (B, 2)."""
    start = torch.cat([q.cumsum(1), torch.zeros_like(q)], 1)
    with torch.no_grad():
        t = torch.full_like(q[:, 0], 0.2)
        for _ in range(12):
            x = flow(start, t)
            gap, J, _ = tip(x)
            t = t - gap / (J * x[:, 2:]).sum(1)
    # one more of Newton's steps, at which the moment has its derivative
    x = flow(start, t)
    gap, J, _ = tip(x)
    t = t - gap / (J * x[:, 2:]).sum(1).detach()
    x = flow(start, t)
    M, _ = mass_and_force(x)
    _, J, _ = tip(x)
    K = torch.linalg.solve(M, J)
    impulse = -(1.0 + restitution) * (J * x[:, 2:]).sum(1) / (J * K).sum(1)
    x = torch.cat([x[:, :2], x[:, 2:] + K * impulse[:, None]], 1)
    x = flow(x, time - t, held=restitution == 0.0)
    return torch.stack([x[:, 2], x[:, 3] - x[:, 2]], 1)
