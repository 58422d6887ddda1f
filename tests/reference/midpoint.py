"""The variational midpoint rule in plain float64 torch, from its discrete Lagrangian alone.

    L_d(q0, q1) = dt l(q, v),    l = kinetic - potential energy

q is the midpoint of q0 and q1 and v the velocity from one to the other. Torch differentiates L_d by small displacements
of q0 and q1, which gives the momenta on both sides of a step; Newton's method finds the q1 whose p0 is M qd.

Functions take one state, without a batch, as tests/reference/dynamics.py does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from pullback.description.compile import COORDINATES, Model
from tests.reference.dynamics import (
    Parameters,
    kinetic_energy,
    mass_matrix,
    potential_energy,
    rotation_of_quaternion,
)
from tests.reference.step import integrate

Tensor = torch.Tensor
Force = Callable[[Tensor, Tensor], Tensor]
"""From q and the velocity at the midpoint to the forces (nv,) that have no potential."""


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two quaternions xyzw."""
    xyz = a[3] * b[:3] + b[3] * a[:3] + torch.linalg.cross(a[:3], b[:3])
    return torch.cat([xyz, (a[3] * b[3] - a[:3] @ b[:3])[None]])


def conjugate(a: Tensor) -> Tensor:
    return torch.cat([-a[:3], a[3:]])


def rotation_vector(quat: Tensor) -> Tensor:
    """Return the rotation vector of a unit quaternion near (0, 0, 0, 1), but not at it."""
    length = quat[:3].norm()
    return 2.0 * torch.atan2(length, quat[3]) / length * quat[:3]


def half_turn(quat: Tensor) -> Tensor:
    """Return the quaternion of half the rotation."""
    half = quat + quat.new_tensor([0.0, 0.0, 0.0, 1.0])
    return half / half.norm()


def nudged(model: Model, q: Tensor, x: Tensor) -> Tensor:
    """Return q moved by a small displacement, right to first order."""
    pieces = []
    for body in model.independent_bodies():
        qi, vi = model.q_start[body.joint.name], model.v_start[body.joint.name]
        if COORDINATES[body.kind][0] == 1:
            pieces.append(q[qi : qi + 1] + x[vi : vi + 1])
            continue
        turn = qi + 3 if body.kind == "free" else qi
        quat = q[turn : turn + 4]
        if body.kind == "free":
            pieces.append(q[qi : qi + 3] + rotation_of_quaternion(quat) @ x[vi + 3 : vi + 6])
        pieces.append(product(quat, torch.cat([0.5 * x[vi : vi + 3], x.new_ones(1)])))
    return torch.cat(pieces)


def displacement(model: Model, start: Tensor, end: Tensor) -> Tensor:
    """Return the small displacement from one q to another, right to first order."""
    pieces = []
    for body in model.independent_bodies():
        qi = model.q_start[body.joint.name]
        if COORDINATES[body.kind][0] == 1:
            pieces.append(end[qi : qi + 1] - start[qi : qi + 1])
            continue
        turn = qi + 3 if body.kind == "free" else qi
        quat = start[turn : turn + 4]
        pieces.append(2.0 * product(conjugate(quat), end[turn : turn + 4])[:3])
        if body.kind == "free":
            pieces.append(rotation_of_quaternion(quat).T @ (end[qi : qi + 3] - start[qi : qi + 3]))
    return torch.cat(pieces)


def between(model: Model, dt: float, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Return the midpoint of two q and the velocity, in its axes, that takes dt from one to the other."""
    q, v = [], []
    for body in model.independent_bodies():
        qi = model.q_start[body.joint.name]
        if COORDINATES[body.kind][0] == 1:
            q.append(0.5 * (start[qi : qi + 1] + end[qi : qi + 1]))
            v.append((end[qi : qi + 1] - start[qi : qi + 1]) / dt)
            continue
        turn = qi + 3 if body.kind == "free" else qi
        first, last = (x[turn : turn + 4] / x[turn : turn + 4].norm() for x in (start, end))
        across = product(conjugate(first), last)
        middle = product(first, half_turn(across))
        v.append(rotation_vector(across) / dt)
        if body.kind == "free":
            q.append(0.5 * (start[qi : qi + 3] + end[qi : qi + 3]))
            v.append(rotation_of_quaternion(middle).T @ (end[qi : qi + 3] - start[qi : qi + 3]) / dt)
        q.append(middle)
    return torch.cat(q), torch.cat(v)


def momenta(
    model: Model, parameters: Parameters, dt: float, start: Tensor, end: Tensor, *, gravity: Tensor, force: Force
) -> tuple[Tensor, Tensor]:
    """Return the momenta at both ends of a step: -dL_d/dq0 and dL_d/dq1, and what forces do at the midpoint."""
    middle, velocity = between(model, dt, start, end)
    impulse = dt * force(middle, velocity)

    def action(x0: Tensor, x1: Tensor) -> Tensor:
        q, v = between(model, dt, nudged(model, start, x0), nudged(model, end, x1))
        energy = kinetic_energy(model, parameters, q, v) - potential_energy(model, parameters, q, gravity=gravity)
        return dt * energy + impulse @ displacement(model, middle, q)

    nowhere = torch.zeros(model.nv, dtype=start.dtype)
    before, after = torch.func.grad(action, (0, 1))(nowhere, nowhere)
    return -before, after


def step(
    model: Model, parameters: Parameters, dt: float, q: Tensor, qd: Tensor, *, gravity: Tensor, force: Force
) -> tuple[Tensor, Tensor]:
    """Return the state a step later.

    Newton's method runs without a graph; one more of its steps with one has the derivatives of what it found.
    """
    wanted = mass_matrix(model, parameters, q) @ qd

    def missing(x: Tensor) -> Tensor:
        end = integrate(model, q, x)
        return momenta(model, parameters, dt, q, end, gravity=gravity, force=force)[0] - wanted

    x = dt * qd.detach()
    slope = torch.eye(model.nv, dtype=q.dtype)
    for _ in range(12):
        slope = torch.func.jacrev(missing)(x).detach()
        change = torch.linalg.solve(slope, missing(x).detach())
        x = x - change
        if float(change.norm()) < 1e-14 * (1.0 + float(x.norm())):
            break
    x = x - torch.linalg.solve(slope, missing(x))
    end = integrate(model, q, x)
    _, after = momenta(model, parameters, dt, q, end, gravity=gravity, force=force)
    return end, torch.linalg.solve(mass_matrix(model, parameters, end), after)
