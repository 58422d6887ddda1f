"""The MuJoCo Hopper: the numbers are those of hopper.xml in gymnasium; links have their frames at their joints."""

from math import radians

from pullback.description.assets.rows import X, Y, Z, joint, link, solid_capsule
from pullback.description.tree import Joint, Limits, Tree

DENSITY = 1000.0
GEAR = 200.0
FRICTION, FOOT_FRICTION = 0.9, 2.0
HEIGHT = 1.25
"""Height [m] of the torso's middle when it stands on its foot with straight joints."""


def tree() -> Tree:
    """Return the robot: it slides along x and z and turns about y, and has a hip, a knee and an ankle."""
    links = [
        link("world"),
        link("root_x"),
        link("root_z"),
        solid_capsule("torso", 0.05, (0, 0, -0.2), (0, 0, 0.2), density=DENSITY, friction=FRICTION),
        solid_capsule("thigh", 0.05, (0, 0, -0.45), (0, 0, 0), density=DENSITY, friction=FRICTION),
        solid_capsule("leg", 0.04, (0, 0, -0.5), (0, 0, 0), density=DENSITY, friction=FRICTION),
        solid_capsule("foot", 0.06, (-0.13, 0, 0), (0.26, 0, 0), density=DENSITY, friction=FOOT_FRICTION),
    ]
    joints = [
        joint("rootx", "prismatic", "world", "root_x", axis=X),
        joint("rootz", "prismatic", "root_x", "root_z", axis=Z),
        joint("rooty", "continuous", "root_z", "torso", axis=Y),
        _hinge("thigh_joint", "torso", "thigh", -0.2, -150, 0),
        _hinge("leg_joint", "thigh", "leg", -0.45, -150, 0),
        _hinge("foot_joint", "leg", "foot", -0.5, -45, 45),
    ]
    return Tree("hopper", links, joints, source="hopper", base="fixed")


def _hinge(name: str, parent: str, child: str, z: float, lower: float, upper: float) -> Joint:
    limits = Limits(radians(lower), radians(upper), effort=GEAR)
    place, axis = (0, 0, z), (0, -1, 0)
    return joint(name, "revolute", parent, child, place, axis=axis, limits=limits, damping=1, armature=1, gear=GEAR)
