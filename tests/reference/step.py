"""One step of one world with contact, in plain float64 torch: the yardstick for the step kernels.

    v*   = qd + dt (M^-1 (tau - h) + c)           velocity without contact; h: gravity, gyroscopic forces, damping
    A    = J M^-1 J^T + cfm,   b = J v* + bias    contacts, three rows each, then joint limits, then dry friction
    lam  = sweeps of projected Gauss-Seidel on A lam + b
    v    = v* + M^-1 J^T lam
    x    = v - what an impact adds before it happens
    q'   = q (+) dt x

Velocities are in the axes that bodies have before the step: a free joint's linear acceleration lacks c = w x v there,
and qd' is v with its linear velocities turned into the axes after the step, those of q'.

Functions take one state, without a batch, as tests/reference/dynamics.py does, and torch can differentiate all of it.
Which contacts there are, and which of their bounds are active, is decided by values; the rest is smooth.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import NamedTuple

import torch

from pullback.description.compile import COORDINATES, Model
from tests.reference.actuators import Actuators, actuator_forces, exceeded_limits, held_forces
from tests.reference.contact_solver import cone_step
from tests.reference.dynamics import (
    Dof,
    Parameters,
    cross_matrix,
    dof_values,
    inverse_dynamics,
    link_poses,
    mass_matrix,
    point_jacobian,
    rotation_of_quaternion,
)
from tests.reference.gyroscopic import lone_bias, lone_bodies
from tests.reference.jams import bounces, impacts_gain, time_of_impact
from tests.reference.tree_energy import tree_correction

Tensor = torch.Tensor


class Settings(NamedTuple):
    """The step length [s] and the choices of the contact problem."""

    dt: float = 1e-3
    sweeps: int = 50
    tolerance: float = 0.0  # stop when every row's velocity changes by less in a sweep
    cone: bool = True
    erp: float = 0.1
    push_speed: float = 0.2  # out of a penetration, at most [m/s]
    limit_speed: float = 2.0  # back from beyond a joint limit, at most [rad/s, m/s]
    implicit: bool = True  # joint damping and servos at the state after the step
    cfm: float = 1e-6
    margin: float = 0.01  # contacts with a smaller gap are rows [m]
    limit_margin: float = 0.1  # limits that are closer are rows [rad or m]
    restitution_threshold: float = 0.01  # slower impacts do not bounce [m/s]


class Ball(NamedTuple):
    """A sphere on a link: its centre in the link's frame (3,), its radius ()."""

    link: int
    centre: Tensor
    radius: Tensor


class Pair(NamedTuple):
    """Two things that may touch: a ball, and another or the ground z = 0; friction and restitution between them, ()."""

    a: Ball
    b: Ball | None
    friction: Tensor
    restitution: Tensor


class Contact(NamedTuple):
    """A contact: its pair, the gap (), the point halfway between the surfaces (3,), the normal from b to a (3,)."""

    pair: Pair
    gap: Tensor
    point: Tensor
    normal: Tensor


class ScalarRow(NamedTuple):
    """A row of the contact problem that acts on one dof: sign, bias velocity, and the bounds of its impulse."""

    dof: int
    sign: float
    bias: Tensor
    lower: Tensor
    upper: Tensor


class Outcome(NamedTuple):
    """What a step gives: the next state, and the contacts with their impulses, those of the scalar rows last, (m,)."""

    q: Tensor
    qd: Tensor
    impulses: Tensor
    contacts: list[Contact]


def ground_pairs(model: Model, friction: Tensor, restitution: Tensor) -> list[Pair]:
    """Return every sphere of the description against the ground."""
    pairs = []
    for index, link in enumerate(model.links):
        for shape in link.shapes:
            if shape.type == "sphere":
                centre = torch.tensor(shape.origin.translation, dtype=torch.float64)
                radius = torch.tensor(shape.size[0], dtype=torch.float64)
                pairs.append(Pair(Ball(index, centre, radius), None, friction, restitution))
    return pairs


def free_starts(model: Model) -> list[int]:
    """Return where the velocities of free joints start."""
    return [model.v_start[body.joint.name] for body in model.independent_bodies() if body.kind == "free"]


def replaced(x: Tensor, start: int, values: Tensor) -> Tensor:
    """Return x with `values` from `start` on."""
    return torch.cat([x[:start], values.reshape(-1), x[start + values.numel() :]])


# -- without contact -----------------------------------------------------------------------------------------------


def axes_rate(model: Model, v: Tensor) -> Tensor:
    """Return w x v of free joints, what their linear accelerations lack in fixed axes."""
    rates = {at + 3: torch.linalg.cross(v[at : at + 3], v[at + 3 : at + 6]) for at in free_starts(model)}
    return reduce(lambda x, at: replaced(x, at, rates[at]), rates, torch.zeros_like(v))


def free_velocity(
    model: Model, parameters: Parameters, M: Tensor, q: Tensor, qd: Tensor, tau: Tensor, gravity: Tensor, dt: float
) -> Tensor:
    """Return v* = qd + dt (M^-1 (tau - h) + w x v of free joints), damping taken at the start of the step.

    M may have inertias of implicit damping on its diagonal.
    """
    h = inverse_dynamics(model, parameters, q, qd, torch.zeros_like(qd), gravity=gravity)
    h = h + dof_values(model, parameters["joint_damping"]) * qd
    armature = dof_values(model, parameters["joint_armature"]) + (M - mass_matrix(model, parameters, q)).diagonal()
    for at, n in lone_bodies(model):
        own = slice(at, at + n)
        h = replaced(h, at, h[own] + lone_bias(M[own, own], armature[own], qd[own], dt))
    rate, move, turned = partial(axes_rate, model), partial(integrate, model), partial(turn_axes, model)
    correction = tree_correction(model, parameters, q, qd, rate, dt, move, turned)
    return qd + correction + dt * (torch.linalg.solve(M, tau - h) + rate(qd))


# -- contacts ------------------------------------------------------------------------------------------------------


def find_contacts(R: list[Tensor], p: list[Tensor], pairs: list[Pair], margin: float) -> list[Contact]:
    """Return the contacts closer than the margin, in the order of the pairs."""
    contacts = []
    for pair in pairs:
        centre = p[pair.a.link] + R[pair.a.link] @ pair.a.centre
        if pair.b is None:
            normal = torch.tensor([0.0, 0.0, 1.0], dtype=centre.dtype)
            on_b = centre - centre[2] * normal
        else:
            other = p[pair.b.link] + R[pair.b.link] @ pair.b.centre
            normal = (centre - other) / (centre - other).norm()
            on_b = other + pair.b.radius * normal
        on_a = centre - pair.a.radius * normal
        gap = (on_a - on_b) @ normal
        if gap < margin:
            contacts.append(Contact(pair, gap, 0.5 * (on_a + on_b), normal))
    return contacts


def contact_axes(normal: Tensor) -> Tensor:
    """Return normal and two tangents as rows; the first leans on the world axis most across the normal."""
    axis = torch.eye(3, dtype=normal.dtype)[int(normal.detach().abs().argmin())]
    t1 = axis - (axis @ normal) * normal
    t1 = t1 / t1.norm()
    return torch.stack([normal, t1, torch.linalg.cross(normal, t1)])


def contact_jacobian(model: Model, dofs: list[Dof], contact: Contact) -> Tensor:
    """Return the velocity of body a against body b at the contact point, along the contact's axes, (3, nv)."""
    J, _ = point_jacobian(model, dofs, contact.pair.a.link, contact.point)
    if contact.pair.b is not None:
        J = J - point_jacobian(model, dofs, contact.pair.b.link, contact.point)[0]
    return contact_axes(contact.normal) @ J


def gap_bias(gap: Tensor, settings: Settings, speed: float) -> Tensor:
    """Return the bias that lets a gap close within the step, and opens a penetration bit by bit, at a speed at most."""
    return gap / settings.dt if gap > 0.0 else torch.clamp(settings.erp * gap / settings.dt, min=-speed)


# -- joint limits and dry friction -----------------------------------------------------------------------------------


def limit_rows(model: Model, q: Tensor, settings: Settings) -> list[ScalarRow]:
    """Return a row for each joint near an end of its range, towards the inside; without room it holds both ways."""
    rows = []
    zero, unbounded = q.new_zeros(()), q.new_full((), torch.inf)
    for body in model.independent_bodies():
        if COORDINATES[body.kind][1] != 1:
            continue
        dof, at = model.v_start[body.joint.name], q[model.q_start[body.joint.name]]
        below, above = at - body.joint.limits.lower, body.joint.limits.upper - at
        sign, gap = (-1.0, above) if above < below else (1.0, below)
        if gap < settings.limit_margin:
            lower = zero if body.joint.limits.lower < body.joint.limits.upper else -unbounded
            rows.append(ScalarRow(dof, sign, gap_bias(gap, settings, settings.limit_speed), lower, unbounded))
    return rows


def friction_rows(model: Model, parameters: Parameters, settings: Settings) -> list[ScalarRow]:
    """Return a row for each dof with dry friction, whose impulse is at most dt times the friction."""
    values = dof_values(model, parameters["joint_friction"], power=1)
    zero = torch.zeros_like(values[0])
    return [
        ScalarRow(dof, 1.0, zero, -settings.dt * value, settings.dt * value)
        for dof, value in enumerate(values)
        if value > 0.0
    ]


# -- projected Gauss-Seidel ------------------------------------------------------------------------------------------


def sweep(A: Tensor, b: Tensor, lam: Tensor, friction: list[Tensor], scalars: list[ScalarRow], cone: bool) -> Tensor:
    """Return lam after one sweep: each contact's normal, then its tangents, then the scalar rows."""

    def residual(rows: slice | int) -> Tensor:
        return A[rows] @ lam + b[rows]

    for c, mu in enumerate(friction):
        n, t1, t2 = 3 * c, 3 * c + 1, 3 * c + 2
        lam = replaced(lam, n, torch.clamp(lam[n] - residual(n) / A[n, n], min=0.0))
        bound = mu * lam[n]
        if cone:
            x = lam[t1 : t2 + 1] - cone_step(A[t1 : t2 + 1, t1 : t2 + 1]) * residual(slice(t1, t2 + 1))
            length = x.detach().norm()
            lam = replaced(lam, t1, x * (bound / x.norm()) if length > bound else x)
        else:
            for t in (t1, t2):
                lam = replaced(lam, t, torch.clamp(lam[t] - residual(t) / A[t, t], -bound, bound))
    for s, row in enumerate(scalars, start=3 * len(friction)):
        lam = replaced(lam, s, torch.clamp(lam[s] - residual(s) / A[s, s], row.lower, row.upper))
    return lam


def solve(A: Tensor, b: Tensor, friction: list[Tensor], scalars: list[ScalarRow], settings: Settings) -> Tensor:
    """Return the impulses after the sweeps, from zero."""
    lam = torch.zeros_like(b)
    for _ in range(settings.sweeps):
        before = lam
        lam = sweep(A, b, lam, friction, scalars, settings.cone)
        if b.numel() == 0 or ((lam - before) * A.diagonal()).detach().abs().max() < settings.tolerance:
            break
    return lam


# -- the step --------------------------------------------------------------------------------------------------------


def turn(step: Tensor) -> tuple[Tensor, Tensor]:
    """Return vector and scalar part of the quaternion that turns by the vector step."""
    half = 0.5 * step.norm()
    return 0.5 * torch.sinc(half / torch.pi) * step, half.cos()


def turn_axes(model: Model, velocity: Tensor, step: Tensor) -> Tensor:
    """Return the velocity with free joints' linear part in the axes that a displacement turns bodies into."""
    for at in free_starts(model):
        xyz, w = turn(step[at : at + 3])
        R = rotation_of_quaternion(torch.cat([xyz, w[None]]))
        velocity = replaced(velocity, at + 3, R.T @ velocity[at + 3 : at + 6])
    return velocity


def integrate(model: Model, q: Tensor, step: Tensor) -> Tensor:
    """Return the coordinates after a displacement step = dt qd: positions along the body's axes, then its turn."""
    pieces = [q[:0]]
    for body in model.independent_bodies():
        (nq, nv), name = COORDINATES[body.kind], body.joint.name
        here, move = q[model.q_start[name] :][:nq], step[model.v_start[name] :][:nv]
        if nq == 1:
            pieces.append(here + move)
            continue
        quat = here[-4:] / here[-4:].norm()
        if body.kind == "free":
            pieces.append(here[:3] + rotation_of_quaternion(quat) @ move[3:])
        xyz, w = turn(move[:3])
        pieces.append(quat[3] * xyz + w * quat[:3] + cross_matrix(quat[:3]) @ xyz)
        pieces.append((quat[3] * w - quat[:3] @ xyz)[None])
    return torch.cat(pieces)


def step(
    model: Model,
    parameters: Parameters,
    q: Tensor,
    qd: Tensor,
    u: Tensor | None = None,
    *,
    gravity: Tensor,
    settings: Settings,
    pairs: list[Pair] | None = None,
    driven: Actuators | None = None,
) -> Outcome:
    """Return the world one step later; again with those actuators held whose forces turn out to exceed their limits."""
    options = {"gravity": gravity, "settings": settings, "pairs": pairs}
    M = mass_matrix(model, parameters, q)
    if not settings.implicit:
        tau = actuator_forces(model, driven, q, qd, u)
        return step_under(model, parameters, q, qd, tau, M, **options)[0]
    M = M + torch.diag(settings.dt * dof_values(model, parameters["joint_damping"]))
    if driven is None or u is None:
        return step_under(model, parameters, q, qd, torch.zeros_like(qd), M, **options)[0]
    # kp q at the coordinate after the step, q + dt v, as a function of q and v
    gain, kp, kd, limit = driven.rows.unbind(1)
    driven = Actuators(driven.dofs, torch.stack([gain, kp, kd + settings.dt * kp, limit], 1))
    held = exceeded_limits(model, driven, q, qd, u)
    for _ in range(64):
        tau, inertias = held_forces(model, driven, held, q, qd, u, settings.dt)
        outcome, velocity = step_under(model, parameters, q, qd, tau, M + torch.diag(inertias), **options)
        before, now = held, exceeded_limits(model, driven, q, velocity, u)
        held = torch.where(now * before < 0.0, 0.0, now)
        if bool((held == before).all()):
            return outcome
    raise AssertionError("which actuators are at their limits was not found")


def step_under(
    model: Model,
    parameters: Parameters,
    q: Tensor,
    qd: Tensor,
    tau: Tensor,
    M: Tensor,
    *,
    gravity: Tensor,
    settings: Settings,
    pairs: list[Pair] | None,
) -> tuple[Outcome, Tensor]:
    """Return the world one step later under joint forces, and the new velocity in the axes before the step."""
    dt = settings.dt
    free = free_velocity(model, parameters, M, q, qd, tau, gravity, dt)

    # rows of the contact problem
    R, p, dofs = link_poses(model, parameters, q)
    contacts = find_contacts(R, p, pairs or [], settings.margin)
    scalars = limit_rows(model, q, settings) + friction_rows(model, parameters, settings)
    # impacts that would add energy do not bounce: eq. (5a)
    for may_bounce in (True, False):
        jacobians, biases, before_impact, is_impact = [qd.new_zeros(0, model.nv)], [], [], []
        for contact in contacts:
            J = contact_jacobian(model, dofs, contact)
            approach = J[0] @ qd
            bias, fraction = gap_bias(contact.gap, settings, settings.push_speed), torch.zeros_like(contact.gap)
            rebound = torch.zeros_like(bias)
            if may_bounce and bounces(contact, approach, settings):
                # free motion goes on before and after the bodies meet
                part, fall, e = time_of_impact(contact, approach, dt), J[0] @ free - approach, contact.pair.restitution
                rebound = -e * (approach + part * fall) + (1.0 - part) * fall
                if rebound > 0.0:
                    bias, fraction = -rebound, part
            is_impact.append(bool(rebound > 0.0))
            jacobians.append(J)
            biases += [bias, torch.zeros_like(bias), torch.zeros_like(bias)]
            before_impact += [fraction] * 3
        for row in scalars:
            jacobians.append(row.sign * torch.eye(model.nv, dtype=qd.dtype)[row.dof : row.dof + 1])
            biases.append(row.bias)
            before_impact.append(torch.zeros_like(row.bias))

        # impulses
        J = torch.cat(jacobians)
        K = torch.linalg.solve(M, J.T)
        A = J @ K + settings.cfm * torch.eye(len(J), dtype=qd.dtype)
        bias = torch.stack([qd.new_zeros(()), *biases])[1:]
        lam = solve(A, J @ free + bias, [contact.pair.friction for contact in contacts], scalars, settings)

        # an impact within the step acts on the position for the rest of it only
        velocity = free + K @ lam
        fractions = torch.stack([qd.new_zeros(()), *before_impact])[1:]
        travel = velocity - K @ (fractions * lam)
        if not impacts_gain(M, (free, velocity, travel), lam, bias, is_impact):
            break
    move = dt * travel
    return Outcome(integrate(model, q, move), turn_axes(model, velocity, move), lam, contacts), velocity


def rollout(
    model: Model, parameters: Parameters, q: Tensor, qd: Tensor, controls: Tensor | int, **options
) -> tuple[Tensor, Tensor]:
    """Return the states (T+1, nq), (T+1, nv) under controls (T, nu), or for T steps without any."""
    us = [None] * controls if isinstance(controls, int) else list(controls)
    qs, qds = [q], [qd]
    for u in us:
        outcome = step(model, parameters, qs[-1], qds[-1], u, **options)
        qs.append(outcome.q)
        qds.append(outcome.qd)
    return torch.stack(qs), torch.stack(qds)
