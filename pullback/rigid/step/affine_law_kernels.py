"""The law of torque motors and servos: clamp(gain u - kp q - kd qd, -limit, limit) (docs/derivations/actuators.md)."""

from typing import Any

import warp as wp


@wp.func
def law(numbers: Any, u: Any, q: Any, qd: Any):
    """Return the force, its derivatives by (u, q, qd), and those by gain, kp, kd and limit."""
    zero = numbers.dtype(0.0)
    limit = numbers[3]
    force = numbers[0] * u - numbers[1] * q - numbers[2] * qd
    slopes = wp.vector(numbers[0], -numbers[1], -numbers[2])
    by_numbers = wp.vector(u, -q, -qd, zero)
    if force > limit or force < -limit:
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, wp.sign(force))
    return wp.clamp(force, -limit, limit), slopes, by_numbers
