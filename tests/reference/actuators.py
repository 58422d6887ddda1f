"""Forces of actuators and their limits, in plain float64 torch (docs/derivations/integration.md, section on servos)."""

from __future__ import annotations

from typing import NamedTuple

import torch

from pullback.description.compile import COORDINATES, Model

Tensor = torch.Tensor


class Actuators(NamedTuple):
    """The dofs of one-dof joints that are driven, and gain, kp, kd, effort limit of each, (nu, 4)."""

    dofs: list[int]
    rows: Tensor


def coordinate_of_dof(model: Model) -> dict[int, int]:
    """Return, for the dofs of one-dof joints, where their coordinates stand in q."""
    bodies = [body for body in model.independent_bodies() if COORDINATES[body.kind][1] == 1]
    return {model.v_start[body.joint.name]: model.q_start[body.joint.name] for body in bodies}


def actuators(model: Model, gain: float = 1.0, kp: float = 0.0, kd: float = 0.0, limit: float = torch.inf) -> Actuators:
    """Return the same actuator on every one-dof joint."""
    dofs = sorted(coordinate_of_dof(model))
    return Actuators(dofs, torch.tensor([[gain, kp, kd, limit]] * len(dofs), dtype=torch.float64).reshape(-1, 4))


def wanted_forces(model: Model, driven: Actuators, q: Tensor, qd: Tensor, u: Tensor) -> Tensor:
    """Return gain u - kp q - kd qd of each actuator."""
    coordinate = coordinate_of_dof(model)
    gain, kp, kd, _ = driven.rows.unbind(1)
    return gain * u - kp * q[[coordinate[dof] for dof in driven.dofs]] - kd * qd[driven.dofs]


def actuator_forces(model: Model, driven: Actuators | None, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
    """Return tau = clamp(gain u - kp q - kd qd, -limit, limit), and zero on dofs without an actuator."""
    if driven is None or u is None:
        return torch.zeros_like(qd)
    limit = driven.rows[:, 3]
    forces = torch.clamp(wanted_forces(model, driven, q, qd, u), -limit, limit)
    return torch.zeros_like(qd).index_add(0, torch.tensor(driven.dofs), forces)


def exceeded_limits(model: Model, driven: Actuators, q: Tensor, qd: Tensor, u: Tensor) -> Tensor:
    """Return the sign of the limit that each actuator's force exceeds, 0 where it is within them."""
    wanted = wanted_forces(model, driven, q, qd, u).detach()
    return torch.where(wanted.abs() > driven.rows[:, 3], wanted.sign(), 0.0)


def held_forces(
    model: Model, driven: Actuators, held: Tensor, q: Tensor, qd: Tensor, u: Tensor, dt: float
) -> tuple[Tensor, Tensor]:
    """Return tau, and the inertias (nv,) of forces at the velocity after the step; held ones are at their limits."""
    forces = torch.where(held == 0.0, wanted_forces(model, driven, q, qd, u), held * driven.rows[:, 3].nan_to_num())
    inertias = torch.where(held == 0.0, dt * driven.rows[:, 2], 0.0)
    zero, dofs = torch.zeros_like(qd), torch.tensor(driven.dofs)
    return zero.index_add(0, dofs, forces), zero.index_add(0, dofs, inertias)
