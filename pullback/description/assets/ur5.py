"""Universal Robots UR5, six joints: the numbers are those of ur5_robot.urdf in example-robot-data."""

from pullback.description.assets.rows import Y, Z, box, cylinder, joint, link
from pullback.description.tree import Limits, Tree

HALF = 3.14159265359
FULL = 6.28318530718
QUARTER = 1.57079632679

JOINTS = (
    # name, parent, child, xyz, pitch, axis, position limit, velocity, effort
    ("shoulder_pan_joint", "base_link", "shoulder_link", (0, 0, 0.089159), 0, Z, FULL, 3.15, 150),
    ("shoulder_lift_joint", "shoulder_link", "upper_arm_link", (0, 0.13585, 0), QUARTER, Y, FULL, 3.15, 150),
    ("elbow_joint", "upper_arm_link", "forearm_link", (0, -0.1197, 0.425), 0, Y, HALF, 3.15, 150),
    ("wrist_1_joint", "forearm_link", "wrist_1_link", (0, 0, 0.39225), QUARTER, Y, FULL, 3.2, 28),
    ("wrist_2_joint", "wrist_1_link", "wrist_2_link", (0, 0.093, 0), 0, Z, FULL, 3.2, 28),
    ("wrist_3_joint", "wrist_2_link", "wrist_3_link", (0, 0, 0.09465), 0, Y, FULL, 3.2, 28),
)


def tree() -> Tree:
    """Return the arm; its shapes are fitted to the original's collision meshes."""
    stand = cylinder(0.092, (0, -0.018, -0.003), (0, -0.018, 0.021))
    shoulder = box((0.119, 0.130, 0.134), (0, 0.005, 0.002))
    upper_arm = box((0.119, 0.134, 0.545), (0, 0.002, 0.213))
    forearm = box((0.116, 0.112, 0.489), (0, -0.001, 0.187))
    wrist_1 = box((0.078, 0.085, 0.105), (0, 0.090, -0.005))
    wrist_2 = box((0.078, 0.105, 0.084), (0, -0.005, 0.091))
    wrist_3 = cylinder(0.040, (0, 0.047, 0.003), (0, 0.082, 0.003))
    tip = box((0.01, 0.01, 0.01), (-0.01, 0, 0))
    # name, mass, centre of mass, inertia xx yy zz, shape
    links = [
        link("base_link", 4.0, (0, 0, 0), (0.00443333156, 0.00443333156, 0.0072), stand),
        link("shoulder_link", 3.7, (0, 0, 0), (0.010267495893, 0.010267495893, 0.00666), shoulder),
        link("upper_arm_link", 8.393, (0, 0, 0.28), (0.22689067591, 0.22689067591, 0.0151074), upper_arm),
        link("forearm_link", 2.275, (0, 0, 0.25), (0.049443313556, 0.049443313556, 0.004095), forearm),
        link("wrist_1_link", 1.219, (0, 0, 0), (0.111172755531, 0.111172755531, 0.21942), wrist_1),
        link("wrist_2_link", 1.219, (0, 0, 0), (0.111172755531, 0.111172755531, 0.21942), wrist_2),
        link("wrist_3_link", 0.1879, (0, 0, 0), (0.0171364731454, 0.0171364731454, 0.033822), wrist_3),
        link("ee_link", 0, (0, 0, 0), (0, 0, 0), tip),
        link("base"),
        link("tool0"),
        link("world"),
    ]
    joints = [
        joint(name, "revolute", parent, child, xyz, (0, pitch, 0), axis, Limits(-limit, limit, velocity, effort))
        for name, parent, child, xyz, pitch, axis, limit, velocity, effort in JOINTS
    ]
    joints += [
        joint("ee_fixed_joint", "fixed", "wrist_3_link", "ee_link", (0, 0.0823, 0), (0, 0, QUARTER)),
        joint("base_link-base_fixed_joint", "fixed", "base_link", "base", (0, 0, 0), (0, 0, -HALF)),
        joint("wrist_3_link-tool0_fixed_joint", "fixed", "wrist_3_link", "tool0", (0, 0.0823, 0), (-QUARTER, 0, 0)),
        joint("world_joint", "fixed", "world", "base_link"),
    ]
    return Tree("ur5", links, joints, source="ur5")
