"""The MIT racecar: the numbers are those of racecar.urdf in pybullet_data, with its cylinder wheels."""

from pullback.description.assets.rows import box, cylinder, joint, link
from pullback.description.tree import Limits, Link, Tree

QUARTER = 1.5708
BACK = (-1, 0, 0)
DOWN = (0, 0, -1)
TURN = Limits(velocity=100, effort=10)
STEER = Limits(-1.0, 1.0, velocity=100, effort=10)

CHASSIS_INERTIA = (0.010609, 0.050409, 0.05865)
HINGE_INERTIA = (4e-06, 4e-06, 4e-06)
CAMERA_INERTIA = (1e-6, 1e-6, 1e-6)


def tree() -> Tree:
    """Return the car; the left steering joint has limits, the right one has none, as in the original."""
    laser = box((0.1, 0.1, 0.1))
    camera = box((0.033, 0.175, 0.030))
    links = [
        link("base_link", 0.1, (0, 0, 0), CHASSIS_INERTIA),
        link("chassis", 0.1, (0, 0, 0), CHASSIS_INERTIA),
        link("chassis_inertia", 4.0, (0.1477, 0, 0), CHASSIS_INERTIA),
        _wheel("left_rear_wheel", side=-1),
        _wheel("right_rear_wheel", side=1),
        link("left_steering_hinge", 0.1, (0, 0, 0), HINGE_INERTIA),
        link("right_steering_hinge", 0.1, (0, 0, 0), HINGE_INERTIA),
        _wheel("left_front_wheel", side=-1),
        _wheel("right_front_wheel", side=1),
        link("laser", 0.13, (0, 0, 0), HINGE_INERTIA, laser),
        link("zed_camera_link", 1e-5, (0, 0, 0), CAMERA_INERTIA, camera),
        link("camera_link", 1e-5, (0, 0, 0), CAMERA_INERTIA),
        link("zed_camera_right_link", 1e-5, (0, 0, 0), CAMERA_INERTIA),
    ]
    roll, pitch = (QUARTER, 0, 0), (0, QUARTER, 0)
    left_hinge, right_hinge = "left_steering_hinge", "right_steering_hinge"
    joints = [
        joint("base_link_joint", "fixed", "base_link", "chassis", (0, 0, 0.05)),
        joint("chassis_inertia_joint", "fixed", "chassis", "chassis_inertia"),
        joint("left_rear_wheel_joint", "continuous", "chassis", "left_rear_wheel", (0, 0.1, 0), roll, DOWN, TURN),
        joint("right_rear_wheel_joint", "continuous", "chassis", "right_rear_wheel", (0, -0.1, 0), roll, DOWN, TURN),
        joint("left_steering_hinge_joint", "revolute", "chassis", left_hinge, (0.325, 0.1, 0), pitch, BACK, STEER),
        joint("right_steering_hinge_joint", "continuous", "chassis", right_hinge, (0.325, -0.1, 0), pitch, BACK, TURN),
        joint("left_front_wheel_joint", "continuous", left_hinge, "left_front_wheel", (0, 0, 0), roll, DOWN, TURN),
        joint("right_front_wheel_joint", "continuous", right_hinge, "right_front_wheel", (0, 0, 0), roll, DOWN, TURN),
        joint("hokuyo_joint", "fixed", "chassis", "laser", (0.265, 0, 0.075)),
        joint("zed_camera_joint", "fixed", "chassis", "zed_camera_link", (0.390, 0, 0.04)),
        joint("zed_camera_left_joint", "fixed", "zed_camera_link", "camera_link", (0, 0.06, 0)),
        joint("zed_camera_right_joint", "fixed", "zed_camera_link", "zed_camera_right_link", (0, -0.06, 0)),
    ]
    return Tree("racecar", links, joints, source="racecar")


def _wheel(name: str, side: int) -> Link:
    """Return a wheel on the left (side -1) or the right (1), centred 22.5 mm beside its joint."""
    inertia = (0.00026046, 0.00026046, 0.00041226)
    centre = side * 0.0225
    shape = cylinder(0.05, (0, 0, centre - 0.0225), (0, 0, centre + 0.0225))
    return link(name, 0.34055, (0, 0, centre), inertia, shape)
