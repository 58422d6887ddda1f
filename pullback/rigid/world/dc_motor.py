"""A DC motor behind a gear: back-EMF, a torque–speed curve, a current limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pullback.core.errors import PullbackError
from pullback.rigid.world.actuators import Actuator, Numbers, check_number, control_bounds, symmetric
from pullback.rigid.world.values import Given, Tensor, Value


@dataclass(frozen=True, eq=False)
class DCMotor(Actuator):
    """A brushed or brushless DC motor behind a gear: u is the voltage [V] at its terminals.

    tau = gear kt i,  i = (u - kt gear qd) / R,  u within ±voltage and i within ±current_limit
    (docs/derivations/actuators.md). At u = voltage it stalls at gear kt voltage / R and runs free at
    voltage / (gear kt). The current follows the voltage at once: its time constant L / R is well below a step.
    """

    voltage: Given
    """Supply voltage [V]; controls beyond it change nothing."""
    torque_constant: Given
    """kt [N·m/A], which in SI units is the back-EMF constant [V·s/rad] as well."""
    resistance: Given
    """R of the windings and the driver [ohm]."""
    gear: Given = 1.0
    """Turns of the motor for one of the joint; [1/m] on a prismatic joint. Its sign is the motor's direction."""
    current_limit: Given | None = None
    """Of the driver [A]; by default the joint's effort limit is the only one."""

    def numbers(self, what: str) -> Numbers:
        """Return the numbers of the affine law, checked: kd is the slope of the torque–speed curve."""
        voltage, kt, R = (
            check_number(f"{what}: {name}", getattr(self, name), least=0.0)
            for name in ("voltage", "torque_constant", "resistance")
        )
        gear = check_number(f"{what}: gear", self.gear)
        if not bool((R > 0.0).all()):
            raise PullbackError(f"{what}: resistance is zero somewhere; give that of the windings [ohm]")
        per_ampere = _product(gear, kt)
        gain = _product(per_ampere, 1.0 / R)
        bounds: dict[str, Value] = {}
        if self.current_limit is not None:
            limit = check_number(f"{what}: current_limit", self.current_limit, least=0.0, finite=False)
            bounds = symmetric(what, _magnitude(_product(per_ampere, limit)))
        slope, reach = _product(gain, per_ampere), control_bounds(what, (-voltage, voltage))
        return Numbers(gain=gain, kd=slope, **bounds, **reach)


def _product(a: Value, b: Value) -> Value:
    """Multiply numbers of shape (), (B,) or (B, n), where n are joints."""
    a, b = (x if isinstance(x, Tensor) else np.asarray(x) for x in (a, b))
    if max(a.ndim, b.ndim) == 2:
        a, b = (x[:, None] if x.ndim == 1 else x for x in (a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.asarray(a * b)
    tensor, other = (a, b) if isinstance(a, Tensor) else (b, a)
    return tensor * (other if isinstance(other, Tensor) else tensor.new_tensor(other))  # pyright: ignore


def _magnitude(x: Value) -> Value:
    return x.abs() if isinstance(x, Tensor) else np.asarray(np.abs(x))
