"""The Panda on a way of hand poses: its joints there, and servo targets that carry its weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pullback.core.errors import PullbackError
from pullback.robot.ik import inverse_kinematics
from pullback.robot.model import RobotModel

Tensor = torch.Tensor


def follow(robot: RobotModel, link: str, way: Sequence[tuple[Tensor, Tensor]], q: Tensor, joints: int) -> Tensor:
    """Return coordinates (B, K, nq) for each pose of a link on its way.

    way: K positions [m] (B, 3) and orientations xyzw (B, 4), each found from the one before, the first from q (B, nq).
    Coordinates beyond the first `joints` stay as they are in q.
    """
    found = []
    for position, orientation in way:
        reached = inverse_kinematics(robot, link, position, orientation, q0=q, restarts=1, iterations=100)
        if not bool(reached.reached.all()):
            raise PullbackError(f"the arm does not reach everywhere it should: {reached}")
        q = torch.cat([reached.q[:, :joints], q[:, joints:]], -1)
        found.append(q)
    return torch.stack(found, 1)


def carry(robot: RobotModel, q: Tensor, stiffness: Sequence[float]) -> Tensor:
    """Return servo targets (B, K, n) that hold the arm at q (B, K, nq) against its weight.

    stiffness [N·m/rad] (n,): of the servos of the first n joints.
    """
    still = torch.zeros_like(q.flatten(0, 1))
    weight = robot.compute_inverse_dynamics(q.flatten(0, 1), still, still, include_gravity=True).view_as(q)
    count = len(stiffness)
    return q[..., :count] + weight[..., :count] / torch.tensor(stiffness).to(q)
