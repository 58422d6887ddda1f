"""The law of motors, servos and springs, affine in control, position and velocity (docs/derivations/actuators.md)."""

from typing import Any

import warp as wp


@wp.func
def law(numbers: Any, u: Any, q: Any, qd: Any):
    """Return the force, its derivatives by (u, q, qd), and those by its numbers: eqs. (2), (3).

    The numbers are gain, kp, kd, bias, the bounds of the force, those of the control, and how the gain grows with q and
    qd.
    """
    zero = numbers.dtype(0.0)
    one = numbers.dtype(1.0)
    applied = wp.clamp(u, numbers[6], numbers[7])
    gain = numbers[0] + numbers[8] * q + numbers[9] * qd
    force = gain * applied + numbers[3] - numbers[1] * q - numbers[2] * qd
    slopes = wp.vector(gain, numbers[8] * applied - numbers[1], numbers[9] * applied - numbers[2])
    by_numbers = wp.vector(applied, -q, -qd, one, zero, zero, zero, zero, q * applied, qd * applied)
    if u < numbers[6]:
        slopes[0] = zero
        by_numbers[6] = gain
    if u > numbers[7]:
        slopes[0] = zero
        by_numbers[7] = gain
    if force < numbers[4]:
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, zero, one, zero, zero, zero, zero, zero)
    if force > numbers[5]:
        slopes = wp.vector(zero, zero, zero)
        by_numbers = wp.vector(zero, zero, zero, zero, zero, one, zero, zero, zero, zero)
    return wp.clamp(force, numbers[4], numbers[5]), slopes, by_numbers
