"""What drives joints: a force from a control u. Torque motors and servos are clamp(gain u - kp q - kd qd, ±limit).

Every number may be a tensor: () or (B,) for all joints the actuator drives, (B, n) or (1, n) for each of its n joints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from pullback.core.errors import PullbackError
from pullback.rigid.world.values import Given, Tensor, Value, check_value

Numbers: TypeAlias = "tuple[Value, Value, Value, Value | None]"
"""The numbers of a law, in order; the third is how the force falls with velocity, the fourth its limit. None: the
joint's effort limit."""

NONE = np.zeros(())
AFFINE = "pullback.rigid.step.affine_law_kernels"
EXAMPLES = "pb.PositionServo(...) or another actuator"


class Actuator:
    """What drives a joint. An actuator is a subclass of this, and a kernels file with its law.

    `law` names that file; its function `law` returns force and derivatives (step/actuator_kernels.py).
    """

    law: ClassVar[str] = AFFINE
    is_stiff: ClassVar[bool] = True
    """Whether the second of the law's numbers is how the force falls with the coordinate."""

    def numbers(self, what: str) -> Numbers:
        """Return the numbers of the law, checked; `what` is the actuator's name in errors."""
        raise NotImplementedError

    def control_reach(self, numbers: Tensor) -> Tensor:
        """Return the largest control (b,) that still changes the force, given the rows (b, 4) that kernels read."""
        gain, kp, kd, limit = numbers.unbind(-1)
        is_torque = (kp == 0.0) & (kd == 0.0) & (gain != 0.0)
        return (limit / gain.abs()).where(is_torque, limit.new_tensor(np.inf))


@dataclass(frozen=True, eq=False)
class Torque(Actuator):
    """A motor: u is the force [N·m, N] divided by `gain`; `limit` is by default the joint's effort limit."""

    gain: Given = 1.0
    limit: Given | None = None

    def numbers(self, what: str) -> Numbers:
        """Return gain, kp, kd and limit, checked."""
        return check_number(f"{what}: gain", self.gain), NONE, NONE, check_limit(what, self.limit)


@dataclass(frozen=True, eq=False)
class PositionServo(Actuator):
    """A servo that follows a position: u [rad, m] is the target, tau = kp (u - q) - kd qd."""

    kp: Given
    kd: Given = 0.0
    limit: Given | None = None

    def numbers(self, what: str) -> Numbers:
        """Return gain, kp, kd and limit, checked."""
        kp, kd = check_number(f"{what}: kp", self.kp, least=0.0), check_number(f"{what}: kd", self.kd, least=0.0)
        return kp, kp, kd, check_limit(what, self.limit)


@dataclass(frozen=True, eq=False)
class VelocityServo(Actuator):
    """A servo that follows a velocity: u [rad/s, m/s] is the target, tau = kd (u - qd)."""

    kd: Given
    limit: Given | None = None

    def numbers(self, what: str) -> Numbers:
        """Return gain, kp, kd and limit, checked."""
        kd = check_number(f"{what}: kd", self.kd, least=0.0)
        return kd, NONE, kd, check_limit(what, self.limit)


def check_actuator(what: str, actuator: object) -> Actuator:
    """Return an actuator whose numbers are in order."""
    if not isinstance(actuator, Actuator):
        raise PullbackError(f"{what} is {actuator!r}; expected pb.Torque(...), {EXAMPLES}")
    actuator.numbers(what)
    return actuator


def check_number(what: str, value: Given, *, least: float | None = None, finite: bool = True) -> Value:
    """Return a number of an actuator, checked."""
    per_joint = isinstance(value, Tensor | np.ndarray) and value.ndim == 2
    shape = (int(value.shape[1]),) if per_joint else ()  # pyright: ignore[reportAttributeAccessIssue]
    return check_value(what, value, shape, least=least, finite=finite)


def check_limit(what: str, value: Given | None) -> Value | None:
    """Return a limit [N·m, N], checked; None: the joint's own."""
    return None if value is None else check_number(f"{what}: limit", value, least=0.0, finite=False)
