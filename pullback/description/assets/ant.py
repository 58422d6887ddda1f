"""The MuJoCo Ant: the numbers are those of ant.xml in gymnasium, with the unnamed feet called foot_1 to foot_4."""

from math import pi, radians

from pullback.description.assets.rows import Z, joint, link, solid_capsule, sphere
from pullback.description.tree import Joint, Limits, Link, Tree

DENSITY = 5.0
FRICTION = 1.0
TORSO_RADIUS = 0.25
LEG_RADIUS = 0.08
GEAR = 150.0
ARMATURE = 1.0

LEGS = (
    # number, first body of the leg, its direction in x and y, axis of the ankle, lower, upper [degrees]
    (1, "front_left_leg", (1, 1), (-1, 1, 0), 30, 70),
    (2, "front_right_leg", (-1, 1), (1, 1, 0), -70, -30),
    (3, "back_leg", (-1, -1), (-1, 1, 0), -70, -30),
    (4, "right_back_leg", (1, -1), (1, 1, 0), 30, 70),
)


def tree(density: float = DENSITY, gear: float = GEAR, armature: float = ARMATURE) -> Tree:
    """Return the robot: a torso free to move and four legs of a fixed, a hip and an ankle segment.

    Of other `density` [kg/m³], motors [N·m] and rotors [kg·m²] it is the ant of other benchmarks.
    """
    mass = density * 4 / 3 * pi * TORSO_RADIUS**3
    moment = 2 / 5 * mass * TORSO_RADIUS**2
    torso = sphere(TORSO_RADIUS, friction=FRICTION)
    links = [link("torso", mass, (0, 0, 0), (moment, moment, moment), torso)]
    joints: list[Joint] = []
    for i, leg, (x, y), axis, lower, upper in LEGS:
        hip, foot = f"aux_{i}", f"foot_{i}"
        knee = (0.2 * x, 0.2 * y, 0)
        ends = {leg: knee, hip: knee, foot: (0.4 * x, 0.4 * y, 0)}
        links += [_segment(name, end, density) for name, end in ends.items()]
        hinges = [
            joint(f"hip_{i}", "revolute", leg, hip, knee, axis=Z, limits=_limits(-30, 30, gear)),
            joint(f"ankle_{i}", "revolute", hip, foot, knee, axis=axis, limits=_limits(lower, upper, gear)),
        ]
        for hinge in hinges:
            hinge.damping, hinge.armature, hinge.gear = 1.0, armature, gear
        joints += [joint(f"{leg}/fixed", "fixed", "torso", leg), *hinges]
    return Tree("ant", links, joints, source="ant", base="floating")


def _limits(lower: float, upper: float, gear: float) -> Limits:
    """Return the range of a joint, given in degrees, and its largest torque."""
    return Limits(radians(lower), radians(upper), effort=gear)


def _segment(name: str, end: tuple[float, float, float], density: float) -> Link:
    """Return a solid capsule from the origin to `end`."""
    return solid_capsule(name, LEG_RADIUS, (0, 0, 0), end, density=density, friction=FRICTION)
