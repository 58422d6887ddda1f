"""What the step adds to the velocity of trees that turn fast, for many steps at once.

Equations (7) to (11) and (16) of docs/derivations/gyroscopic.md once more, from the robots' own functions in float64;
of one step and by plain dynamics they stand in `tests/reference/tree_energy.py`.
"""

from __future__ import annotations

import torch

import pullback as pb
from pullback.description.compile import WORLD
from pullback.spatial.rotations_torch import quaternion_from_vector, rotate
from tests.reference.tree_energy import FAST, SECOND_FROM, SECOND_FULL, SLOW, dofs_of, ramp, trees

Tensor = torch.Tensor


def tree_corrections(robot: pb.RobotModel, q: Tensor, v: Tensor, M: Tensor, dt: float) -> Tensor:
    """Return by how much velocities (n, nv) change by velocity products half a step on, and by energy that is kept."""
    found, groups = torch.zeros_like(v), trees(robot.model)
    if not groups or not len(v):
        return found
    # straight motion of a root changes nothing, and large numbers would be subtracted
    v = v.clone()
    for body in robot.model.bodies:
        if body.kind == "free" and body.parent == WORLD:
            v[:, body.v_start + 3 : body.v_start + 6] = 0.0
    first = after_products(robot, q, v, v, M, dt)
    second = after_products(robot, q, v, 0.5 * (v + first), M, dt)
    M_before = robot.compute_lagrangian_inertia_matrix(robot.manifold.retract(q, -dt * v))
    before = v.clone()
    for body in robot.model.bodies:
        if body.kind == "free":
            w, linear = slice(body.v_start, body.v_start + 3), slice(body.v_start + 3, body.v_start + 6)
            before[:, linear] = rotate(quaternion_from_vector(dt * v[:, w]), v[:, linear])
    for bodies in groups:
        own, turning = dofs_of(robot.model, bodies)
        start, v_before = first[:, own], before[:, own]
        e = start + ramp(dt * v[:, turning], SECOND_FROM, SECOND_FULL)[:, None] * (second[:, own] - start)
        weight = ramp(dt * v[:, turning], SLOW, FAST)
        p, p_before = ((N[:, own][:, :, own] @ x[..., None])[..., 0] for N, x in ((M, e), (M_before, v_before)))
        energy, energy_before = 0.5 * (e * p).sum(1), 0.5 * (v_before * p_before).sum(1)
        centre, centre_before = torch.zeros_like(e), torch.zeros_like(e)
        root = robot.model.bodies[bodies[0]]
        if root.kind == "free":
            mass = M[:, own[5], own[5], None] - root.joint.armature
            energy = energy - 0.5 * (p[:, 3:6].square() / mass).sum(1)
            energy_before = energy_before - 0.5 * (p_before[:, 3:6].square() / mass).sum(1)
            centre[:, 3:6] = p[:, 3:6] / mass
            centre_before[:, 3:6] = rotate(quaternion_from_vector(-dt * v[:, own[:3]]), p_before[:, 3:6] / mass)
        scale = (energy_before / energy).clamp(max=1.0).sqrt()[:, None]
        change = weight[:, None] * (centre_before + scale * (e - centre) - e)
        found[:, own] = e - start + torch.where(weight[:, None] > 0.0, change, torch.zeros_like(change))
    return found


def after_products(robot: pb.RobotModel, q: Tensor, v: Tensor, x: Tensor, M: Tensor, dt: float) -> Tensor:
    """Return velocities (n, nv) after velocity products at x, in the axes before the step."""
    products = robot.compute_non_linear_effects(q, x, use_damping=False, gravity=torch.zeros(len(q), 3, dtype=q.dtype))
    rate = torch.zeros_like(x)
    for body in robot.model.bodies:
        if body.kind == "free":
            w, linear = slice(body.v_start, body.v_start + 3), slice(body.v_start + 3, body.v_start + 6)
            rate[:, linear] = torch.linalg.cross(x[:, w], x[:, linear])
    return v + dt * (rate - torch.linalg.solve(M, products))
