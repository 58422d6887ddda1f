"""A law that is not affine: gain tanh(u) - kd qd."""

from typing import Any

import warp as wp


@wp.func
def law(numbers: Any, u: Any, q: Any, qd: Any):
    """Return the force, its derivatives by (u, q, qd), and those by its numbers, of which the first and third count."""
    zero = numbers.dtype(0.0)
    share = wp.tanh(u)
    slopes = wp.vector(numbers[0] * (numbers.dtype(1.0) - share * share), zero, -numbers[2])
    by_numbers = wp.vector(share, zero, -qd, zero, zero, zero, zero, zero, zero, zero)
    return numbers[0] * share - numbers[2] * qd, slopes, by_numbers
