"""A field at a point: its value and gradient, and their adjoint (docs/derivations/sdf.md)."""

from typing import Any

import warp as wp

from pullback.sdf.fields import (
    INSTRUCTION,
    INTERSECTION,
    NEGATE,
    OFFSET,
    UNION,
    Fields,
)
from pullback.sdf.leaf_kernels import leaf
from pullback.spatial.arrays import accumulate, accumulate33, load3, load4, load33, store


@wp.func
def rounded_maximum(a: Any, b: Any, k: Any):
    """Return what is the distance outside two faces at right angles, their edge rounded by k, eqs. (5) and (6).

    Then its derivatives by a and b, and the second ones: by a twice, by a and b, by b twice.
    """
    p = a + k
    q = b + k
    zero = p - p
    one = type(p)(1.0)
    value = wp.max(p, q)
    by_a = wp.where(p < q, zero, one)
    by_b = one - by_a
    by_aa = zero
    by_ab = zero
    by_bb = zero
    if p > zero and q > zero:
        value = wp.sqrt(p * p + q * q)
        inverse = one / value
        by_a = p * inverse
        by_b = q * inverse
        by_aa = by_b * by_b * inverse
        by_ab = -by_a * by_b * inverse
        by_bb = by_a * by_a * inverse
    return value - k, by_a, by_b, by_aa, by_ab, by_bb


@wp.func
def identity33(like: Any):
    """Return the unit matrix of the type of a vector."""
    one = like.dtype(1.0)
    zero = like.dtype(0.0)
    return wp.matrix_from_rows(wp.vector(one, zero, zero), wp.vector(zero, one, zero), wp.vector(zero, zero, one))


@wp.func
def placement(parameters: wp.array2d(dtype=Any), row: int, w: int, like: Any):
    """Return R, p of a leaf in the field's frame; row below zero: it is not placed."""
    R = identity33(like)
    p = like - like
    if row >= 0:
        R = load33(parameters, row, w)
        p = load3(parameters, row + 9, w)
    return R, p


@wp.func
def field_value_gradient(
    fields: Fields, field: int, parameters: wp.array2d(dtype=Any), base: int, x: Any, w: int,
    stack: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return a field's value and gradient at a point of its frame.

    base: the first row of the field's parameters; stack: STACK_ROWS rows of scratch.
    """
    first = fields.first[field]
    count = fields.first[field + 1] - first
    top = int(0)
    zero = x.dtype(0.0)
    # value and gradient of the instruction before; the stack holds those that wait
    value = zero
    g = x - x
    for i in range(count):
        at = (first + i) * INSTRUCTION
        op = fields.code[at]
        row = base + fields.code[at + 1]
        if op < UNION:
            if i > 0:
                store(stack, 4 * top, w, wp.vector(value, g[0], g[1], g[2]))
                top += 1
            offset = fields.code[at + 2]
            R, p = placement(parameters, wp.where(offset < 0, -1, base + offset), w, x)
            value, g, Hu, by_size, along = leaf(
                fields, op, fields.code[at + 3], load4(parameters, row, w), (x - p) * R, x
            )
            g = R * g
        elif op == NEGATE:
            value = -value
            g = -g
        elif op == OFFSET:
            value = value - parameters[row, w]
        else:
            top -= 1
            left = load4(stack, 4 * top, w)
            s = wp.where(op == INTERSECTION, x.dtype(1.0), x.dtype(-1.0))
            most, by_a, by_b, by_aa, by_ab, by_bb = rounded_maximum(s * left[0], s * value, parameters[row, w])
            value = s * most
            g = by_a * wp.vector(left[1], left[2], left[3]) + by_b * g
    return value, g


@wp.func
def field_vjp(
    fields: Fields, field: int, parameters: wp.array2d(dtype=Any), base: int, x: Any, adj_value: Any,
    adj_gradient: Any, w: int, adj_parameters: wp.array2d(dtype=Any), tape: wp.array2d(dtype=Any),
):  # fmt: skip
    """Return adj_x of a field's value and gradient, and add the cotangents of its parameters, eqs. (12) to (15).

    tape: TAPE_ROWS rows of scratch. Up through the program and back down in one loop, so that the code of the leaves
    stands in a kernel once: up, the tape gets each value and its derivative along adj_gradient; down, their cotangents.
    """
    first = fields.first[field]
    count = fields.first[field + 1] - first
    adj_x = x - x
    one = x.dtype(1.0)
    for step in range(2 * count):
        i = step
        if step >= count:
            i = 2 * count - 1 - step
        if step == count:
            tape[2 * i, w] = adj_value
            tape[2 * i + 1, w] = one
        at = (first + i) * INSTRUCTION
        op = fields.code[at]
        row = base + fields.code[at + 1]
        other = fields.code[at + 2]
        mine = 2 * i
        below = mine - 2
        if op < UNION:
            place = wp.where(other < 0, -1, base + other)
            R, p = placement(parameters, place, w, x)
            r = x - p
            u = adj_gradient * R
            value, g, Hu, by_size, by_size_along = leaf(
                fields, op, fields.code[at + 3], load4(parameters, row, w), r * R, u
            )
            if step < count:
                tape[mine, w] = value
                tape[mine + 1, w] = wp.dot(g, u)
            else:
                a = tape[mine, w]
                b = tape[mine + 1, w]
                adj_y = a * g + b * Hu
                push = R * adj_y
                adj_x += push
                if adj_parameters:
                    accumulate(adj_parameters, row, w, a * by_size + b * by_size_along)
                    if place >= 0:
                        accumulate33(adj_parameters, place, w, wp.outer(r, adj_y) + wp.outer(adj_gradient, b * g))
                        accumulate(adj_parameters, place + 9, w, -push)
        elif op >= NEGATE:
            s = one
            radius = x.dtype(0.0)
            if op == NEGATE:
                s = -one
            else:
                radius = parameters[row, w]
            if step < count:
                tape[mine, w] = s * tape[below, w] - radius
                tape[mine + 1, w] = s * tape[below + 1, w]
            else:
                if op == OFFSET and adj_parameters:
                    adj_parameters[row, w] = adj_parameters[row, w] - tape[mine, w]
                tape[below, w] = s * tape[mine, w]
                tape[below + 1, w] = s * tape[mine + 1, w]
        else:
            left = 2 * other
            s = wp.where(op == INTERSECTION, one, -one)
            value, by_a, by_b, by_aa, by_ab, by_bb = rounded_maximum(
                s * tape[left, w], s * tape[below, w], parameters[row, w]
            )
            da = tape[left + 1, w]
            db = tape[below + 1, w]
            if step < count:
                tape[mine, w] = s * value
                tape[mine + 1, w] = by_a * da + by_b * db
            else:
                a = tape[mine, w]
                b = tape[mine + 1, w]
                turn_a = b * (by_aa * da + by_ab * db)
                turn_b = b * (by_ab * da + by_bb * db)
                if adj_parameters:
                    adj_parameters[row, w] = adj_parameters[row, w] + a * s * (by_a + by_b - one) + turn_a + turn_b
                tape[left, w] = a * by_a + s * turn_a
                tape[left + 1, w] = b * by_a
                tape[below, w] = a * by_b + s * turn_b
                tape[below + 1, w] = b * by_b
    return adj_x
