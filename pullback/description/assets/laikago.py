"""Unitree Laikago with toes, z up: the numbers are those of laikago_toes_zup.urdf in pybullet_data."""

from pullback.description.assets.rows import X, Z, box, capsule, cylinder, joint, link, sphere
from pullback.description.tree import Joint, Limits, Link, Shape, Tree

QUARTER = 1.57079
DOWN = (0, 0, -1)
LIMITS = Limits(velocity=100, effort=100)
FRICTION = 1.0

LEGS = (
    # leg, side, place of the hip, its axis, x of the upper and the lower leg, inertia of the upper leg
    ("FR", 1, (0.199095, -0.0817145, -0.03), DOWN, -0.053565, 0.02069, (0.015, 0.007, 0.01)),
    ("FL", -1, (0.199095, 0.0817145, -0.03), Z, 0.055855, -0.02069, (0.016, 0.007, 0.011)),
    ("RR", 1, (-0.238195, -0.0817145, -0.03), DOWN, -0.053565, 0.02069, (0.016, 0.007, 0.011)),
    ("RL", -1, (-0.238195, 0.0817145, -0.03), Z, 0.055855, -0.02069, (0.016, 0.007, 0.011)),
)


def tree() -> Tree:
    """Return the robot; the toes are the original's spheres, the other shapes are fitted to its collision meshes."""
    body = box((0.577, 0.387, 0.188), (-0.013, 0, -0.016), friction=FRICTION)
    links = [link("chassis", 13.715, (0, 0, 0), (0.22, 0.431, 0.565), body)]
    joints: list[Joint] = []
    for leg, side, hip, axis, upper, lower, inertia in LEGS:
        motor, thigh, shank = f"{leg}_hip_motor", f"{leg}_upper_leg", f"{leg}_lower_leg"
        motor_shape, thigh_shape, shank_shape = _leg_shapes(side)
        links += [
            link(motor, 1.095, (side * 0.02, 0, 0), (0.002, 0.002, 0.001), motor_shape),
            link(thigh, 1.527, (0, -0.04, -0.04), inertia, thigh_shape),
            link(shank, 0.241, (0, -0.16, -0.02), (0.002, 0.002, 0.002), shank_shape),
        ]
        knee = (lower, -0.20833, -0.1422)
        joints += [
            joint(f"{motor}_2_chassis_joint", "continuous", "chassis", motor, hip, (QUARTER, 0, QUARTER), axis, LIMITS),
            joint(f"{thigh}_2_hip_motor_joint", "continuous", motor, thigh, (upper, 0, 0), axis=X, limits=LIMITS),
            joint(f"{shank}_2_upper_leg_joint", "continuous", thigh, shank, knee, axis=X, limits=LIMITS),
        ]
    for leg in ("RL", "RR", "FL", "FR"):
        links.append(_toe(f"toe{leg}"))
        joints.append(joint(f"jtoe{leg}", "fixed", f"{leg}_lower_leg", f"toe{leg}", (0, -0.25, -0.022)))
    return Tree("laikago", links, joints, source="laikago")


def _leg_shapes(side: int) -> tuple[Shape, Shape, Shape]:
    """Return the shapes of hip motor, upper and lower leg on the right (side 1) or the left (-1)."""
    return (
        cylinder(0.050, (side * -0.026, 0, -0.001), (side * 0.056, 0, -0.001), friction=FRICTION),
        capsule(0.060, (side * -0.012, 0.003, 0.003), (side * 0.020, -0.165, -0.126), friction=FRICTION),
        # ends inside the toe, so that a standing robot touches the ground with its toes only
        capsule(0.028, (0, 0.015, -0.003), (0, -0.235, -0.020), friction=FRICTION),
    )


def _toe(name: str) -> Link:
    return link(name, 0.1, (0, 0, 0), (0.000025, 0.000025, 0.000025), sphere(0.03, friction=FRICTION))
