"""A motor whose joint has elastic end stops in the place of rigid limits."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import numpy as np

from pullback.core.errors import PullbackError
from pullback.rigid.world.actuators import Actuator, Numbers, check_number, symmetric
from pullback.rigid.world.items import one_dof
from pullback.rigid.world.values import Given, Tensor
from pullback.robot.model import RobotModel


@dataclass(frozen=True, eq=False)
class SoftStopMotor(Actuator):
    """A motor, tau = gain u, on a joint that springs hold within `lower` and `upper` [rad, m].

    Beyond a stop by x the spring pushes back by stiffness s(x) + damping s'(x) qd, s(x) = x²/2w within the width w and
    x - w/2 beyond it: force and gradient have no jump, and a motor that leans against its stop still moves it. Rigid
    limits hold exactly, and there a motor that does not pull away has no gradient. Compile with `without=["limits"]`.
    """

    law: ClassVar[str] = "pullback.rigid.step.soft_stop_kernels"
    is_stiff: ClassVar[bool] = False

    gain: Given = 1.0
    lower: Given = -np.inf
    """The lower stop [rad, m]."""
    upper: Given = np.inf
    """The upper stop [rad, m]."""
    stiffness: Given = 1e3
    """k of the stops [N·m/rad, N/m]."""
    damping: Given = 10.0
    """d of the stops [N·m·s/rad, N·s/m]; the rest of the range has the joint's own damping only."""
    width: Given = 0.05
    """w [rad, m], over which the stops' stiffness sets in."""
    limit: Given | None = None
    """Of the motor's force [N·m, N], by default the joint's effort limit."""

    @staticmethod
    def of(
        robot: RobotModel, gain: Given = 1.0, *, stiffness: Given = 1e3, damping: Given = 10.0, width: Given = 0.05
    ) -> dict[str, SoftStopMotor]:
        """Return a motor for each joint that has limits, its stops at these: what `world.add(actuators=...)` takes."""
        joints = [body.joint for body in robot.model.bodies if one_dof(body)]
        found = {
            joint.name: SoftStopMotor(gain, joint.limits.lower, joint.limits.upper, stiffness, damping, width)
            for joint in joints
            if isfinite(joint.limits.lower) or isfinite(joint.limits.upper)
        }
        if not found:
            raise PullbackError(f"no joint of {robot.model.tree.name!r} has limits; drive its joints by pb.Torque")
        return found

    def numbers(self, what: str) -> Numbers:
        """Return the numbers of the law, checked."""
        gain = check_number(f"{what}: gain", self.gain)
        stiffness, damping, width = (
            check_number(f"{what}: {name}", getattr(self, name), least=0.0)
            for name in ("stiffness", "damping", "width")
        )
        if not bool((width > 0.0).all()):
            raise PullbackError(f"{what}: width is zero somewhere; give how far [rad, m] the stops take to set in")
        lower, upper = (
            check_number(f"{what}: {name}", getattr(self, name), finite=False) for name in ("lower", "upper")
        )
        return Numbers(
            gain=gain, kp=stiffness, bias=damping, control_lower=lower, control_upper=upper, velocity_gain=width,
            **symmetric(what, self.limit),
        )  # fmt: skip

    def control_reach(self, numbers: Tensor) -> Tensor:
        """Return the largest control (b,) that still changes the force."""
        most = numbers[..., 4:6].abs().amax(-1)
        return most / numbers[..., 0].abs()
