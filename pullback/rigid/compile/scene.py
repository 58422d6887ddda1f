"""What stands in a world, as kernels read it, and the rows of the arrays that go with it.

Every array is indexed [row, world]. All robots and free bodies of a world are one forest: one `Topology`, one q and qd.

    shapes     16 rows a shape      half extents of the core (3), radius, R_BS row by row (9), p_BS (3)
    pairs       2 rows a pair       friction, restitution
    actuators  10 rows an actuator  numbers of its law; the third is how its force falls with velocity: kd, the
                                    fifth and sixth are the bounds of the force
    limits      2 rows a dof        lower and upper end of the coordinate; infinite where there is none
    friction    1 row a dof         dry friction [N·m, N]
    loops      24 rows a loop       axes x, y, z and origin of the frame on body a, then of that on body b
    couplings   2 rows a coupling   multiplier and offset of a joint that follows another
    compensation 4 rows a body      mass and first moment whose weight is carried; none where no body's is

A shape is a box of points, its core, with a radius around it: a sphere's core is a point (half extents 0), a capsule's
a segment along z (0, 0, length / 2), a box's the box itself with radius 0. A plane is the half space below z = 0. The
half extents of a cylinder (radius, radius, length / 2) and of a mesh (its scale, three times) multiply its hull. A
field has half extents 0 and as its radius how far it reaches; its own rows stand behind those of all shapes.
"""

import warp as wp

from pullback.rigid.collide.convex.tables import Hulls
from pullback.robot.topology import Topology
from pullback.sdf.fields import Fields

# kinds of shapes (world/shapes.py)
SPHERE = wp.constant(0)
CAPSULE = wp.constant(1)
BOX = wp.constant(2)
PLANE = wp.constant(3)
HULL = wp.constant(4)  # a cylinder or a mesh
FIELD = wp.constant(5)

# how the contacts of a pair are found: the larger of its shapes' numbers
BY_FEATURES = wp.constant(0)  # vertices, edges and faces in closed form
BY_HULLS = wp.constant(1)  # GJK and EPA on polyhedra
BY_SUPPORT = wp.constant(2)  # Newton's method on the support function of a
BY_SAMPLES = wp.constant(3)  # samples of a against the field of b

SHAPE_ROWS = wp.constant(16)
RADIUS = wp.constant(3)
SHAPE_ROTATION = wp.constant(4)
SHAPE_POSITION = wp.constant(13)

PAIR_ROWS = wp.constant(2)
LOOP_ROWS = wp.constant(24)
COUPLING_ROWS = wp.constant(2)
COMPENSATION_ROWS = wp.constant(4)
ACTUATOR_ROWS = wp.constant(10)
FALL = wp.constant(2)  # of an actuator's force with velocity
LEAST = wp.constant(4)  # its bounds
MOST = wp.constant(5)
VELOCITY_GAIN = wp.constant(9)
MATERIAL_ROWS = wp.constant(2)  # of a force law of contacts

# rows of a contact: the pair it belongs to, the features that touch, and their geometry in the world
PAIR = wp.constant(0)
FEATURE_A = wp.constant(1)
FEATURE_B = wp.constant(2)
GAP = wp.constant(3)
POINT = wp.constant(4)
NORMAL = wp.constant(7)  # from shape b towards shape a
CONTACT_ROWS = wp.constant(10)

# rows of a contact's cotangents
ADJ_GAP = wp.constant(0)
ADJ_POINT = wp.constant(1)
ADJ_NORMAL = wp.constant(4)
ADJ_CONTACT_ROWS = wp.constant(7)

# rows of two features that may touch: their codes, and for edges the side that the normal looks to
CANDIDATE_ROWS = wp.constant(5)
MAX_CANDIDATES = wp.constant(32)  # of a pair

# rows of a body's pose in the world
POSE_ROWS = wp.constant(12)  # R_WB row by row, p_WB

MAX_EVENTS = wp.constant(8)  # touches that a step is split at
EVENT_NUMBERS = wp.constant(4)  # of a touch, before its q, qd and velocity (step/event_kernels.py)
RECORD_ROWS = wp.constant(24)  # of a contact's forces in a step that is split (step/record_kernels.py)

MOTION_ROWS = wp.constant(12)  # a body's velocity and wrench
TREE_ROWS = wp.constant(8)
"""Numbers of a tree of bodies whose velocity products a step corrects (step/tree_energy_kernels.py)."""


@wp.struct
class Scene:
    """Bodies, shapes, the pairs of shapes that may touch, and what drives the joints."""

    topology: Topology  # pyright: ignore[reportGeneralTypeIssues]
    nq: int
    nu: int
    dof_parent: wp.array(dtype=wp.int32)  # the dof before this one on the way to the root, -1: none; see loop_start
    dof_body: wp.array(dtype=wp.int32)
    dof_coordinate: wp.array(dtype=wp.int32)  # the coordinate of a one-dof joint's dof, -1: none
    shape_kind: wp.array(dtype=wp.int32)
    shape_body: wp.array(dtype=wp.int32)  # -1: the world
    hulls: Hulls  # pyright: ignore[reportGeneralTypeIssues]
    fields: Fields  # pyright: ignore[reportGeneralTypeIssues]
    shape_field: wp.array(dtype=wp.int32)  # the field of a shape, where its parameters start in `shapes`, its samples
    shape_row: wp.array(dtype=wp.int32)
    shape_samples: wp.array(dtype=wp.int32)
    npair: int
    pair_a: wp.array(dtype=wp.int32)  # the shape of lower rank (world/shapes.py)
    pair_b: wp.array(dtype=wp.int32)
    pair_family: wp.array(dtype=wp.int32)  # BY_FEATURES, BY_HULLS, BY_SUPPORT or BY_SAMPLES
    pair_dof_start: wp.array(dtype=wp.int32)  # npair + 1: where a pair's dofs start in pair_dof
    pair_dof: wp.array(dtype=wp.int32)  # the dofs that move either body, last first
    pair_sign: wp.array(dtype=wp.int32)  # of each: 1 moves body a, -1 body b, 0 both
    max_contacts: int
    nactuator: int  # those with a control come first, then springs
    actuator_start: wp.array(dtype=wp.int32)  # nactuator + 1: where an actuator's dofs start in actuator_dof
    actuator_dof: wp.array(dtype=wp.int32)
    actuator_share: wp.array(dtype=wp.float64)  # of each: how much of the force acts on it
    actuator_law: wp.array(dtype=wp.int32)  # which of the world's laws it follows (step/actuator_kernels.py)
    nlimit: int  # dofs with a limit
    limit_dof: wp.array(dtype=wp.int32)
    nfriction: int  # dofs with dry friction
    friction_dof: wp.array(dtype=wp.int32)
    nloop: int
    loop_body_a: wp.array(dtype=wp.int32)  # -1: the world
    loop_body_b: wp.array(dtype=wp.int32)
    loop_start: wp.array(dtype=wp.int32)  # the walk over a loop's dofs, a table of nv behind dof_parent: those of b
    loop_sign: wp.array(dtype=wp.int32)  # alone, of a alone, of both; nv of each loop: 1 moves a, -1 moves b, 0 both
    nloop_row: int
    loop_row_loop: wp.array(dtype=wp.int32)  # of each row: its loop
    loop_row_kind: wp.array(dtype=wp.int32)  # and which of the loop's six motions it stops (loop_kernels.py)
    ncoupling: int
    coupling_start: wp.array(dtype=wp.int32)  # the walk over the dofs above both joints, as of a loop
    coupling_follower: wp.array(dtype=wp.int32)  # dofs
    coupling_leader: wp.array(dtype=wp.int32)
