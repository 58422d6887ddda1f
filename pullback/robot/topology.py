"""How the bodies of a robot hang together, as kernels read it, and the rows of the arrays that go with it.

Every array is indexed [row, world]. Body frames are chosen by `description.compile` so that a revolute or prismatic
joint always acts about or along the z axis of its own body; all motion subspaces are constant in the body's frame.

    placements  12 rows a body   R_PJ row by row, p_PJ: the joint frame at q = 0 in the parent body
    inertias    10 rows a body   mass, first moment (3), rotational inertia about the body's origin (6)
    dofs         3 rows a dof    armature, damping, dry friction
"""

import warp as wp

PLACEMENT_ROWS = wp.constant(12)
INERTIA_ROWS = wp.constant(10)
DOF_ROWS = wp.constant(3)
ARMATURE = wp.constant(0)
DAMPING = wp.constant(1)
FRICTION = wp.constant(2)


@wp.struct
class Topology:
    """Bodies in an order that puts parents first, and the frames that kinematics reports."""

    nbody: int
    nv: int
    parent: wp.array(dtype=wp.int32)  # -1: the world
    kind: wp.array(dtype=wp.int32)  # the row of JOINT_KINDS; only `joint_kernels.py` reads it
    constant: wp.array(dtype=wp.float64)  # of the joint, see `JointKind.constant`
    q_start: wp.array(dtype=wp.int32)
    v_start: wp.array(dtype=wp.int32)
    is_leaf: wp.array(dtype=wp.int32)  # 1: no body hangs on it
    reaches_first: wp.array(dtype=wp.int32)  # 1: the first of its parent's children when bodies are walked backwards
    nframe: int
    frame_body: wp.array(dtype=wp.int32)  # -1: the world
    npath: int
    path: wp.array(dtype=wp.int32)  # the bodies that move any of the frames, parents first
