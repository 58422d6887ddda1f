"""What drives joints: a force tau = clamp(gain u - kp q - kd qd, -limit, limit) from a control u.

Every number may be a tensor: () or (B,) for all joints the actuator drives, (B, n) or (1, n) for each of its n joints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pullback.core.errors import PullbackError
from pullback.rigid.world.values import Given, Tensor, Value, check_value

Coefficients: TypeAlias = "tuple[Value, Value, Value, Value | None]"
"""gain, kp, kd, limit; None: the joint's own effort limit."""

NONE = np.zeros(())


@dataclass(frozen=True, eq=False)
class Torque:
    """A motor: u is the force [N·m, N] divided by `gain`; `limit` is by default the joint's effort limit."""

    gain: Given = 1.0
    limit: Given | None = None

    def coefficients(self, what: str) -> Coefficients:
        """Return gain, kp, kd and limit, checked."""
        return _check(f"{what}: gain", self.gain), NONE, NONE, _limit(what, self.limit)


@dataclass(frozen=True, eq=False)
class PositionServo:
    """A servo that follows a position: u [rad, m] is the target, tau = kp (u - q) - kd qd."""

    kp: Given
    kd: Given = 0.0
    limit: Given | None = None

    def coefficients(self, what: str) -> Coefficients:
        """Return gain, kp, kd and limit, checked."""
        kp, kd = _check(f"{what}: kp", self.kp, least=0.0), _check(f"{what}: kd", self.kd, least=0.0)
        return kp, kp, kd, _limit(what, self.limit)


@dataclass(frozen=True, eq=False)
class VelocityServo:
    """A servo that follows a velocity: u [rad/s, m/s] is the target, tau = kd (u - qd)."""

    kd: Given
    limit: Given | None = None

    def coefficients(self, what: str) -> Coefficients:
        """Return gain, kp, kd and limit, checked."""
        kd = _check(f"{what}: kd", self.kd, least=0.0)
        return kd, NONE, kd, _limit(what, self.limit)


Actuator: TypeAlias = Torque | PositionServo | VelocityServo


def check_actuator(what: str, actuator: object) -> Actuator:
    """Return an actuator whose numbers are in order."""
    if not isinstance(actuator, Torque | PositionServo | VelocityServo):
        raise PullbackError(
            f"{what} is {actuator!r}; expected pb.Torque(...), pb.PositionServo(...) or pb.VelocityServo(...)"
        )
    actuator.coefficients(what)
    return actuator


def _check(what: str, value: Given, *, least: float | None = None, finite: bool = True) -> Value:
    per_joint = isinstance(value, Tensor | np.ndarray) and value.ndim == 2
    shape = (int(value.shape[1]),) if per_joint else ()  # pyright: ignore[reportAttributeAccessIssue]
    return check_value(what, value, shape, least=least, finite=finite)


def _limit(what: str, value: Given | None) -> Value | None:
    return None if value is None else _check(f"{what}: limit", value, least=0.0, finite=False)
