"""What the step adds to the velocity of trees that turn fast, for many steps at once.

Equations (7) to (11) of docs/derivations/gyroscopic.md once more, from the robots' own functions in float64; of one
step and by plain dynamics they stand in `tests/reference/tree_energy.py`.
"""

from __future__ import annotations

import torch

import pullback as pb
from pullback.description.compile import WORLD
from pullback.spatial.rotations_torch import quaternion_from_vector, rotate
from tests.reference.tree_energy import FAST, SLOW, dofs_of, smooth_step, trees

Tensor = torch.Tensor


def tree_corrections(robot: pb.RobotModel, q: Tensor, v: Tensor, M: Tensor, axes_rate: Tensor, dt: float) -> Tensor:
    """Return by how much velocities (n, nv) change so that fast trees keep the energy before their last move."""
    found, groups = torch.zeros_like(v), trees(robot.model)
    if not groups or not len(v):
        return found
    # straight motion of a root changes nothing, and large numbers would be subtracted
    v, axes_rate = v.clone(), axes_rate.clone()
    for body in robot.model.bodies:
        if body.kind == "free" and body.parent == WORLD:
            v[:, body.v_start + 3 : body.v_start + 6] = axes_rate[:, body.v_start + 3 : body.v_start + 6] = 0.0
    products = robot.compute_non_linear_effects(q, v, use_damping=False, gravity=torch.zeros(len(q), 3, dtype=q.dtype))
    ahead = v + dt * (axes_rate - torch.linalg.solve(M, products))
    M_before = robot.compute_lagrangian_inertia_matrix(robot.manifold.retract(q, -dt * v))
    before = v.clone()
    for body in robot.model.bodies:
        if body.kind == "free":
            w, linear = slice(body.v_start, body.v_start + 3), slice(body.v_start + 3, body.v_start + 6)
            before[:, linear] = rotate(quaternion_from_vector(dt * v[:, w]), v[:, linear])
    for bodies in groups:
        own, turning = dofs_of(robot.model, bodies)
        weight = smooth_step(((dt * v[:, turning]).square().sum(1) - SLOW**2) / (FAST**2 - SLOW**2))
        e, v_before = ahead[:, own], before[:, own]
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
        found[:, own] = torch.where(weight[:, None] > 0.0, change, torch.zeros_like(change))
    return found
