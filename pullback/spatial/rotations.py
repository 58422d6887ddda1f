"""Rotations as quaternions and rotation vectors in kernels: exp, log, their Jacobians and cotangents.

Quaternions are xyzw; a rotation vector is axis times angle [rad]. `rotations_torch.py` is the same in torch.
"""

from typing import Any

import warp as wp

from pullback.spatial.vectors import skew

SMALL = wp.constant(0.01)  # squared angles [rad²] below this go through a series


@wp.func
def conjugate(quat: Any):
    """Return the inverse of a unit quaternion."""
    return wp.vector(-quat[0], -quat[1], -quat[2], quat[3])


@wp.func
def quaternion_product(a: Any, b: Any):
    """Return a b, the rotation b followed by a."""
    av = wp.vector(a[0], a[1], a[2])
    bv = wp.vector(b[0], b[1], b[2])
    xyz = a[3] * bv + b[3] * av + wp.cross(av, bv)
    return wp.vector(xyz[0], xyz[1], xyz[2], a[3] * b[3] - wp.dot(av, bv))


# -- exp -------------------------------------------------------------------------------------------------------------


@wp.func
def half_sinc(half: Any):
    """Return sin(h) / (2 h)."""
    factor = type(half)(0.5) * (type(half)(1.0) - half * half / type(half)(6.0))
    if half > type(half)(1.0e-4):
        factor = wp.sin(half) / (half + half)
    return factor


@wp.func
def half_sinc_slope(half: Any):
    """Return the derivative of sin(h) / (2 h) by h, over h."""
    slope = type(half)(-1.0 / 6.0) * (type(half)(1.0) - half * half / type(half)(10.0))
    if half > type(half)(1.0e-2):
        slope = (half * wp.cos(half) - wp.sin(half)) / (type(half)(2.0) * half * half * half)
    return slope


@wp.func
def quaternion_from_vector(x: Any):
    """Return exp(x), the unit quaternion of a rotation vector."""
    half = x.dtype(0.5) * wp.length(x)
    xyz = half_sinc(half) * x
    return wp.vector(xyz[0], xyz[1], xyz[2], wp.cos(half))


@wp.func
def quaternion_from_vector_vjp(x: Any, adj_quat: Any):
    """Return the cotangent of a rotation vector for that of its quaternion."""
    half = x.dtype(0.5) * wp.length(x)
    factor = half_sinc(half)
    adj_xyz = wp.vector(adj_quat[0], adj_quat[1], adj_quat[2])
    # half = |x| / 2: d half = x / (4 half)
    quarter = x.dtype(0.25)
    along = quarter * half_sinc_slope(half) * wp.dot(adj_xyz, x) - factor * x.dtype(0.5) * adj_quat[3]
    return factor * adj_xyz + along * x


@wp.func
def right_jacobian(x: Any):
    """Return J with exp(x + d) = exp(x) exp(J d) for small d (docs/derivations/linearize.md, eq. (21))."""
    square = wp.dot(x, x)
    factor = half_sinc(x.dtype(0.5) * wp.sqrt(square))
    third = x.dtype(1.0 / 6.0) - square * (x.dtype(1.0 / 120.0) - square * x.dtype(1.0 / 5040.0))
    if square > x.dtype(SMALL):
        angle = wp.sqrt(square)
        third = (angle - wp.sin(angle)) / (square * angle)
    K = skew(x)
    return wp.identity(3, dtype=x.dtype) - x.dtype(2.0) * factor * factor * K + third * (K * K)


# -- log -------------------------------------------------------------------------------------------------------------


@wp.func
def vector_from_quaternion(quat: Any):
    """Return log(quat), the rotation vector, at most pi long, of a unit quaternion of either sign."""
    u = quat
    if u[3] < u.dtype(0.0):
        u = -u
    xyz = wp.vector(u[0], u[1], u[2])
    s = wp.dot(xyz, xyz)
    # asin(x) / x as a series in x²
    series = type(s)(945.0 / 42240.0) + s * type(s)(10395.0 / 599040.0)
    series = type(s)(3.0 / 40.0) + s * (type(s)(15.0 / 336.0) + s * (type(s)(105.0 / 3456.0) + s * series))
    factor = type(s)(1.0) + s * (type(s)(1.0 / 6.0) + s * series)
    if s > type(s)(SMALL):
        sine = wp.sqrt(s)
        factor = wp.atan2(sine, u[3]) / sine
    return (factor + factor) * xyz


@wp.func
def inverse_jacobian_factor(s: Any):
    """Return f of the inverse right Jacobian 1 + [x]/2 + f [x]² for a squared angle s = x·x."""
    f = type(s)(1.0 / 12.0) + s * (type(s)(1.0 / 720.0) + s * (type(s)(1.0 / 30240.0) + s / type(s)(1209600.0)))
    if s > type(s)(SMALL):
        angle = wp.sqrt(s)
        f = type(s)(1.0) / s - type(s)(0.5) / (angle * wp.tan(type(s)(0.5) * angle))
    return f


@wp.func
def inverse_right_jacobian_times(x: Any, f: Any, d: Any):
    """Return J d with exp(x) exp(d) = exp(x + J d) for small d; f is `inverse_jacobian_factor` of x·x."""
    y = wp.cross(x, d)
    return d + type(f)(0.5) * y + f * wp.cross(x, y)


# -- quaternions that move --------------------------------------------------------------------------------------------


@wp.func
def rotated(quat: Any, x: Any):
    """Return the unit quaternion after the rotation vector x in the body's frame: quat exp(x)."""
    return quaternion_product(quat / wp.length(quat), quaternion_from_vector(x))


@wp.func
def rotated_vjp(quat: Any, x: Any, adj: Any):
    """Return the cotangents of quaternion and rotation vector of `rotated`, as one vector of seven."""
    length = wp.length(quat)
    u = quat / length
    turn = quaternion_from_vector(x)
    # of a product: adj_a = adj conj(b), adj_b = conj(a) adj
    adj_u = quaternion_product(adj, conjugate(turn))
    adj_turn = quaternion_product(conjugate(u), adj)
    adj_quat = (adj_u - wp.dot(u, adj_u) * u) / length
    adj_x = quaternion_from_vector_vjp(x, adj_turn)
    return wp.vector(adj_quat[0], adj_quat[1], adj_quat[2], adj_quat[3], adj_x[0], adj_x[1], adj_x[2])


@wp.func
def rotation_between(before: Any, after: Any):
    """Return the rotation vector x, in the axes of `before`, with rotated(before, x) = after."""
    return vector_from_quaternion(quaternion_product(conjugate(before), after) / (wp.length(before) * wp.length(after)))


@wp.func
def quaternion_rate(quat: Any, omega: Any):
    """Return d quat / dt = quat (omega, 0) / 2 at the angular velocity omega in the body's axes."""
    half = omega.dtype(0.5) * omega
    return quaternion_product(quat, wp.vector(half[0], half[1], half[2], omega.dtype(0.0)))


@wp.func
def quaternion_rate_vjp(quat: Any, adj_rate: Any):
    """Return the cotangent of omega for that of the rate; quat's is `quaternion_rate(adj_rate, -omega)`."""
    asked = quaternion_product(conjugate(quat), adj_rate)
    return quat.dtype(0.5) * wp.vector(asked[0], asked[1], asked[2])


@wp.func
def unit_vjp(quat: Any, adj_unit: Any):
    """Return the cotangent of a quaternion for that of quat / |quat|."""
    length = wp.length(quat)
    unit = quat / length
    return (adj_unit - wp.dot(unit, adj_unit) * unit) / length
