"""Franka Emika Panda without gripper: the numbers are those of panda_no_gripper.urdf in differentiable-robot-model."""

from pullback.description.assets.rows import capsule, joint, link
from pullback.description.tree import Limits, Shape, Tree

QUARTER = 1.57079632679

LINKS = (
    # mass, centre of mass
    (2.9, (0, 0, 0.05)),
    (2.7, (0, -0.04, -0.05)),
    (2.73, (0, -0.04, 0.06)),
    (2.04, (0.01, 0.01, -0.05)),
    (2.08, (-0.03, 0.03, 0.02)),
    (3, (0, 0.04, -0.12)),
    (1.3, (0.04, 0, 0)),
    (0.2, (0, 0, 0.08)),
)
JOINTS = (
    # xyz, roll, lower, upper, velocity, effort
    ((0, 0, 0.333), 0, -2.9671, 2.9671, 2.3925, 87),
    ((0, 0, 0), -QUARTER, -1.8326, 1.8326, 2.3925, 87),
    ((0, -0.316, 0), QUARTER, -2.9671, 2.9671, 2.3925, 87),
    ((0.0825, 0, 0), QUARTER, -3.1416, 0.0873, 2.3925, 87),
    ((-0.0825, 0.384, 0), -QUARTER, -2.9671, 2.9671, 2.8710, 12),
    ((0, 0, 0), QUARTER, -0.0873, 3.8223, 2.8710, 12),
    ((0.088, 0, 0), QUARTER, -2.9671, 2.9671, 2.8710, 12),
)


def tree() -> Tree:
    """Return the arm."""
    inertia = (0.1, 0.1, 0.1)
    links = [
        link(f"panda_link{i}", mass, com, inertia, *shapes)
        for i, ((mass, com), shapes) in enumerate(zip(LINKS, arm_shapes()))
    ]
    joints = [
        joint(
            f"panda_joint{i}",
            "revolute",
            parent=f"panda_link{i - 1}",
            child=f"panda_link{i}",
            xyz=xyz,
            rpy=(roll, 0, 0),
            limits=Limits(*limits),
        )
        for i, (xyz, roll, *limits) in enumerate(JOINTS, start=1)
    ]
    links.append(link("panda_virtual_ee_link"))
    joints.append(joint("panda_virtual_ee_joint", "fixed", "panda_link7", "panda_virtual_ee_link", (0, 0, 0.105)))
    return Tree("panda", links, joints, source="panda")


def arm_shapes() -> list[list[Shape]]:
    """Return the capsules of links 0 to 7: each is a cylinder and two spheres of example-robot-data's model."""
    return [
        [capsule(0.09, (-0.06, 0, 0.06), (-0.09, 0, 0.06))],
        [capsule(0.09, (0, 0, -0.05), (0, 0, -0.333))],
        [capsule(0.09, (0, 0, 0.06), (0, 0, -0.06))],
        [capsule(0.09, (0, 0, -0.07), (0, 0, -0.22))],
        [capsule(0.09, (0, 0, 0.06), (0, 0, -0.06))],
        [capsule(0.09, (0, 0, -0.21), (0, 0, -0.31)), capsule(0.055, (0, 0.08, -0.06), (0, 0.08, -0.2))],
        [capsule(0.08, (0, 0, 0.01), (0, 0, -0.07))],
        [capsule(0.07, (0, 0, 0.08), (0, 0, -0.06)), capsule(0.045, (0.0435, 0.0435, 0.09), (0.0365, 0.0365, 0.09))],
    ]
