"""Franka Emika Panda with its two-finger hand: the numbers are those of panda.urdf in example-robot-data."""

from math import pi

from pullback.description.assets.panda import arm_shapes
from pullback.description.assets.rows import box, capsule, joint, link
from pullback.description.tree import Joint, Limits, Link, Mimic, Tree, Vector

LINKS = (
    # mass, centre of mass, inertia xx xy xz yy yz zz
    (0.629769, (-0.041018, -0.00014, 0.049974), (0.00315, 8.2904e-07, 0.00015, 0.00388, 8.2299e-06, 0.004285)),
    (4.970684, (0.003875, 0.002081, -0.04762), (0.70337, -0.000139, 0.006772, 0.70661, 0.019169, 0.009117)),
    (0.646926, (-0.003141, -0.02872, 0.003495), (0.007962, -0.003925, 0.010254, 0.02811, 0.000704, 0.025995)),
    (3.228604, (0.027518, 0.039252, -0.066502), (0.037242, -0.004761, -0.011396, 0.036155, -0.012805, 0.01083)),
    (3.587895, (-0.05317, 0.104419, 0.027454), (0.025853, 0.007796, -0.001332, 0.019552, 0.008641, 0.028323)),
    (1.225946, (-0.011953, 0.041065, -0.038437), (0.035549, -0.002117, -0.004037, 0.029474, 0.000229, 0.008627)),
    (1.666555, (0.060149, -0.014117, -0.010517), (0.001964, 0.000109, -0.001158, 0.004354, 0.000341, 0.005433)),
    (0.735522, (0.010517, -0.004252, 0.061597), (0.012516, -0.000428, -0.001196, 0.010027, -0.000741, 0.004815)),
)
JOINTS = (
    # xyz, roll, lower, upper, velocity, effort
    ((0, 0, 0.333), 0, -2.8973, 2.8973, 2.175, 87),
    ((0, 0, 0), -pi / 2, -1.7628, 1.7628, 2.175, 87),
    ((0, -0.316, 0), pi / 2, -2.8973, 2.8973, 2.175, 87),
    ((0.0825, 0, 0), pi / 2, -3.0718, -0.0698, 2.175, 87),
    ((-0.0825, 0.384, 0), -pi / 2, -2.8973, 2.8973, 2.61, 12),
    ((0, 0, 0), pi / 2, -0.0175, 3.7525, 2.61, 12),
    ((0.088, 0, 0), pi / 2, -2.8973, 2.8973, 2.61, 12),
)


STROKE = Limits(0.0, 0.04, velocity=0.2, effort=100)


def tree() -> Tree:
    """Return the arm with its hand; the right finger mimics the left one."""
    links = [link(f"panda_link{i}", *row, *shapes) for i, (row, shapes) in enumerate(zip(LINKS, arm_shapes()))]
    palm = capsule(0.05, (0, -0.075, 0.03), (0, 0.075, 0.03))
    links += [
        link("panda_link8"),
        link("panda_hand", 0.73, (-0.01, 0, 0.03), (0.001, 0.0025, 0.0017), palm),
        link("panda_hand_tcp"),
        _finger("panda_leftfinger", side=1),
        _finger("panda_rightfinger", side=-1),
    ]
    joints = [_arm_joint(i, xyz, roll, Limits(*limits)) for i, (xyz, roll, *limits) in enumerate(JOINTS, start=1)]
    joints += [
        joint("panda_joint8", "fixed", "panda_link7", "panda_link8", (0, 0, 0.107)),
        joint("panda_hand_joint", "fixed", "panda_link8", "panda_hand", (0, 0, 0), (0, 0, -pi / 4)),
        joint("panda_hand_tcp_joint", "fixed", "panda_hand", "panda_hand_tcp", (0, 0, 0.1034)),
        _finger_joint("panda_finger_joint1", "panda_leftfinger", side=1),
        _finger_joint("panda_finger_joint2", "panda_rightfinger", side=-1, mimic=Mimic("panda_finger_joint1")),
    ]
    return Tree("panda_gripper", links, joints, source="panda_gripper")


def _arm_joint(i: int, xyz: Vector, roll: float, limits: Limits) -> Joint:
    parent, child = f"panda_link{i - 1}", f"panda_link{i}"
    return joint(f"panda_joint{i}", "revolute", parent, child, xyz, (roll, 0, 0), limits=limits, damping=0.003)


def _finger(name: str, side: int) -> Link:
    """Return a finger on the left (side 1) or the right (-1) of the hand."""
    inertia = (2.3749999999999997e-06, 2.3749999999999997e-06, 7.5e-07)
    shapes = (
        # screw mount, carriage sledge, diagonal finger, rubber tip
        box((0.022, 0.015, 0.020), (0, side * 0.0185, 0.011)),
        box((0.022, 0.0088, 0.0038), (0, side * 0.0068, 0.0022)),
        box((0.0175, 0.007, 0.0235), (0, side * 0.0159, 0.02835), (side * pi / 6, 0, 0)),
        box((0.0175, 0.0152, 0.0185), (0, side * 0.00758, 0.04525)),
    )
    return link(name, 0.015, (0, 0, 0), inertia, *shapes)


def _finger_joint(name: str, finger: str, side: int, mimic: Mimic | None = None) -> Joint:
    xyz, axis = (0, 0, 0.0584), (0, side, 0)
    return joint(name, "prismatic", "panda_hand", finger, xyz, axis=axis, limits=STROKE, damping=0.3, mimic=mimic)
