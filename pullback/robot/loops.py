"""Close the loops of a robot: move its joints, as little as possible, to where the frames of each loop meet.

Of a loop with frames F on link a and G on link b, axes e and f, the opening and its rate under the joints' are

    r = (p_F - p_G, ½ Σ e_k × f_k),    dr/dt = (v_F - v_G, -(ω_F - ω_G))    where it is closed,               (1)

the turns of a hinge only across its axis, those of a point not at all. Newton's method moves q by -J⁺ r. The closed
coordinates change with those it starts from by the projection 1 - J⁺ J, and with the parameters by -J⁺ ∂r/∂θ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pullback.core.errors import PullbackError
from pullback.description.joints import KINDS
from pullback.description.tree import Loop, Pose
from pullback.spatial.rotations_torch import rotate

if TYPE_CHECKING:
    from pullback.robot.model import RobotModel

Tensor = torch.Tensor

# rows of an opening that are redundant, relative to the largest
RANK = {torch.float64: 1e-9, torch.float32: 1e-4}


def close_loops(robot: RobotModel, q: Tensor, *, iterations: int, tolerance: float) -> Tensor:
    """Return coordinates (*batch, nq) near q at which all loops are closed to `tolerance` [m, rad]."""
    loops = robot.model.tree.loops
    if not loops:
        return q
    with torch.no_grad():
        closed = q.detach()
        for _ in range(iterations):
            opening = _opening(robot, closed, loops)
            if float(opening.abs().max()) <= tolerance:
                break
            closed = robot.integrate(closed, _step(robot, closed, loops, opening))
        worst = float(_opening(robot, closed, loops).abs().max())
        if not worst <= tolerance:
            raise PullbackError(
                f"the loops of {robot.model.tree.name} stay open by {worst:.3g} m or rad after {iterations} steps; "
                f"start closer to where they are closed"
            )
    if not torch.is_grad_enabled() or not (q.requires_grad or any(p.requires_grad for p in robot.parameters())):
        return closed
    # to first order: the motion of q, less what would open the loops, and what closes those that parameters open
    moved = robot.manifold.difference(q.detach(), q)
    J = _jacobian(robot, closed, loops).detach()
    opened = _opening(robot, closed, loops)
    change = (J @ moved[..., None])[..., 0] + opened - opened.detach()
    return robot.integrate(closed, moved - _pinv(J, robot, change))


def _step(robot: RobotModel, q: Tensor, loops: list[Loop], opening: Tensor) -> Tensor:
    return -_pinv(_jacobian(robot, q, loops), robot, opening)


def _pinv(J: Tensor, robot: RobotModel, rows: Tensor) -> Tensor:
    return (torch.linalg.pinv(J, rtol=RANK[robot.dtype]) @ rows[..., None])[..., 0]


def _opening(robot: RobotModel, q: Tensor, loops: list[Loop]) -> Tensor:
    """Return the openings r (*batch, 6 n) of all loops: eq. (1)."""
    rows = []
    for loop in loops:
        (p, axes), (other, others) = (_frame(robot, q, *end) for end in _ends(loop))
        turn = 0.5 * torch.linalg.cross(axes, others).sum(-2)
        rows += [p - other, _stopped(loop, turn, others[..., 2, :])]
    return torch.cat(torch.broadcast_tensors(*rows), -1)


def _jacobian(robot: RobotModel, q: Tensor, loops: list[Loop]) -> Tensor:
    """Return dr/dq (*batch, 6 n, nv) where loops are closed; a floating base stays where it is."""
    rows = []
    for loop in loops:
        linear, angular = [], []
        for link, frame in _ends(loop):
            if link is None:
                continue
            sign = -1.0 if linear or link != loop.link_a else 1.0
            Jv, Jw = robot.compute_endeffector_jacobian(q, link)
            _, quat = robot.compute_forward_kinematics(q, link)
            arm = rotate(quat, quat.new_tensor(frame.translation).expand(*quat.shape[:-1], 3))
            at_point = Jv + torch.linalg.cross(Jw, arm[..., :, None].expand_as(Jw), dim=-2)
            linear.append(sign * at_point)
            angular.append(sign * Jw)
        _, (_, others) = (_frame(robot, q, *end) for end in _ends(loop))
        turn = -sum(angular)  # pyright: ignore[reportOperatorIssue]
        rows += [sum(linear), _stopped(loop, turn.mT, others[..., None, 2, :]).mT]  # pyright: ignore
    J = torch.cat(rows, -2)
    free = torch.ones(robot.nv, dtype=J.dtype, device=J.device)
    for body in robot.model.independent_bodies():
        if KINDS[body.kind].travels:
            start = robot.model.v_start[body.joint.name]
            free[start : start + 6] = 0.0
    return J * free


def _stopped(loop: Loop, turn: Tensor, axis: Tensor) -> Tensor:
    """Return the part of a turn (..., 3) that a loop stops: none of a point, that across the axis of a hinge."""
    if loop.kind == "connect":
        return torch.zeros_like(turn)
    return turn if loop.kind == "weld" else turn - (turn * axis).sum(-1, keepdim=True) * axis


def _ends(loop: Loop) -> list[tuple[str | None, Pose]]:
    return [(loop.link_a, loop.frame_a), (loop.link_b, loop.frame_b)]


def _frame(robot: RobotModel, q: Tensor, link: str | None, frame: Pose) -> tuple[Tensor, Tensor]:
    """Return the origin (*batch, 3) of a frame on a link, or in the world, and its axes as rows (*batch, 3, 3)."""
    axes, p = q.new_tensor(frame.rotation.T), q.new_tensor(frame.translation)
    if link is None:
        return p.expand(*q.shape[:-1], 3), axes.expand(*q.shape[:-1], 3, 3)
    position, quat = robot.compute_forward_kinematics(q, link)
    turned = rotate(quat[..., None, :].expand(*quat.shape[:-1], 3, 4), axes.expand(*quat.shape[:-1], 3, 3))
    return position + rotate(quat, p.expand_as(position)), turned
