"""The rows of the contact problem: contacts, joint limits and dry friction (docs/derivations/contact_step.md).

With M = L^T L and s = L v, a row J of the problem is kept as Y = L^-T J^T, so that J v = Y·s, J M^-1 J^T = Y·Y, and
an impulse lam moves s by Y lam. Contacts have three rows, normal and two tangents, kept together dof by dof; limits and
dry friction have one; before them stand those of loops (loop_kernels.py) and of couplings (coupling_kernels.py).
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import (
    CONTACT_ROWS,
    GAP,
    NORMAL,
    PAIR,
    PAIR_ROWS,
    POINT,
    POSE_ROWS,
    Scene,
)
from pullback.robot.joint_kernels import joint_point_velocity
from pullback.spatial.arrays import load3, load33, store

# rows of the problem a contact: what its normal row wants, and the block of A on its diagonal
BIAS = wp.constant(0)
FRICTION = wp.constant(1)
RESTITUTION = wp.constant(2)  # 0 unless this is an impact
APPROACH = wp.constant(3)  # the normal velocity before an impact
FRACTION = wp.constant(4)  # of the step that passes before an impact
SLOPE = wp.constant(5)  # of the bias by the gap
DIAGONAL = wp.constant(6)  # nn, n1, n2, 11, 12, 22
TANGENT = wp.constant(12)
SHARE = wp.constant(15)  # of the change by free motion, J v* - J qd, that an impact's bias takes
FREE = wp.constant(16)  # the normal velocity after the step without contact
BLOCK_ROWS = wp.constant(17)

# rows of the problem a limit, a dry friction, a coupling or a row of a loop
DOF = wp.constant(0)  # where the walk over its dofs starts in Scene.dof_parent
SIGN = wp.constant(1)
SCALAR_BIAS = wp.constant(2)
LOWER = wp.constant(3)
UPPER = wp.constant(4)
SCALAR_DIAGONAL = wp.constant(5)
SCALAR_SLOPE = wp.constant(6)  # of a limit's bias by the gap; 0 for the others
SCALAR_ROWS = wp.constant(7)


@wp.struct
class Compliance:
    """What a contact is made of: numbers that contacts of a kind share."""

    dt: wp.float64  # [s]
    ahead: wp.float64  # [s], 0 or dt
    onset: wp.float64  # [m], the gap at which force sets in, and the depth at which it is that of the spring
    power: wp.float64  # of the depth, at least 1
    speed: wp.float64  # [m/s], at which friction is smoothed, where contacts do not have their own


@wp.struct
class ContactSettings:
    """How contact is resolved: numbers that all worlds share."""

    dt: wp.float64
    ahead: wp.float64  # [s], dt where actuators' forces are those at the velocity after the step, else 0
    erp: wp.float64
    push_speed: wp.float64  # [m/s], at most, out of a penetration
    limit_speed: wp.float64  # [rad/s, m/s], at most, back from beyond a joint limit
    cfm: wp.float64
    margin: wp.float64
    limit_margin: wp.float64
    loop_erp: wp.float64
    threshold: wp.float64
    tolerance: wp.float64
    iterations: int
    polishing_rounds: int  # how often `polish` may improve what sweeps left, at most
    cone: int
    unrolled: int
    kinks: int  # 1: of a kink's two gradients the one that leads down
    kink_width: wp.float64
    compliance: Compliance  # of compliant contact


@wp.func
def smallest_axis(n: Any):
    """Return the world axis along which n is smallest, the first of them."""
    zero = n.dtype(0.0)
    one = n.dtype(1.0)
    axis = wp.vector(one, zero, zero)
    if wp.abs(n[1]) < wp.abs(n[0]) and wp.abs(n[1]) <= wp.abs(n[2]):
        axis = wp.vector(zero, one, zero)
    elif wp.abs(n[2]) < wp.abs(n[0]) and wp.abs(n[2]) < wp.abs(n[1]):
        axis = wp.vector(zero, zero, one)
    return axis


@wp.func
def first_tangent(n: Any):
    """Return the first tangent of a contact with normal n; the second is n x the first."""
    axis = smallest_axis(n)
    return wp.normalize(axis - wp.dot(axis, n) * n)


@wp.func
def point_velocity(scene: Scene, v: int, poses: wp.array2d(dtype=Any), point: Any, w: int):
    """Return the velocity in the world that the dof v, at rate one, gives the point."""
    i = scene.dof_body[v]
    R = load33(poses, i * POSE_ROWS, w)
    arm = point - load3(poses, i * POSE_ROWS + 9, w)
    return joint_point_velocity(scene.topology, i, v - scene.topology.v_start[i], R, arm)


@wp.func
def contact_rows(
    scene: Scene, poses: wp.array2d(dtype=Any), L: wp.array2d(dtype=Any), contacts: wp.array2d(dtype=Any), c: int,
    w: int, blocks: wp.array2d(dtype=Any), Y: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the three rows Y of contact c, 3 (c nv + v) + direction, and its tangent."""
    nv = scene.topology.nv
    row = c * CONTACT_ROWS
    pair = int(contacts[row + PAIR, w])
    point = load3(contacts, row + POINT, w)
    n = load3(contacts, row + NORMAL, w)
    t1 = first_tangent(n)
    t2 = wp.cross(n, t1)
    store(blocks, c * BLOCK_ROWS + TANGENT, w, t1)
    directions = wp.matrix_from_rows(n, t1, t2)
    zero = n.dtype(0.0)
    first = scene.pair_dof_start[pair]
    last = scene.pair_dof_start[pair + 1]
    for k in range(first, last):
        v = scene.pair_dof[k]
        sign = scene.pair_sign[k]
        value = wp.vector(zero, zero, zero)
        if sign != 0:
            value = n.dtype(sign) * (directions * point_velocity(scene, v, poses, point, w))
        store(Y, 3 * (c * nv + v), w, value)
    # L^-T, last dof first
    for k in range(first, last):
        v = scene.pair_dof[k]
        value = L[v * nv + v, w] * load3(Y, 3 * (c * nv + v), w)
        store(Y, 3 * (c * nv + v), w, value)
        u = int(scene.dof_parent[v])
        while u >= 0:
            store(Y, 3 * (c * nv + u), w, load3(Y, 3 * (c * nv + u), w) - L[v * nv + u, w] * value)
            u = scene.dof_parent[u]


@wp.func
def row_dots(
    scene: Scene, contacts: wp.array2d(dtype=Any), c: int, Y: wp.array2d(dtype=Any), s: wp.array2d(dtype=Any), w: int
):
    """Return Y·s of contact c: normal and tangential velocity for s = L v."""
    nv = scene.topology.nv
    pair = int(contacts[c * CONTACT_ROWS + PAIR, w])
    zero = Y.dtype(0.0)
    total = wp.vector(zero, zero, zero)
    for k in range(scene.pair_dof_start[pair], scene.pair_dof_start[pair + 1]):
        v = scene.pair_dof[k]
        total += s[v, w] * load3(Y, 3 * (c * nv + v), w)
    return total


@wp.func
def add_rows(
    scene: Scene, contacts: wp.array2d(dtype=Any), c: int, Y: wp.array2d(dtype=Any), impulse: Any, w: int,
    s: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add Y^T impulse of contact c to s."""
    nv = scene.topology.nv
    pair = int(contacts[c * CONTACT_ROWS + PAIR, w])
    k = int(scene.pair_dof_start[pair])
    last = scene.pair_dof_start[pair + 1]
    # three at a time, read before they are written: a GPU then waits once for all of them
    while k + 2 < last:
        v0 = scene.pair_dof[k]
        v1 = scene.pair_dof[k + 1]
        v2 = scene.pair_dof[k + 2]
        s0 = s[v0, w] + wp.dot(impulse, load3(Y, 3 * (c * nv + v0), w))
        s1 = s[v1, w] + wp.dot(impulse, load3(Y, 3 * (c * nv + v1), w))
        s2 = s[v2, w] + wp.dot(impulse, load3(Y, 3 * (c * nv + v2), w))
        s[v0, w] = s0
        s[v1, w] = s1
        s[v2, w] = s2
        k += 3
    while k < last:
        v = scene.pair_dof[k]
        s[v, w] = s[v, w] + wp.dot(impulse, load3(Y, 3 * (c * nv + v), w))
        k += 1


@wp.func
def resolution(x: wp.float32):
    """Return by how much a number of this size may be wrong after some dozen operations."""
    return wp.float32(1e-5) * x


@wp.func
def resolution(x: wp.float64):  # noqa: F811
    """Return by how much a number of this size may be wrong after some dozen operations."""
    return wp.float64(1e-14) * x


@wp.func
def immovable(scene: Scene, L: wp.array2d(dtype=Any), pair: int, point: Any, w: int):
    """Return the diagonal |Y|^2 below which a row of the pair is rounding, so that no impulse moves it.

    An entry of J is a component of an axis, or of its product with a difference of positions; Y is at least L^-T of it.
    """
    nv = scene.topology.nv
    error = resolution(point.dtype(1.0) + wp.length(point))
    total = point.dtype(0.0)
    for k in range(scene.pair_dof_start[pair], scene.pair_dof_start[pair + 1]):
        v = scene.pair_dof[k]
        entry = error * L[v * nv + v, w]
        total += entry * entry
    return total


@wp.func
def gap_bias(gap: Any, span: Any, settings: ContactSettings, speed: Any):
    """Return the bias of a row with this gap, and its slope by the gap: none where the way out is at its speed."""
    # a gap may close within the span; a penetration shrinks as in a whole step, however short the span is
    zero = type(gap)(0.0)
    inside = type(gap)(1.0) / type(gap)(settings.dt) * type(gap)(settings.erp)
    slope = wp.where(gap <= zero, inside, type(gap)(1.0) / span)
    bias = slope * gap
    fast = bias < -speed
    return wp.where(fast, -speed, bias), wp.where(fast, zero, slope)


@wp.func
def is_limit(scalars: wp.array2d(dtype=Any), s: int, w: int):
    """Tell whether scalar row s, behind those of loops and couplings, is that of a joint limit, not of dry friction."""
    return scalars[s * SCALAR_ROWS + UPPER, w] == scalars.dtype(1.0) / scalars.dtype(0.0)


@wp.func
def contact_block(
    scene: Scene, settings: ContactSettings, dt: Any, contacts: wp.array2d(dtype=Any), c: int, L: wp.array2d(dtype=Any),
    start: wp.array2d(dtype=Any), s: wp.array2d(dtype=Any), pairs: wp.array2d(dtype=Any), w: int,
    Y: wp.array2d(dtype=Any), blocks: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write bias, friction and diagonal block of contact c; `start` is L qd, `s` is L v* without contact.

    Directions in which nothing can move get rows of zeros; without a normal a contact has neither bias nor friction.
    """
    nv = scene.topology.nv
    row = c * CONTACT_ROWS
    out = c * BLOCK_ROWS
    pair = int(contacts[row + PAIR, w])
    zero = Y.dtype(0.0)
    nn = zero
    n1 = zero
    n2 = zero
    d11 = zero
    d12 = zero
    d22 = zero
    approach = zero
    free = zero
    for k in range(scene.pair_dof_start[pair], scene.pair_dof_start[pair + 1]):
        v = scene.pair_dof[k]
        y = load3(Y, 3 * (c * nv + v), w)
        nn += y[0] * y[0]
        n1 += y[0] * y[1]
        n2 += y[0] * y[2]
        d11 += y[1] * y[1]
        d12 += y[1] * y[2]
        d22 += y[2] * y[2]
        approach += y[0] * start[v, w]
        free += y[0] * s[v, w]
    cfm = softness(settings, dt)
    one = Y.dtype(1.0)
    moves = wp.vector(one, one, one)
    # seldom: look closer where an impulse moves one direction a million times less than another, or none much
    most = wp.max(nn, wp.max(d11, d22))
    if wp.min(nn, wp.min(d11, d22)) <= Y.dtype(1e-6) * wp.max(most, Y.dtype(0.01)):
        least = immovable(scene, L, pair, load3(contacts, row + POINT, w), w)
        normal = wp.where(nn > least, one, zero)
        moves = wp.vector(normal, wp.where(d11 > least, normal, zero), wp.where(d22 > least, normal, zero))
        for k in range(scene.pair_dof_start[pair], scene.pair_dof_start[pair + 1]):
            at = 3 * (c * nv + scene.pair_dof[k])
            store(Y, at, w, wp.cw_mul(moves, load3(Y, at, w)))
    store(
        blocks, out + DIAGONAL, w,
        wp.vector(
            own_diagonal(moves[0] * nn + cfm), moves[0] * moves[1] * n1, moves[0] * moves[2] * n2,
            own_diagonal(moves[1] * d11 + cfm), moves[1] * moves[2] * d12, own_diagonal(moves[2] * d22 + cfm),
        ),
    )  # fmt: skip
    gap = contacts[row + GAP, w]
    bias, slope = gap_bias(gap, dt, settings, Y.dtype(settings.push_speed))
    restitution = pairs[pair * PAIR_ROWS + 1, w]
    fraction = zero
    share = zero
    is_impact = is_impact_row(settings, gap, dt, approach, restitution)
    if is_impact:
        # the normal velocity is turned round at the moment of touching; free motion goes on before and after it
        if gap > zero:
            fraction = -gap / (approach * dt)
        share = restitution * fraction - (Y.dtype(1.0) - fraction)
        rebound = restitution * approach + share * (free - approach)
        is_impact = rebound < zero
        if is_impact:
            bias = rebound
            slope = zero
    if not is_impact:
        restitution = zero
        fraction = zero
        share = zero
    blocks[out + BIAS, w] = moves[0] * bias
    blocks[out + FRICTION, w] = moves[0] * pairs[pair * PAIR_ROWS, w]
    blocks[out + RESTITUTION, w] = restitution
    blocks[out + APPROACH, w] = approach
    blocks[out + FRACTION, w] = fraction
    blocks[out + SLOPE, w] = moves[0] * slope
    blocks[out + SHARE, w] = share
    blocks[out + FREE, w] = moves[0] * free


@wp.func
def is_impact_row(settings: ContactSettings, gap: Any, dt: Any, approach: Any, restitution: Any):
    """Return whether a contact's row is that of an impact: it bounces, and touches within dt at the speed it has."""
    zero = type(gap)(0.0)
    return restitution > zero and approach < -type(gap)(settings.threshold) and gap + dt * approach < zero


@wp.func
def softness(settings: ContactSettings, span: Any):
    """Return what is added to the diagonal of the problem [1/kg]; parts of a split step may have their own."""
    return type(span)(settings.cfm)


@wp.func
def own_diagonal(value: Any):
    """Return a row's diagonal, or one where neither an impulse nor softness moves it: it then keeps no impulse."""
    return wp.where(value == type(value)(0.0), type(value)(1.0), value)


@wp.func
def scalar_rows(
    scene: Scene, settings: ContactSettings, dt: Any, q: wp.array2d(dtype=Any), limits: wp.array2d(dtype=Any),
    friction: wp.array2d(dtype=Any), L: wp.array2d(dtype=Any), w: int,
    scalars: wp.array2d(dtype=Any), Y: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the rows of near joint limits and of dry friction behind those that always hold; return how many."""
    zero = q.dtype(0.0)
    one = q.dtype(1.0)
    far = one / zero
    count = int(scene.nloop_row + scene.ncoupling)
    for k in range(scene.nlimit):
        v = scene.limit_dof[k]
        position = q[scene.dof_coordinate[v], w]
        gap = position - limits[2 * v, w]
        sign = one
        if limits[2 * v + 1, w] - position < gap:
            gap = limits[2 * v + 1, w] - position
            sign = -one
        if gap < q.dtype(settings.limit_margin):
            bias, slope = gap_bias(gap, dt, settings, q.dtype(settings.limit_speed))
            unit_row(scene, v, sign, count, w, Y)
            # between ends without room the row pulls as well: one that only pushes lets go on the other side
            lower = wp.where(limits[2 * v + 1, w] > limits[2 * v, w], zero, -far)
            numbers = wp.vector(bias, lower, far, slope)
            scalar_row(scene, settings, v, sign, numbers, L, count, w, scalars, Y)
            count += 1
    for k in range(scene.nfriction):
        v = scene.friction_dof[k]
        bound = dt * friction[v, w]
        unit_row(scene, v, one, count, w, Y)
        scalar_row(scene, settings, v, one, wp.vector(zero, -bound, bound, zero), L, count, w, scalars, Y)
        count += 1
    return count


@wp.func
def unit_row(scene: Scene, v: int, sign: Any, s: int, w: int, Y: wp.array2d(dtype=Any)):
    """Write J of row s that acts on the dof v alone: sign e_v."""
    nv = scene.topology.nv
    u = int(v)
    while u >= 0:
        Y[s * nv + u, w] = sign - sign
        u = scene.dof_parent[u]
    Y[s * nv + v, w] = sign


@wp.func
def scalar_row(
    scene: Scene, settings: ContactSettings, start: int, sign: Any, numbers: Any, L: wp.array2d(dtype=Any), s: int,
    w: int, scalars: wp.array2d(dtype=Any), Y: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write row s, whose J stands in Y on the dofs that are walked from `start` on, outer ones first: Y = L^-T J^T.

    `numbers` are bias, lower and upper bound, and the slope of the bias by the gap.
    """
    nv = scene.topology.nv
    first = start % nv
    way = start - first
    diagonal = Y.dtype(settings.cfm)
    u = int(first)
    while u >= 0:
        value = Y[s * nv + u, w] * L[u * nv + u, w]
        Y[s * nv + u, w] = value
        diagonal += value * value
        t = int(scene.dof_parent[u])
        while t >= 0:
            Y[s * nv + t, w] = Y[s * nv + t, w] - L[u * nv + t, w] * value
            t = scene.dof_parent[t]
        u = scene.dof_parent[way + u]
    row = s * SCALAR_ROWS
    scalars[row + DOF, w] = Y.dtype(start)
    scalars[row + SIGN, w] = sign
    scalars[row + SCALAR_BIAS, w] = numbers[0]
    scalars[row + LOWER, w] = numbers[1]
    scalars[row + UPPER, w] = numbers[2]
    scalars[row + SCALAR_DIAGONAL, w] = diagonal
    scalars[row + SCALAR_SLOPE, w] = numbers[3]


@wp.func
def scalar_dot(
    scene: Scene, scalars: wp.array2d(dtype=Any), s: int, Y: wp.array2d(dtype=Any), x: wp.array2d(dtype=Any), w: int
):
    """Return Y·x of scalar row s."""
    nv = scene.topology.nv
    total = Y.dtype(0.0)
    start = int(scalars[s * SCALAR_ROWS + DOF, w])
    u = start % nv
    way = start - u
    while u >= 0:
        total += Y[s * nv + u, w] * x[u, w]
        u = scene.dof_parent[way + u]
    return total


@wp.func
def add_scalar_row(
    scene: Scene, scalars: wp.array2d(dtype=Any), s: int, Y: wp.array2d(dtype=Any), impulse: Any, w: int,
    x: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add Y^T impulse of scalar row s to x."""
    nv = scene.topology.nv
    start = int(scalars[s * SCALAR_ROWS + DOF, w])
    u = start % nv
    way = start - u
    while u >= 0:
        x[u, w] = x[u, w] + impulse * Y[s * nv + u, w]
        u = scene.dof_parent[way + u]
