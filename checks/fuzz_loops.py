"""Closed loops in the balance of random steps: what their rows give, and that their anchors move together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from pullback.rigid.world.loops import ClosedLoop, End

if TYPE_CHECKING:
    from checks.fuzz_laws import Laws

Array = np.ndarray


def numbers(value: object) -> Array:
    """Return a constant as numpy."""
    return np.asarray(value.detach().numpy() if isinstance(value, torch.Tensor) else value, dtype=np.float64)


def anchor(laws: Laws, end: End) -> Array:
    """Return the origin of a loop's frame in the world (n, 3)."""
    n = len(laws.p)
    if end.item is None or end.item.robot is None:
        return np.broadcast_to(numbers(end.position), (n, 3))
    items = [item.name for item in laws.drawn.world.items]
    R, p = laws.poses[items.index(end.item.name)][end.item.robot.model.links[end.link].name]
    return p + R @ numbers(end.position)


def jacobian(laws: Laws, end: End, point: Array) -> Array:
    """Return what moves a point of an end's body, then what turns it (n, 6, nv)."""
    n, nv = laws.p.shape
    J = np.zeros((n, 6, nv))
    if end.item is None or end.item.robot is None or end.body < 0:
        return J
    robot, q_at, v_at = laws.parts[end.item.name]
    link = robot.model.links[end.link].name
    turn = end.item.rotation if robot.model.base == "fixed" else np.eye(3)
    linear, angular = (turn @ x.numpy() for x in robot.compute_endeffector_jacobian(laws.q0[:, q_at], link))
    items = [item.name for item in laws.drawn.world.items]
    arm = point - laws.poses[items.index(end.item.name)][link][1]
    J[:, :3, v_at] = linear + np.cross(angular.swapaxes(1, 2), arm[:, None]).swapaxes(1, 2)
    J[:, 3:, v_at] = angular
    return J


def loop_rows(laws: Laws, loop: ClosedLoop) -> tuple[Array, Array]:
    """Return the rows of a loop (n, 3 or 6, nv), of a hinge one too many, and how far its anchors are apart (n, 3)."""
    first, second = loop.ends
    point = anchor(laws, first)
    J = jacobian(laws, first, point) - jacobian(laws, second, point)
    return J[:, : 3 if loop.kind == "connect" else 6], point - anchor(laws, second)


def take_out_loops(laws: Laws, bounded: Array) -> Array:
    """Take out of p what loops gave where dofs are not `bounded` (n, nv), and leave nothing in the others.

    Return by how much the anchors' velocities after the step differ from what closes the loops, beyond softness (n,)
    and beyond what the rounding of coordinates of a metre makes of them.
    """
    contact, dt = laws.drawn.world.contact, laws.drawn.sim.dt
    rounded = contact.loop_erp / dt * torch.finfo(laws.drawn.sim.dtype).eps
    found = [loop_rows(laws, loop) for loop in laws.drawn.world.loops]
    J = np.concatenate([rows for rows, _ in found], 1)
    held = np.where(bounded[:, None], 0.0, J).swapaxes(1, 2)
    mu = np.einsum("nrv,nv->nr", np.linalg.pinv(held, rcond=1e-10), np.where(bounded, 0.0, laws.p))
    laws.p = np.where(bounded, 0.0, laws.p - np.einsum("nrv,nr->nv", J, mu))
    laws.scale += np.einsum("nrv,nr->nv", np.abs(J), np.abs(mu))
    laws.loop_mobility, laws.loop_impulse = np.einsum("nrv,nvw,nrw->nr", J, laws.inverse, J), mu
    wrong = np.zeros(len(laws.p))
    for rows, apart in found:
        rate = np.einsum("nrv,nv->nr", rows[:, :3], laws.v1.numpy()) + contact.loop_erp / dt * apart
        wrong = np.maximum(wrong, np.abs(rate).max(1))
    return np.maximum(wrong - 10 * laws.drawn.sim.cfm * np.abs(mu).max(1) - rounded, 0.0)
