"""One step of one world, split where something touches, in plain float64 torch: the yardstick for the split kernels.

    v    = the velocity of the whole step without what touches fast in it
    t    = the moment of touching, gap(q (+) d(t)) = 0,    d(t) = t qd + t (t + dt) / 2 (v - qd) / dt
    q1   = q (+) d(t),    v1 = qd + t / dt (v - qd)
    v2   = v1 + M^-1 J^T lam,    J v2 >= -e J v1 within the friction cone, at q1

and then a step of dt - t from (q1, v2), of which the same is asked (docs/derivations/impacts.md). Pieces are those of
tests/reference/step.py; what touches is one contact, or one joint limit, at a time. Damping is explicit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from pullback.description.compile import Model
from tests.reference.actuators import Actuators, actuator_forces, coordinate_of_dof
from tests.reference.dynamics import Parameters, link_poses, mass_matrix
from tests.reference.step import (
    Contact,
    Outcome,
    Pair,
    ScalarRow,
    Settings,
    contact_jacobian,
    find_contacts,
    free_velocity,
    friction_rows,
    gap_bias,
    integrate,
    limit_rows,
    solve,
    turn_axes,
)

Tensor = torch.Tensor

EVENTS = 8
TOUCHING, RESTING = 1e-11, 1e-6
NEWTON_STEPS = 12
IMPACT_SOFTNESS = 1e-3


class Problem(NamedTuple):
    """The rows of a part of a step: contacts and scalar rows with their J and biases, and the velocities."""

    M: Tensor
    free: Tensor
    contacts: list[Contact]
    scalars: list[ScalarRow]
    rows: list[Tensor]
    biases: list[Tensor]


def is_limit(row: ScalarRow) -> bool:
    """Return whether a scalar row is that of a joint limit, not of dry friction."""
    return bool(torch.isinf(row.upper))


def scalar_jacobian(row: ScalarRow, nv: int) -> Tensor:
    """Return the row of J, (1, nv)."""
    return row.sign * torch.eye(nv, dtype=torch.float64)[row.dof : row.dof + 1]


def limit_gap(row: ScalarRow, settings: Settings) -> Tensor:
    """Return the gap that a limit's bias was made of."""
    return row.bias * settings.dt / (1.0 if row.bias > 0.0 else settings.erp)


def closes(gap: Tensor, before: Tensor, rate: Tensor, span: Tensor, settings: Settings) -> bool:
    """Return whether a gap closes within the span, at a speed that counts as an impact."""
    acceleration = (rate - before) / span
    first = before + 0.5 * settings.dt * acceleration
    if gap < -TOUCHING or gap + span * (first + 0.5 * span * acceleration) >= 0.0:
        return False
    gap = gap.clamp(min=0.0)
    slope = (first**2 - 2.0 * acceleration * gap).sqrt() - first
    return bool(slope > 0.0 and before + 2.0 * gap / slope * acceleration < -settings.restitution_threshold)


def way(t: Tensor, qd: Tensor, velocity: Tensor, span: Tensor, settings: Settings) -> Tensor:
    """Return the displacement after a time on the way to the velocity at the end of the span."""
    return t * qd + 0.5 * t * (t + settings.dt) * (velocity - qd) / span


def impulses(problem: Problem, start: Tensor, settings: Settings) -> tuple[Tensor, Tensor]:
    """Return the velocity that the rows make of `start`, and their impulses."""
    J = torch.cat([start.new_zeros(0, len(start)), *problem.rows])
    K = torch.linalg.solve(problem.M, J.T)
    A = J @ K + settings.cfm * torch.eye(len(J), dtype=start.dtype)
    b = J @ start + torch.cat([start.new_zeros(0), *problem.biases])
    lam = solve(A, b, [c.pair.friction for c in problem.contacts], problem.scalars, settings)
    return start + K @ lam, lam


def split_step(
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
    told: bool = False,
) -> Outcome:
    """Return the world one step later; impacts are told what they give way by if wanted."""
    zero = qd.new_zeros(())
    left, touched = qd.new_tensor(settings.dt), None
    tau_of = lambda q, qd: actuator_forces(model, driven, q, qd, u)  # noqa: E731
    for event in range(EVENTS + 1):
        # penetrations are pushed out as in the whole step
        part = settings._replace(dt=left, erp=settings.erp * left / settings.dt)
        M = mass_matrix(model, parameters, q)
        # how free bodies turn is that of a whole step
        free = free_velocity(model, parameters, M, q, qd, tau_of(q, qd), gravity, settings.dt)
        free = qd + left / settings.dt * (free - qd)
        R, p, dofs = link_poses(model, parameters, q)
        margin = settings.margin + float(left) * 100.0
        kept = Problem(M, free, [], [], [], [])
        aside: list[Contact | ScalarRow] = []
        for contact in find_contacts(R, p, pairs or [], margin):
            J = contact_jacobian(model, dofs, contact)
            if event < EVENTS and closes(contact.gap, J[0] @ qd, J[0] @ free, left, settings):
                aside.append(contact)
                continue
            is_closed = contact.pair is touched and contact.gap.abs() < TOUCHING
            kept.contacts.append(contact)
            kept.rows.append(J)
            kept.biases.append(
                torch.stack([zero if is_closed else gap_bias(contact.gap, part, part.push_speed), zero, zero])
            )
        for row in limit_rows(model, q, part) + friction_rows(model, parameters, part):
            J = scalar_jacobian(row, model.nv)
            is_stop = is_limit(row) and row.lower == 0.0
            is_fast = is_stop and closes(limit_gap(row, part), J[0] @ qd, J[0] @ free, left, settings)
            if event < EVENTS and is_fast:
                aside.append(row)
                continue
            bias = zero if is_limit(row) and row.dof == touched else row.bias
            kept.scalars.append(row)
            kept.rows.append(J)
            kept.biases.append(bias[None])
        velocity, lam = impulses(kept, free, part)
        if not aside:
            break
        displacement = lambda t, qd=qd, velocity=velocity, left=left: way(t, qd, velocity, left, settings)  # noqa: E731
        t, touched = moment_of_touch(model, parameters, q, displacement, aside)
        moved = displacement(t)
        before = qd + t / left * (velocity - qd)
        q, qd, left = integrate(model, q, moved), turn_axes(model, before, moved), left - t
        qd = impact(model, parameters, q, qd, settings, pairs or [], told)
    move = way(left, qd, velocity, left, settings)
    return Outcome(integrate(model, q, move), turn_axes(model, velocity, move), lam, kept.contacts)


def moment_of_touch(
    model: Model,
    parameters: Parameters,
    q: Tensor,
    displacement: Callable[[Tensor], Tensor],
    aside: list[Contact | ScalarRow],
) -> tuple[Tensor, Pair | int]:
    """Return when the first of what was set aside touches on its way, and its pair or dof."""
    coordinate = coordinate_of_dof(model)

    def gap_after(thing: Contact | ScalarRow, t: Tensor) -> Tensor:
        moved = integrate(model, q, displacement(t))
        if isinstance(thing, Contact):
            R, p, _ = link_poses(model, parameters, moved)
            return find_contacts(R, p, [thing.pair], torch.inf)[0].gap
        end = next(b.joint.limits for b in model.independent_bodies() if model.v_start[b.joint.name] == thing.dof)
        at = moved[coordinate[thing.dof]]
        return at - end.lower if thing.sign > 0.0 else end.upper - at

    found = []
    for thing in aside:
        t = q.new_zeros(())
        for _ in range(NEWTON_STEPS):
            here = t.detach().requires_grad_()
            gap = gap_after(thing, here)
            (rate,) = torch.autograd.grad(gap, here, retain_graph=True)
            # the last step carries the derivative of the moment
            t = here.detach() - gap_after(thing, here.detach()) / rate
        found.append((t, thing.pair if isinstance(thing, Contact) else thing.dof))
    return min(found, key=lambda pair: float(pair[0]))


def impact(
    model: Model, parameters: Parameters, q: Tensor, qd: Tensor, settings: Settings, pairs: list[Pair], told: bool
) -> Tensor:
    """Return the velocity after an impact of all that touches."""
    R, p, dofs = link_poses(model, parameters, q)
    problem = Problem(mass_matrix(model, parameters, q), qd, [], [], [], [])
    zero, threshold = qd.new_zeros(()), settings.restitution_threshold
    for contact in find_contacts(R, p, pairs, settings.margin):
        J = contact_jacobian(model, dofs, contact)
        approach = J[0] @ qd
        if contact.gap <= TOUCHING or (contact.gap <= RESTING and approach >= -threshold):
            bias = contact.pair.restitution * approach if approach < -threshold else zero
            problem.contacts.append(contact)
            problem.rows.append(J)
            problem.biases.append(torch.stack([bias, zero, zero]))
    for row in limit_rows(model, q, settings):
        gap, approach = limit_gap(row, settings), row.sign * qd[row.dof]
        if gap <= TOUCHING or (gap <= RESTING and approach >= -threshold):
            problem.scalars.append(row)
            problem.rows.append(scalar_jacobian(row, model.nv))
            problem.biases.append(zero[None])
    # it hardly gives way
    settings = settings._replace(cfm=IMPACT_SOFTNESS * settings.cfm)
    velocity, lam = impulses(problem, qd, settings)
    if told:
        n = len(problem.contacts)
        normal = torch.tensor([1.0, 0.0, 0.0], dtype=qd.dtype)
        given = [settings.cfm * lam[3 * c] * normal for c in range(n)]
        given += [settings.cfm * lam[3 * n + k : 3 * n + k + 1] for k in range(len(problem.scalars))]
        less = problem._replace(biases=[bias - way for bias, way in zip(problem.biases, given)])
        velocity, _ = impulses(less, qd, settings)
    return velocity


def split_rollout(
    model: Model, parameters: Parameters, q: Tensor, qd: Tensor, controls: Tensor | int, **options
) -> tuple[Tensor, Tensor]:
    """Return the states (T+1, nq), (T+1, nv) under controls (T, nu), or for T steps without any."""
    us = [None] * controls if isinstance(controls, int) else list(controls)
    qs, qds = [q], [qd]
    for u in us:
        outcome = split_step(model, parameters, qs[-1], qds[-1], u, **options)
        qs.append(outcome.q)
        qds.append(outcome.qd)
    return torch.stack(qs), torch.stack(qds)
