"""The law of a DC motor: clamp(gain clamp(u, ±voltage) - slope qd, ±limit) (docs/derivations/actuators.md)."""

from typing import Any

import warp as wp


@wp.func
def law(numbers: Any, u: Any, q: Any, qd: Any):
    """Return the force, its derivatives by (u, q, qd), and those by gain, voltage, slope and limit: eqs. (3), (4)."""
    zero = numbers.dtype(0.0)
    gain = numbers[0]
    voltage = numbers[1]
    limit = numbers[3]
    applied = wp.clamp(u, -voltage, voltage)
    force = gain * applied - numbers[2] * qd
    slopes = wp.vector(gain, zero, -numbers[2])
    by_numbers = wp.vector(applied, zero, -qd, zero)
    if u > voltage or u < -voltage:
        slopes = wp.vector(zero, zero, -numbers[2])
        by_numbers = wp.vector(applied, gain * wp.sign(u), -qd, zero)
    if force > limit or force < -limit:
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, wp.sign(force))
    return wp.clamp(force, -limit, limit), slopes, by_numbers
