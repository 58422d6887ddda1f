"""Velocity products and energy of trees that turn fast, in float64 torch (docs/derivations/gyroscopic.md, "Trees")."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pullback.description.compile import COORDINATES, WORLD, Model
from tests.reference.dynamics import Parameters, dof_values, inverse_dynamics, mass_matrix

Tensor = torch.Tensor

SECOND_FROM, SECOND_FULL = 0.02, 0.04
"""Turns of a tree [rad] in a step between which velocity products come to be those half a step on."""
SLOW, FAST = 0.25, 0.5
"""The same, between which its energy begins to be kept."""


def trees(model: Model) -> list[list[int]]:
    """Return the bodies of each tree of several bodies, the root first."""
    root: dict[int, int] = {}
    for k, body in enumerate(model.bodies):
        root[k] = k if body.parent == WORLD else root[body.parent]
    groups = [[k for k in root if root[k] == r] for r in sorted(set(root.values()))]
    return [group for group in groups if len(group) > 1]


def dofs_of(model: Model, bodies: list[int]) -> tuple[list[int], list[int]]:
    """Return the dofs of some bodies, and those of them that turn."""
    every, turning = [], []
    for k in bodies:
        body = model.bodies[k]
        first, n = model.v_start[body.joint.name], COORDINATES[body.kind][1]
        every += range(first, first + n)
        turning += [] if body.kind == "prismatic" else range(first, first + min(n, 3))
    return every, turning


def smooth_step(t: Tensor) -> Tensor:
    """Return 0 below 0, 1 above 1, and 3 t² - 2 t³ between them."""
    t = torch.clamp(t, 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


def ramp(turns: Tensor, low: float, high: float) -> Tensor:
    """Return the weight, 0 to 1, of a tree whose dofs turn by these angles [rad] (..., n) in a step."""
    return smooth_step((turns.square().sum(-1) - low**2) / (high**2 - low**2))


def tree_correction(
    model: Model,
    parameters: Parameters,
    q: Tensor,
    qd: Tensor,
    axes_rate: Callable[[Tensor], Tensor],
    dt: float,
    move: Callable[[Tensor, Tensor], Tensor],
    turn: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return by how much the velocity after the velocity products changes so that trees keep their energy.

    `axes_rate` gives what free joints' linear accelerations lack, `move` moves coordinates by a displacement, `turn`
    turns the linear velocities of free joints into the axes after one.
    """
    N, zero = mass_matrix(model, parameters, q), torch.zeros_like(qd)

    def after_products(x: Tensor) -> Tensor:
        products = inverse_dynamics(model, parameters, q, x, zero, gravity=torch.zeros(3, dtype=q.dtype))
        return qd + dt * axes_rate(x) - dt * torch.linalg.solve(N, products)

    first = after_products(qd)
    second = after_products(0.5 * (qd + first))
    armature = dof_values(model, parameters["joint_armature"])
    before = turn(qd, -dt * qd)
    N_before = mass_matrix(model, parameters, move(q, -dt * qd))
    correction = zero
    for bodies in trees(model):
        own, turning = dofs_of(model, bodies)
        at, block = torch.tensor(own), torch.meshgrid(torch.tensor(own), torch.tensor(own), indexing="ij")
        e, v = first[at], before[at]
        ahead = e + ramp(dt * qd[turning], SECOND_FROM, SECOND_FULL) * (second[at] - e)
        correction = correction.index_put((at,), ahead - e)
        weight = ramp(dt * qd[turning], SLOW, FAST)
        if weight == 0.0:
            continue
        e, start = ahead, e
        p, p_before = N[block] @ e, N_before[block] @ v
        energy, energy_before = 0.5 * e @ p, 0.5 * v @ p_before
        centre, centre_before = torch.zeros_like(e), torch.zeros_like(e)
        if model.bodies[bodies[0]].kind == "free":
            mass = N[own[5], own[5]] - armature[own[5]]
            energy = energy - 0.5 * p[3:6] @ p[3:6] / mass
            energy_before = energy_before - 0.5 * p_before[3:6] @ p_before[3:6] / mass
            centre = torch.cat([e[:3] * 0.0, p[3:6] / mass, e[6:] * 0.0])
            carried = torch.zeros_like(qd).index_put((at[3:6],), p_before[3:6] / mass)
            centre_before = turn(carried, dt * qd)[at]
        scale = torch.sqrt(torch.clamp(energy_before / energy, max=1.0))
        kept = centre_before + scale * (e - centre)
        correction = correction.index_put((at,), e + weight * (kept - e) - start)
    return correction
