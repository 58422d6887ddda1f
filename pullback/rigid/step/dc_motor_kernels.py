"""The law of a DC motor: clamp(gain clamp(u, ±voltage) - slope qd, ±limit) (docs/derivations/actuators.md)."""

from typing import Any

import warp as wp


@wp.func
def law(numbers: Any, u: Any, q: Any, qd: Any):
    """Return the force, its derivatives by (u, q, qd), and those by its numbers: eqs. (4), (5).

    The first numbers are gain, voltage and slope, the fifth and sixth the bounds of the torque.
    """
    zero = numbers.dtype(0.0)
    one = numbers.dtype(1.0)
    gain = numbers[0]
    voltage = numbers[1]
    applied = wp.clamp(u, -voltage, voltage)
    force = gain * applied - numbers[2] * qd
    slopes = wp.vector(gain, zero, -numbers[2])
    by_numbers = wp.vector(applied, zero, -qd, zero, zero, zero, zero, zero, zero, zero)
    if u > voltage or u < -voltage:
        slopes[0] = zero
        by_numbers[1] = gain * wp.sign(u)
    if force < numbers[4]:
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, zero, one, zero, zero, zero, zero, zero)
    if force > numbers[5]:
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, zero, zero, one, zero, zero, zero, zero)
    return wp.clamp(force, numbers[4], numbers[5]), slopes, by_numbers
