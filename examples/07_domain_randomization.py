"""Simulate 1,024 arms at once, each holding something else, and tune one controller for all of them.

A parameter with a leading dimension is one value for each robot of the batch. The gradient of the cost over the whole
half second reaches the gains of the controller through every step of the simulation.
"""

import torch

import pullback as pb

ROBOTS, STEPS, DT = 1024, 25, 0.02


def main() -> tuple[float, float]:
    """Tune the gains, and return the cost before and after."""
    generator = torch.Generator().manual_seed(0)
    robot = pb.load("iiwa7")
    payload = 3.0 + 2.0 * torch.rand(ROBOTS, generator=generator)
    robot.set_link_param("iiwa_link_7", "mass", payload)
    print(f"the arms weigh {robot.compute_total_mass().min():.1f} to {robot.compute_total_mass().max():.1f} kg")

    # the controller believes in an arm without payload
    nominal = pb.load("iiwa7")
    start = torch.zeros(ROBOTS, robot.nq)
    goal = torch.tensor([0.3, 0.6, 0.0, -1.0, 0.0, 0.8, 0.0])
    log_gains = torch.tensor([[3.0], [2.0]]).repeat(1, robot.nv).requires_grad_()

    def cost() -> torch.Tensor:
        q, qd, total = start, torch.zeros_like(start), torch.zeros(())
        stiffness, damping = log_gains.exp()
        for _ in range(STEPS):
            command = stiffness * (goal - q) - damping * qd
            tau = nominal.compute_inverse_dynamics(q, qd, command)
            qd = qd + DT * robot.compute_forward_dynamics(q, qd, tau)
            q = q + DT * qd
            total = total + (q - goal).square().sum(-1).mean() + 1e-6 * tau.square().sum(-1).mean()
        return total / STEPS

    optimizer = torch.optim.Adam([log_gains], lr=0.2)
    costs = []
    for epoch in range(6):
        optimizer.zero_grad()
        loss = cost()
        loss.backward()
        optimizer.step()
        costs.append(loss.item())
        print(f"epoch {epoch}: cost over {ROBOTS} arms {costs[-1]:.4f}")
    return costs[0], costs[-1]


if __name__ == "__main__":
    main()
