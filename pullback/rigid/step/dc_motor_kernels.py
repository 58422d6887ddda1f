"""The law of a DC motor: clamp(gain clamp(u, ±voltage) - slope qd, ±limit) (docs/derivations/actuators.md)."""

from typing import Any

import warp as wp


@wp.func
def law(numbers: Any, u: Any, q: Any, qd: Any):
    """Return the force, its derivatives by (u, q, qd), and those by its numbers: eqs. (4), (5).

    The first numbers are gain, voltage, slope and torque limit; the others are not used.
    """
    zero = numbers.dtype(0.0)
    gain = numbers[0]
    voltage = numbers[1]
    limit = numbers[3]
    applied = wp.clamp(u, -voltage, voltage)
    force = gain * applied - numbers[2] * qd
    slopes = wp.vector(gain, zero, -numbers[2])
    by_numbers = wp.vector(applied, zero, -qd, zero, zero, zero, zero, zero, zero, zero)
    if u > voltage or u < -voltage:
        slopes[0] = zero
        by_numbers[1] = gain * wp.sign(u)
    if force > limit or force < -limit:
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, wp.sign(force), zero, zero, zero, zero, zero, zero)
    return wp.clamp(force, -limit, limit), slopes, by_numbers
