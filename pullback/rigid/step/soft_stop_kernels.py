"""The law of a motor whose joint has elastic end stops (docs/derivations/actuators.md)."""

from typing import Any

import warp as wp


@wp.func
def law(numbers: Any, u: Any, q: Any, qd: Any):
    """Return the force, its derivatives by (u, q, qd), and those by its numbers: eqs. (6), (8).

    The numbers are gain, stiffness, nothing, damping, the bounds of the motor's torque, the two stops, nothing, and the
    width: in that place, what is not zero lets the force act at the velocity before the step.
    """
    zero = numbers.dtype(0.0)
    one = numbers.dtype(1.0)
    half = numbers.dtype(0.5)
    k = numbers[1]
    d = numbers[3]
    width = numbers[9]
    torque = wp.clamp(numbers[0] * u, numbers[4], numbers[5])
    slopes = wp.vector(numbers[0], zero, zero)
    by_numbers = wp.vector(u, zero, zero, zero, zero, zero, zero, zero, zero, zero)
    if numbers[0] * u < numbers[4]:
        slopes[0] = zero
        by_numbers[0] = zero
        by_numbers[4] = one
    if numbers[0] * u > numbers[5]:
        slopes[0] = zero
        by_numbers[0] = zero
        by_numbers[5] = one
    # at most one stop is met: the one beyond which q is, pushed back along `side`
    side = zero
    depth = zero
    if q < numbers[6]:
        side = one
        depth = numbers[6] - q
    if q > numbers[7]:
        side = -one
        depth = q - numbers[7]
    if side != zero:
        s = depth - half * width
        rise = one
        bend = zero
        s_by_width = -half
        rise_by_width = zero
        if depth < width:
            rise = depth / width
            s = half * depth * rise
            bend = one / width
            s_by_width = -half * rise * rise
            rise_by_width = -rise * bend
        # of the force by the depth
        steep = side * k * rise - d * bend * qd
        slopes[1] = -side * steep
        slopes[2] = -d * rise
        by_numbers[1] = side * s
        by_numbers[3] = -rise * qd
        if side > zero:
            by_numbers[6] = steep
        if side < zero:
            by_numbers[7] = -steep
        by_numbers[9] = side * k * s_by_width - d * rise_by_width * qd
        torque += side * k * s - d * rise * qd
    return torque, slopes, by_numbers
