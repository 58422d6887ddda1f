"""Load a robot, look at it, and ask where its hand is."""

import torch

import pullback as pb


def main() -> torch.Tensor:
    """Print what the robot is made of, and return the torques that hold it, (1000, 7)."""
    # a name that ships with Pullback, or the path of a .urdf or .xml file
    robot = pb.load("panda", dtype=torch.float64)
    print(robot)
    print("links: ", ", ".join(robot.get_link_names()))
    for name, limit in zip(robot.joint_names, robot.get_joint_limits()):
        print(f"  {name}: {limit['lower']:+.2f} to {limit['upper']:+.2f} rad, at most {limit['effort']:.0f} N·m")

    # one state is (nq,), many are (batch, nq): every function takes both
    q = robot.random_q(1000, generator=torch.Generator().manual_seed(0))
    position, quaternion = robot.compute_forward_kinematics(q, "panda_virtual_ee_link")
    print("positions", tuple(position.shape), "quaternions xyzw", tuple(quaternion.shape))
    print("highest of a thousand random poses:", f"{position[:, 2].max().item():.3f} m")

    # the torques that hold the arm still against gravity
    still = torch.zeros_like(q)
    tau = robot.compute_inverse_dynamics(q, still, still)
    print("largest holding torque of each joint [N·m]:", [round(x, 1) for x in tau.abs().amax(0).tolist()])
    return tau


if __name__ == "__main__":
    main()
