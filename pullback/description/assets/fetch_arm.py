"""Fetch's arm on its base: the numbers are those of fetch_arm_no_gripper.urdf in differentiable-robot-model."""

from math import inf

from pullback.description.assets.rows import X, Y, Z, box, capsule, cylinder, joint, link
from pullback.description.tree import Limits, Tree

LINKS = (
    # name, mass, centre of mass, inertia xx xy xz yy yz zz
    ("base_link", 70.1294, (-0.0036, 0, 0.0014), (1.225, 0.0099, 0.0062, 1.2853, -0.0034, 0.987)),
    ("shoulder_pan_link", 2.5587, (0.0927, -0.0056, 0.0564), (0.0043, -0.0001, 0.001, 0.0087, -0.0001, 0.0087)),
    ("shoulder_lift_link", 2.6615, (0.1432, 0.0072, -0.0001), (0.0028, -0.0021, 0, 0.0111, 0, 0.0112)),
    ("upperarm_roll_link", 2.3311, (0.1165, 0.0014, 0), (0.0019, -0.0001, 0, 0.0045, 0, 0.0047)),
    ("elbow_flex_link", 2.1299, (0.1279, 0.0073, 0), (0.0024, -0.0016, 0, 0.0082, 0, 0.0084)),
    ("forearm_roll_link", 1.6563, (0.1097, -0.0266, 0), (0.0016, -0.0003, 0, 0.003, 0, 0.0035)),
    ("wrist_flex_link", 1.725, (0.0882, 0.0009, -0.0001), (0.0018, -0.0001, 0, 0.0042, 0, 0.0042)),
    ("wrist_roll_link", 0.1354, (0.0095, 0.0004, -0.0002), (0.0001, 0, 0, 0.0001, 0, 0.0001)),
    ("virtual_ee_link", 0, (0, 0, 0), (0, 0, 0)),
)
JOINTS = (
    # name, xyz, axis, (lower, upper, velocity, effort), damping; those without limits turn for ever
    ("shoulder_pan_joint", (0.119525, 0, 0.84858), Z, (-1.6056, 1.6056, 1.256, 33.82), 1),
    ("shoulder_lift_joint", (0.117, 0, 0.0599999999999999), Y, (-1.221, 1.518, 1.454, 131.76), 1),
    ("upperarm_roll_joint", (0.219, 0, 0), X, (-inf, inf, 1.571, 76.94), 5),
    ("elbow_flex_joint", (0.133, 0, 0), Y, (-2.251, 2.251, 1.521, 66.18), 1),
    ("forearm_roll_joint", (0.197, 0, 0), X, (-inf, inf, 1.571, 29.35), 5),
    ("wrist_flex_joint", (0.1245, 0, 0), Y, (-2.16, 2.16, 2.268, 25.7), 1),
    ("wrist_roll_joint", (0.1385, 0, 0), X, (-inf, inf, 2.268, 7.36), 5),
)


def tree() -> Tree:
    """Return the arm; the shape of the base is the original's, the others are fitted to its collision meshes."""
    shapes = {
        "base_link": cylinder(0.3, (0, 0, 0), (0, 0, 0.8)),
        "shoulder_lift_link": capsule(0.068, (0, 0.030, 0), (0.142, 0.008, -0.007)),
        "upperarm_roll_link": capsule(0.062, (-0.028, -0.007, 0), (0.135, -0.029, 0)),
        "elbow_flex_link": capsule(0.062, (0, 0.028, 0), (0.141, 0.006, 0)),
        "forearm_roll_link": capsule(0.058, (-0.014, -0.003, 0), (0.125, -0.051, 0)),
        "wrist_flex_link": box((0.169, 0.121, 0.104), (0.032, 0.007, 0)),
        "wrist_roll_link": cylinder(0.052, (-0.023, 0, 0), (0.020, 0, 0)),
    }
    links = [link(*row) for row in LINKS]
    for body in links:
        body.shapes += [shapes[body.name]] if body.name in shapes else []
    joints = [
        joint(
            name,
            "continuous" if limits[1] == inf else "revolute",
            parent=links[i].name,
            child=links[i + 1].name,
            xyz=xyz,
            axis=axis,
            limits=Limits(*limits),
            damping=damping,
        )
        for i, (name, xyz, axis, limits, damping) in enumerate(JOINTS)
    ]
    joints.append(joint("virtual_ee_joint", "fixed", "wrist_roll_link", "virtual_ee_link", (0, 0, 0.045)))
    return Tree("fetch_arm", links, joints, source="fetch_arm")
