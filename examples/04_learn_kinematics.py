"""Learn where two joints of an arm really are, from measured positions of its flange.

An arm is never built exactly as drawn. Here the drawing is wrong by centimetres at the third and fifth joint; positions
are measured to a tenth of a millimetre. (Origins of neighbouring joints could not both be learned: a shift of one along
its own axis is a shift of the next.)
"""

import torch

import pullback as pb

LINKS = ("iiwa_link_3", "iiwa_link_5")
TIP = "iiwa_link_ee"


def main(epochs: int = 300) -> float:
    """Learn the two origins, and return the larger of their errors [m]."""
    generator = torch.Generator().manual_seed(0)
    built = pb.load("iiwa7", dtype=torch.float64)
    q = built.random_q(200, generator=generator)
    measured, _ = built.compute_forward_kinematics(q, TIP)
    measured = measured + 1e-4 * torch.randn(measured.shape, dtype=torch.float64, generator=generator)

    robot = pb.load("iiwa7", dtype=torch.float64)
    for link in LINKS:
        wrong = built.get_link_param(link, "trans") + 0.03 * torch.randn(3, dtype=torch.float64, generator=generator)
        robot.make_link_param_learnable(link, "trans", pb.UnconstrainedTensor(wrong))

    optimizer = torch.optim.Adam(robot.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.985)
    for epoch in range(epochs):
        optimizer.zero_grad()
        position, _ = robot.compute_forward_kinematics(q, TIP)
        loss = (position - measured).square().sum(-1).mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        if epoch % 100 == 0:
            print(f"epoch {epoch:3d}: {1000 * loss.sqrt().item():.3f} mm between model and measurement")

    error = 0.0
    for link in LINKS:
        difference = robot.get_link_param(link, "trans") - built.get_link_param(link, "trans")
        print(f"{link}: origin found to {1000 * difference.norm().item():.3f} mm")
        error = max(error, difference.norm().item())
    return error


if __name__ == "__main__":
    main()
