"""Bring the hand of a Panda to a hundred poses at once, then use the freedom the seventh joint leaves."""

import torch

import pullback as pb

TIP = "panda_hand_tcp"


def main() -> float:
    """Solve for a hundred poses, and return the share that was reached."""
    generator = torch.Generator().manual_seed(0)
    robot = pb.load("panda_gripper", dtype=torch.float64)

    # targets that can be reached: those of random poses within the limits
    position, quaternion = robot.compute_forward_kinematics(robot.random_q(100, generator=generator), TIP)
    result = pb.inverse_kinematics(robot, TIP, position, quaternion, generator=generator)
    print(result)
    print(f"largest error: {result.position_error.max().item():.1e} m, {result.rotation_error.max().item():.1e} rad")

    # a target out of reach is not an error: the nearest pose comes back, and says that it is not there
    far = pb.inverse_kinematics(robot, TIP, torch.tensor([2.0, 0.0, 0.5], dtype=torch.float64), generator=generator)
    print(f"2 m away: reached {bool(far.reached)}, {far.position_error.item():.2f} m short")

    # seven joints, six numbers to match: slide along the solutions towards the lowest holding torques
    q = result.q[result.reached][0].clone().requires_grad_()
    still = torch.zeros(robot.nv, dtype=torch.float64)
    for step in range(200):
        effort = robot.compute_inverse_dynamics(q, still, still).square().sum()
        (gradient,) = torch.autograd.grad(effort, q)
        with torch.no_grad():
            jacobian = torch.cat(robot.compute_endeffector_jacobian(q, TIP))
            # remove from the step what would move the hand
            along = gradient - torch.linalg.pinv(jacobian) @ (jacobian @ gradient)
            q -= 1e-4 * along
        if step in (0, 199):
            print(f"step {step:3d}: holding torques {effort.sqrt().item():.2f} N·m")
    return result.reached.double().mean().item()


if __name__ == "__main__":
    main()
