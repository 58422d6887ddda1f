"""One step of a Laikago on its four toes, written once for every array library that differentiates for itself.

The same physics as `sim.rollout` of bench/laikagos.py: servos at the state after the step, contact by 50 sweeps of
projected Gauss–Seidel with friction cones, all four toes in contact. The four legs, chains of three hinges each, are
computed side by side, for array libraries pay by the call; the mass matrix is solved by Cholesky, which is one call.

`xp` is such a library: `stack`, `concat`, `cross`, `sin`, `cos`, `sqrt`, `minimum`, `maximum`, `greater`, `where`,
`solve` (a symmetric positive matrix, columns) and `repeat(n, function, x)`. q = (position, quaternion xyzw, joints),
qd = (angular, linear velocity in the base's axes, joint rates), as in docs/conventions.md; `robot` has the arrays of
bench/laikago_arrays.py.
"""

from __future__ import annotations

from typing import Any

DT = 1e-3
SWEEPS = 50
ERP, CFM, PUSH_SPEED = 0.1, 1e-6, 0.2

Array = Any


def rotation(xp: Any, quat: Array) -> Array:
    """Return the rotation (3, 3) of a unit quaternion xyzw."""
    x, y, z, w = (quat[k] for k in range(4))
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return xp.stack(rows, 0).reshape(3, 3)


def turned(R: Array, x: Array) -> Array:
    """Return R x for vectors in the last axis."""
    return (R @ x[..., None])[..., 0]


def transposed(x: Array) -> Array:
    """Return x with its last two axes exchanged."""
    return x.swapaxes(-1, -2)


def legs(xp: Any, robot: dict[str, Array], R0: Array, q: Array, qd: Array) -> tuple[Array, ...]:
    """Return of the legs' links, (3, 4, ...): R, origin, hinge axis, angular velocity and acceleration, acceleration.

    Accelerations are those without any of base and joints, and with gravity as an acceleration upwards.
    """
    angles, rates = q[7:].reshape(4, 3), qd[6:].reshape(4, 3)
    sines, cosines = xp.sin(angles), xp.cos(angles)
    R, p, w = R0 + robot["zero_33"], q[:3] + robot["zero_3"], turned(R0, qd[:3]) + robot["zero_3"]
    alpha, a = robot["zero_3"], robot["up"] + robot["zero_3"]
    found = []
    for k in range(3):
        arm = turned(R, robot["offset"][k])
        p = p + arm
        a = a + xp.cross(alpha, arm) + xp.cross(w, xp.cross(w, arm))
        R = R @ robot["placed"][k]
        axis = turned(R, robot["axis"][k])
        s, c = sines[:, k, None, None], cosines[:, k, None, None]
        R = R @ (robot["eye"] + s * robot["across"][k] + (1 - c) * robot["across_twice"][k])
        swing = rates[:, k, None] * axis
        alpha = alpha + xp.cross(w, swing)
        w = w + swing
        found.append((R, p, axis, w, alpha, a))
    return tuple(xp.stack(list(each), 0) for each in zip(*found))


def equations(xp: Any, robot: dict[str, Array], q: Array, qd: Array) -> tuple[Array, Array, Array, Array]:
    """Return M (18, 18), the bias forces h (18,), the contact Jacobian (12, 18) and the gaps (4,)."""
    quat = q[3:7] / xp.sqrt((q[3:7] * q[3:7]).sum())
    R0, p0 = rotation(xp, quat), q[:3]
    R, p, axis, w, alpha, a = legs(xp, robot, R0, q, qd)
    # how the dofs of a leg, six of the base and three of its own, move points: turning about a line, or along it
    turns = xp.concat([transposed(R0) + robot["zero_33"], robot["zero_33"], axis.swapaxes(0, 1)], 1)
    slides = xp.concat([robot["zero_33"], transposed(R0) + robot["zero_33"], robot["zero_33"]], 1)
    points = xp.concat([p0 + robot["zero_63"], p.swapaxes(0, 1)], 1)
    # forces of inertia of the legs' links, at their centres of mass
    arm = turned(R, robot["com"])
    inertia = R @ robot["inertia"] @ transposed(R)
    force = robot["mass"][..., None] * (a + xp.cross(alpha, arm) + xp.cross(w, xp.cross(w, arm)))
    torque = turned(inertia, alpha) + xp.cross(w, turned(inertia, w))
    reach = robot["reach"][:, None, :, None]
    Jv = reach * (xp.cross(turns + robot["zero_393"], (p + arm)[:, :, None] - points) + slides)
    Jw = reach * turns
    M = (robot["mass"][..., None, None] * Jv @ transposed(Jv) + Jw @ inertia @ transposed(Jw)).sum(0)
    h = (turned(Jv, force) + turned(Jw, torque)).sum(0)
    # the base, in its own axes
    w0, com0, inertia0, mass0 = qd[:3], robot["base_com"], robot["base_inertia"], robot["base_mass"]
    fall = turned(transposed(R0), robot["up"])
    force0 = mass0 * (fall + xp.cross(w0, xp.cross(w0, com0)))
    h0 = xp.concat([xp.cross(w0, turned(inertia0, w0)) + xp.cross(com0, force0), force0, robot["zero_12"]], 0)
    spread = robot["spread"]
    M = (transposed(spread) @ M @ spread).sum(0) + robot["base_M"]
    h = turned(transposed(spread), h).sum(0) + h0
    # contacts: halfway between toe and ground, rows along z, x, y
    centre = p[2] + turned(R[2], robot["toe"])
    gap = centre[:, 2] - robot["radius"]
    point = centre - (robot["radius"] + 0.5 * gap)[:, None] * robot["normal"]
    J = (xp.cross(turns, point[:, None] - points) + slides) @ robot["contact_axes"]
    return M, h, (transposed(J) @ spread).reshape(12, 18), gap


def sweeps(xp: Any, A: Array, b: Array, friction: float, order: tuple[int, ...]) -> Array:
    """Return the impulses (12,) after 50 sweeps over four contacts, from zero."""
    contacts = []
    for c in order:
        n, t = 3 * c, slice(3 * c + 1, 3 * c + 3)
        trace = A[n + 1, n + 1] + A[n + 2, n + 2]
        det = A[n + 1, n + 1] * A[n + 2, n + 2] - A[n + 1, n + 2] * A[n + 2, n + 1]
        step = xp.where(xp.greater(0.025 * trace * trace, det), 1.5 / trace, 2.0 / trace)
        contacts.append((c, A[n : n + 1] / A[n, n], b[n : n + 1] / A[n, n], step * A[t], step * b[t]))

    return xp.repeat(SWEEPS, lambda lam: sweep(xp, contacts, friction, lam), 0.0 * b)


def sweep(xp: Any, contacts: list[tuple[Any, ...]], friction: float, lam: Array) -> Array:
    """Return the impulses after one sweep: each contact's normal, then its tangents."""
    parts = [lam[k : k + size] for c in range(4) for k, size in ((3 * c, 1), (3 * c + 1, 2))]
    for c, An, bn, At, bt in contacts:
        parts[2 * c] = xp.maximum(parts[2 * c] - An @ lam - bn, 0.0)
        lam = xp.concat(parts, 0)
        x = parts[2 * c + 1] - At @ lam - bt
        length = xp.sqrt((x * x).sum() + 1e-40)
        parts[2 * c + 1] = x * xp.minimum(friction * parts[2 * c] / length, 1.0)
        lam = xp.concat(parts, 0)
    return lam


def step(xp: Any, robot: dict[str, Array], state: tuple[Array, Array], u: Array) -> tuple[Array, Array]:
    """Return q and qd one step later under servo targets u (12,)."""
    q, qd = state
    M, h, J, gap = equations(xp, robot, q, qd)
    # servos at the state after the step, as inertias beside M
    kp, kd = robot["kp"], robot["kd"] + DT * robot["kp"]
    tau = xp.concat([robot["zero_6"], kp * (u - q[7:]) - kd * qd[6:]], 0)
    M = M + robot["servo_inertia"]
    solved = xp.solve(M, xp.concat([(tau - h)[:, None], transposed(J)], 1))
    free, K = qd + DT * solved[:, 0], solved[:, 1:]
    bias = xp.where(xp.greater(gap, 0.0), gap / DT, xp.maximum(ERP * gap / DT, -PUSH_SPEED))
    A = J @ K + robot["softness"]
    lam = sweeps(xp, A, J @ free + robot["of_normals"] @ bias, robot["friction"], robot["order"])
    v = free + K @ lam
    return moved(xp, q, v)


def moved(xp: Any, q: Array, v: Array) -> tuple[Array, Array]:
    """Return the coordinates after dt at velocity v, and v in the base's axes after it."""
    quat = q[3:7] / xp.sqrt((q[3:7] * q[3:7]).sum())
    half = 0.5 * DT * v[:3]
    # sin(x)/x and cos(x) of an angle below 1e-2, as series to rounding
    angle = (half * half).sum()
    xyz = half * (1 - angle / 6 * (1 - angle / 20 * (1 - angle / 42)))
    w = 1 - angle / 2 * (1 - angle / 12 * (1 - angle / 30))
    turn = xp.concat([xyz, xp.stack([w], 0)], 0)
    vector = quat[3] * xyz + w * quat[:3] + xp.cross(quat[:3], xyz)
    scalar = quat[3] * w - (quat[:3] * xyz).sum()
    q = xp.concat(
        [q[:3] + DT * turned(rotation(xp, quat), v[3:6]), vector, xp.stack([scalar], 0), q[7:] + DT * v[6:]], 0
    )
    return q, xp.concat([v[:3], turned(transposed(rotation(xp, turn)), v[3:6]), v[6:]], 0)
