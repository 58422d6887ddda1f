"""What drives joints: a force from a control u. Motors and servos are affine, clamp(gain u + bias - kp q - kd qd).

Every number may be a tensor: () or (B,) for all joints the actuator drives, (B, n) or (1, n) for each of its n joints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.rigid.world.values import Given, Tensor, Value, check_value

NONE = np.zeros(())
INFINITE, MINUS_INFINITE = np.full((), np.inf), np.full((), -np.inf)


class Numbers(NamedTuple):
    """The numbers of a law, named as the affine one has them; None: the joint's effort limit.

    The third is how the force falls with velocity, the fifth and sixth are its bounds, whatever the law.
    """

    gain: Value = NONE
    kp: Value = NONE
    kd: Value = NONE
    bias: Value | None = NONE
    lower: Value | None = None
    upper: Value | None = None
    control_lower: Value = MINUS_INFINITE
    control_upper: Value = INFINITE
    position_gain: Value = NONE
    velocity_gain: Value = NONE


Range = tuple[Given, Given]
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
        """Return the largest control (b,) that still changes the force, given the rows (b, 10) that kernels read."""
        rows = Numbers(*numbers.unbind(-1))
        gain, others = rows.gain, (rows.kp, rows.kd, rows.bias, rows.position_gain, rows.velocity_gain)
        is_torque = (gain != 0.0) & torch.stack([x == 0.0 for x in others]).all(0)  # pyright: ignore
        limit = torch.maximum(-rows.lower, rows.upper)  # pyright: ignore
        within = torch.maximum(-rows.control_lower, rows.control_upper)  # pyright: ignore
        return torch.minimum((limit / gain.abs()).where(is_torque, limit.new_tensor(np.inf)), within)  # pyright: ignore


@dataclass(frozen=True, eq=False)
class Torque(Actuator):
    """A motor: u is the force [N·m, N] divided by `gain`; `limit` is by default the joint's effort limit.

    Controls beyond `control_range`, (lower, upper), change nothing.
    """

    gain: Given = 1.0
    limit: Given | None = None
    control_range: Range | None = None

    def numbers(self, what: str) -> Numbers:
        """Return the numbers of the affine law, checked."""
        gain = check_number(f"{what}: gain", self.gain)
        return Numbers(gain=gain, **symmetric(what, self.limit), **control_bounds(what, self.control_range))


@dataclass(frozen=True, eq=False)
class PositionServo(Actuator):
    """A servo that follows a position: u [rad, m] is the target, tau = kp (u - q) - kd qd; see `Torque`."""

    kp: Given
    kd: Given = 0.0
    limit: Given | None = None
    control_range: Range | None = None

    def numbers(self, what: str) -> Numbers:
        """Return the numbers of the affine law, checked."""
        kp, kd = check_number(f"{what}: kp", self.kp, least=0.0), check_number(f"{what}: kd", self.kd, least=0.0)
        bounds = control_bounds(what, self.control_range)
        return Numbers(gain=kp, kp=kp, kd=kd, **symmetric(what, self.limit), **bounds)


@dataclass(frozen=True, eq=False)
class VelocityServo(Actuator):
    """A servo that follows a velocity: u [rad/s, m/s] is the target, tau = kd (u - qd); see `Torque`."""

    kd: Given
    limit: Given | None = None
    control_range: Range | None = None

    def numbers(self, what: str) -> Numbers:
        """Return the numbers of the affine law, checked."""
        kd = check_number(f"{what}: kd", self.kd, least=0.0)
        return Numbers(gain=kd, kd=kd, **symmetric(what, self.limit), **control_bounds(what, self.control_range))


@dataclass(frozen=True, eq=False)
class AffineActuator(Actuator):
    """What MuJoCo calls `general`: tau = (gain + position_gain q + velocity_gain qd) u + bias - kp q - kd qd.

    The force stays within `force_range`, (lower, upper), by default the joint's effort limit; see `Torque`.
    """

    gain: Given = 1.0
    kp: Given = 0.0
    kd: Given = 0.0
    bias: Given = 0.0
    force_range: Range | None = None
    control_range: Range | None = None
    position_gain: Given = 0.0
    velocity_gain: Given = 0.0

    def numbers(self, what: str) -> Numbers:
        """Return the numbers of the affine law, checked."""
        names = ("gain", "kp", "kd", "bias", "position_gain", "velocity_gain")
        numbers = {name: check_number(f"{what}: {name}", getattr(self, name)) for name in names}
        bounds: dict[str, Value] = {}
        if self.force_range is not None:
            low, high = (check_number(f"{what}: force_range", x, finite=False) for x in self.force_range)
            bounds = {"lower": low, "upper": high}
        return Numbers(**numbers, **bounds, **control_bounds(what, self.control_range))


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


def symmetric(what: str, limit: Given | None) -> dict[str, Value]:
    """Return the bounds of a force by its limit [N·m, N], checked; none if there is none: the joint's own."""
    if limit is None:
        return {}
    upper = check_number(f"{what}: limit", limit, least=0.0, finite=False)
    return {"lower": -upper if isinstance(upper, Tensor) else np.asarray(-upper), "upper": upper}


def control_bounds(what: str, given: Range | None) -> dict[str, Value]:
    """Return the bounds of a control, checked."""
    if given is None:
        return {}
    low, high = (check_number(f"{what}: control_range", x, finite=False) for x in given)
    return {"control_lower": low, "control_upper": high}
