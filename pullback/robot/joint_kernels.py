"""What kernels ask of the joint of body i, whatever its type: each is answered by a file in `joints/`.

A joint's pose X_J(q) maps its body's frame to the joint frame placed at R_PJ, p_PJ in the parent. A small body-fixed
motion of that pose, delta = S dq for a one-dof joint, is what cotangents are taken of (docs/derivations/README.md).
S, the motion subspace, is constant in the body's frame. Nothing but these functions depends on the type of a joint.
"""

from typing import Any

import warp as wp

from pullback.robot.joints.table import of_joints
from pullback.robot.topology import PLACEMENT_ROWS, Topology
from pullback.spatial.arrays import accumulate, accumulate33, load3, load33
from pullback.spatial.vectors import angular, force_to_parent, linear, skew


@of_joints()
def joint_nv(topology: Topology, i: int) -> Any:
    """Return the number of degrees of freedom: 1, 3 where it turns freely, 6 where it also travels."""


@of_joints()
def joint_turns(topology: Topology, i: int) -> Any:
    """Tell whether the first three velocities are an angular velocity, and the last four coordinates a quaternion."""


@of_joints()
def joint_travels(topology: Topology, i: int) -> Any:
    """Tell whether the last three of six velocities are a linear velocity in the body's turning axes."""


# -- pose, motion, force ---------------------------------------------------------------------------------------------


@of_joints()
def joint_pose(topology: Topology, i: int, placements: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int) -> Any:
    """Return R_PB, p_PB."""


@of_joints()
def joint_motion(topology: Topology, i: int, rates: wp.array2d(dtype=Any), w: int) -> Any:
    """Return S r, the motion of the body against its parent under the joint rates r."""


@of_joints()
def joint_bias(topology: Topology, i: int, V: Any, rates: wp.array2d(dtype=Any), w: int) -> Any:
    """Return V x S r, the acceleration of the body that is due to velocities."""


@of_joints()
def joint_force(topology: Topology, i: int, f: Any, w: int, out: wp.array2d(dtype=Any)):
    """Add S^T f, the force f seen by the joint, to `out` (nv rows)."""


@of_joints()
def joint_coordinates_vjp(
    topology: Topology, i: int, adj_pose: Any, q: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any)
):
    """Add the cotangent of the coordinates for `adj_pose`, that of a small body-fixed motion."""


# -- one dof of a joint, k = 0, ... ----------------------------------------------------------------------------------


@of_joints()
def joint_axis(topology: Topology, i: int, k: int, one: Any) -> Any:
    """Return column k of S, times the number `one`."""


@of_joints()
def joint_component(topology: Topology, i: int, k: int, f: Any) -> Any:
    """Return entry k of S^T f."""


@of_joints()
def joint_world_axis(topology: Topology, i: int, k: int, R: Any, p: Any) -> Any:
    """Return column k of S in world axes, seen from a point from which the body's origin is at p; R is R_WB."""


@of_joints()
def joint_point_velocity(topology: Topology, i: int, k: int, R: Any, arm: Any) -> Any:
    """Return the velocity in the world that dof k, at rate one, gives a point at `arm` from the body's origin."""


@of_joints()
def joint_world_motion(topology: Topology, i: int, R: Any, rates: wp.array2d(dtype=Any), w: int) -> Any:
    """Return S r in world axes, the linear part at the body's origin."""


@of_joints(lambda kind: kind.nv == 1)
def joint_inertia_column(topology: Topology, i: int, J: Any, H: Any, T: Any) -> Any:
    """Return I S of a one-dof joint for an inertia [[J, H], [H^T, T]], J and T given as upper triangles."""


@of_joints(lambda kind: kind.nv == 1)
def joint_is_hinge(topology: Topology, i: int) -> Any:
    """Tell whether S of a one-dof joint is (0, 0, 1, 0, 0, 0)."""


# -- the manifold of coordinates -------------------------------------------------------------------------------------


@of_joints()
def joint_integrate(topology: Topology, i: int, dt: Any, v: wp.array2d(dtype=Any), w: int, q: wp.array2d(dtype=Any)):
    """Move q by dt v, in place: the retraction (docs/derivations/integration.md)."""


@of_joints()
def joint_integrate_vjp(
    topology: Topology, i: int, dt: Any, q: wp.array2d(dtype=Any), v: wp.array2d(dtype=Any),
    adj_next: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any), adj_v: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q and v for that of the coordinates after `joint_integrate`."""


@of_joints()
def joint_difference(
    topology: Topology, i: int, from_q: wp.array2d(dtype=Any), q: wp.array2d(dtype=Any), w: int,
    dx: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the displacement (nv rows) that moves one q to another: the inverse of `joint_integrate` with dt = 1."""


@of_joints()
def joint_tangent_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), adj_q: wp.array2d(dtype=Any), w: int,
    adj_tangent: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangent of a small displacement (nv rows) for that of q."""


@of_joints()
def joint_tangent_inverse_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), adj_tangent: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write a cotangent of q that `joint_tangent_vjp` makes the given one of a small displacement."""


@of_joints(lambda kind: kind.turns)
def joint_normalize(topology: Topology, i: int, w: int, q: wp.array2d(dtype=Any)):
    """Make the quaternion unit, in place."""


@of_joints(lambda kind: kind.turns)
def joint_normalize_vjp(topology: Topology, i: int, q: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any)):
    """Replace the cotangent of q after `joint_normalize` by that of q before it."""


# -- linear velocities in turning axes (docs/derivations/integration.md, runge_kutta.md) -----------------------------


@of_joints(lambda kind: kind.travels)
def joint_add_axes_rate(
    topology: Topology, i: int, dt: Any, qd: wp.array2d(dtype=Any), w: int, velocity: wp.array2d(dtype=Any)
):
    """Add dt w x v to the velocity: what the linear acceleration lacks in axes that do not turn."""


@of_joints(lambda kind: kind.travels)
def joint_add_axes_rate_vjp(
    topology: Topology, i: int, dt: Any, qd: wp.array2d(dtype=Any), adj_velocity: wp.array2d(dtype=Any), w: int,
    adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangent of qd for that of the velocity after `joint_add_axes_rate`."""


@of_joints(lambda kind: kind.travels)
def joint_turn_axes(topology: Topology, i: int, dt: Any, v: wp.array2d(dtype=Any), w: int, qd: wp.array2d(dtype=Any)):
    """Express the linear velocity in the axes after moving by dt v, in place."""


@of_joints(lambda kind: kind.travels)
def joint_turn_axes_vjp(
    topology: Topology, i: int, dt: Any, v: wp.array2d(dtype=Any), before: wp.array2d(dtype=Any), w: int,
    adj_v: wp.array2d(dtype=Any), adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Replace the cotangent of qd after `joint_turn_axes` by that of it before, and add that of v."""


@of_joints(lambda kind: kind.travels)
def joint_fix_axes(topology: Topology, i: int, q: wp.array2d(dtype=Any), w: int, qd: wp.array2d(dtype=Any)):
    """Replace the linear velocity v by z = R v, which stands in axes that do not turn."""


@of_joints(lambda kind: kind.travels)
def joint_fix_axes_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any), adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Replace the cotangent of z by that of v, which qd holds, and add that of q."""


@of_joints(lambda kind: kind.travels)
def joint_unfix_axes(topology: Topology, i: int, q: wp.array2d(dtype=Any), w: int, qd: wp.array2d(dtype=Any)):
    """Replace z by v = R^T z: the inverse of `joint_fix_axes`."""


@of_joints(lambda kind: kind.travels)
def joint_unfix_axes_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), w: int,
    adj_q: wp.array2d(dtype=Any), adj_qd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Replace the cotangent of v, which qd holds, by that of z, and add that of q."""


@of_joints()
def joint_add_rates(
    topology: Topology, i: int, h: Any, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any),
    qdd: wp.array2d(dtype=Any), w: int, y: wp.array2d(dtype=Any), z: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add h times the rates of (q, z), z being qd in axes that do not turn, at (q, qd, qdd)."""


@of_joints()
def joint_rates_vjp(
    topology: Topology, i: int, q: wp.array2d(dtype=Any), qd: wp.array2d(dtype=Any), qdd: wp.array2d(dtype=Any),
    adj_y: wp.array2d(dtype=Any), adj_z: wp.array2d(dtype=Any), w: int, adj_q: wp.array2d(dtype=Any),
    adj_qd: wp.array2d(dtype=Any), adj_qdd: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the cotangents of q, qd and qdd for those of the rates of q and z."""


# -- where the joint is placed ---------------------------------------------------------------------------------------


@wp.func
def placement_vjp(
    R: Any,
    p: Any,
    adj_pose: Any,
    placements: wp.array2d(dtype=Any),
    i: int,
    adj_placements: wp.array2d(dtype=Any),
    w: int,
):
    """Pull `adj_pose` back to R_PJ, p_PJ: any matrix adj_R whose product with rotations of R_PJ is right will do."""
    row = i * PLACEMENT_ROWS
    in_parent = force_to_parent(R, p, adj_pose)
    adj_p = linear(in_parent)
    adj_rotation = angular(in_parent) - wp.cross(load3(placements, row + 9, w), adj_p)
    half = adj_p.dtype(0.5)
    accumulate33(adj_placements, row, w, skew(half * adj_rotation) * load33(placements, row, w))
    accumulate(adj_placements, row + 9, w, adj_p)
