"""Allegro left hand: the numbers are those of allegro_hand_description_left.urdf in differentiable-robot-model."""

from pullback.description.assets.rows import X, Y, Z, box, joint, link, sphere
from pullback.description.tree import Joint, Limits, Link, Tree, Vector

FINGER_LINKS = (
    # mass, inertia xx and zz, yy, height of the box
    (0.0119, 1.01666658333e-06, 6.47677333333e-07, 0.0164),
    (0.065, 7.95654166667e-05, 2.47088833333e-05, 0.054),
    (0.0355, 2.63979183333e-05, 1.34948516667e-05, 0.0384),
    (0.0096, 4.701248e-06, 3.649312e-06, 0.0267),
)
FINGER_JOINTS = (
    # axis, lower, upper, damping, friction
    (Z, -0.47, 0.47, 3, 10),
    (Y, -0.196, 1.61, 3, 5),
    (Y, -0.174, 1.709, 8, 10),
    (Y, -0.227, 1.618, 10, 12),
)
THUMB_LINKS = (
    # mass, inertia xx and zz, yy, size and place of the box
    (0.0176, 1.89273333333e-05, 1.43008213333e-05, (0.0358, 0.034, 0.0455), (-0.0179, -0.009, 0.0145)),
    (0.0119, 4.24250866667e-06, 4.52362633333e-06, (0.0196, 0.0275, 0.0177), (0, 0, 0.00885)),
    (0.038, 4.30439933333e-05, 1.44451933333e-05, (0.0196, 0.0275, 0.0514), (0, 0, 0.0257)),
    (0.0388, 3.29223173333e-05, 1.47493026667e-05, (0.0196, 0.0275, 0.0423), (0, 0, 0.02115)),
)
THUMB_JOINTS = (
    # xyz, rpy, axis, lower, upper, damping, friction
    ((-0.0182, -0.019333, -0.045987), (0, -1.65806278845, 1.5707963259), X, 0.263, 1.396, 3, 10),
    ((-0.027, -0.005, 0.0399), (0, 0, 0), (0, 0, -1), -0.105, 1.163, 3, 5),
    ((0, 0, 0.0177), (0, 0, 0), Y, -0.189, 1.644, 3, 10),
    ((0, 0, 0.0514), (0, 0, 0), Y, -0.162, 1.719, 3, 12),
)


def tree() -> Tree:
    """Return the hand: three like fingers and a thumb on a palm."""
    palm = box((0.0408, 0.1130, 0.095), (-0.0093, 0, -0.0475))
    links = [link("palm_link", 0.4154, (0, 0, 0.0475), (1e-4, 1e-4, 1e-4), palm)]
    links += _finger_links(8) + _finger_links(4) + _finger_links(0) + _thumb_links()
    joints = [
        *_finger_joints(8, (0, 0.0435, -0.001542), roll=-0.08726646255),
        *_finger_joints(4, (0, 0, 0.0007), roll=0),
        *_finger_joints(0, (0, -0.0435, -0.001542), roll=0.08726646255),
        *_thumb_joints(),
    ]
    return Tree("allegro", links, joints, source="allegro")


def _finger_links(first: int) -> list[Link]:
    links = []
    for i, (mass, across, along, height) in enumerate(FINGER_LINKS, start=first):
        shape = box((0.0196, 0.0275, height), (0, 0, height / 2))
        links.append(link(f"link_{i}.0", mass, (0, 0, 0), (across, along, across), shape))
    return [*links, _tip(first + 3)]


def _finger_joints(first: int, xyz: Vector, roll: float) -> list[Joint]:
    joints = []
    parent, rpy = "palm_link", (roll, 0, 0)
    for i, (axis, lower, upper, damping, friction) in enumerate(FINGER_JOINTS, start=first):
        joints.append(_hinge(i, parent, xyz, rpy, axis, lower, upper, damping, friction))
        # each link ends where the next one begins
        parent, xyz, rpy = f"link_{i}.0", (0, 0, FINGER_LINKS[i - first][3]), (0, 0, 0)
    return [*joints, _tip_joint(first + 3, xyz)]


def _thumb_links() -> list[Link]:
    links = []
    for i, (mass, across, along, size, place) in enumerate(THUMB_LINKS, start=12):
        links.append(link(f"link_{i}.0", mass, (0, 0, 0), (across, along, across), box(size, place)))
    return [*links, _tip(15)]


def _thumb_joints() -> list[Joint]:
    parents = ("palm_link", "link_12.0", "link_13.0", "link_14.0")
    joints = [_hinge(i, parent, *row) for i, (parent, row) in enumerate(zip(parents, THUMB_JOINTS), start=12)]
    return [*joints, _tip_joint(15, (0, 0, 0.0423))]


def _hinge(
    i: int,
    parent: str,
    xyz: Vector,
    rpy: Vector,
    axis: Vector,
    lower: float,
    upper: float,
    damping: float,
    friction: float,
) -> Joint:
    limits = Limits(lower, upper, velocity=7, effort=15)
    name, child = f"joint_{i}.0", f"link_{i}.0"
    return joint(name, "revolute", parent, child, xyz, rpy, axis, limits, damping=damping, friction=friction)


def _tip(i: int) -> Link:
    return link(f"link_{i}.0_tip", 0.0168, (0, 0, 0), (9.68e-07, 9.68e-07, 9.68e-07), sphere(0.012))


def _tip_joint(i: int, xyz: Vector) -> Joint:
    return joint(f"joint_{i}.0_tip", "fixed", f"link_{i}.0", f"link_{i}.0_tip", xyz)
