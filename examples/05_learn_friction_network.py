"""Learn a law nobody wrote down: a small network gives the dry friction of a joint as a function of its speed.

Any module can stand in for a parameter. If its `forward` has an argument called `qd` (or `q`) it gets the joint state,
and gradients reach its weights through the dynamics. The true joint sticks more than it slides (Stribeck's curve).
"""

import torch
from torch import nn

import pullback as pb

Tensor = torch.Tensor


class Stribeck(nn.Module):
    """The truth: 0.5 N·m when sliding fast, up to 0.9 N·m when creeping."""

    def forward(self, qd: Tensor) -> Tensor:
        """Return the coefficient [N·m] (B,) at the joint velocities (B, nv)."""
        return 0.5 + 0.4 * torch.exp(-((qd[:, 0] / 0.5) ** 2))


class FrictionNetwork(nn.Module):
    """A positive function of speed with 49 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1), nn.Softplus())

    def forward(self, qd: Tensor) -> Tensor:
        """Return the coefficient [N·m] (B,) at the joint velocities (B, nv)."""
        return self.layers(2.0 * qd[:, :1].abs())[:, 0]


def main(epochs: int = 600) -> float:
    """Learn the law, and return its largest error [N·m] over the speeds of the motion."""
    torch.manual_seed(0)
    truth = pb.load("pendulum1", dtype=torch.float64)
    truth.make_link_param_learnable("link0", "joint_friction", Stribeck())
    generator = torch.Generator().manual_seed(0)
    data = pb.sine_motion(truth, samples=300, dt=0.05, noise=0.001, use_friction=True, generator=generator)

    robot = pb.load("pendulum1", dtype=torch.float64)
    robot.make_link_param_learnable("link0", "joint_friction", FrictionNetwork())
    optimizer = torch.optim.Adam(robot.parameters(), lr=3e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    loss_of = pb.NMSELoss(data.tau.var(0))
    for epoch in range(epochs):
        optimizer.zero_grad()
        loss = loss_of(robot.compute_inverse_dynamics(data.q, data.qd, data.qdd, use_friction=True), data.tau)
        loss.backward()
        optimizer.step()
        schedule.step()
        if epoch % 150 == 0:
            print(f"epoch {epoch:4d}: loss {loss.item():.2e}")

    # compare the two laws over the speeds the motion had
    speed = torch.linspace(0.02, 2.0, 10, dtype=torch.float64)[:, None]
    with torch.no_grad():
        learned, true = (r.learned["link0/joint_friction"](qd=speed) for r in (robot, truth))
    for v, a, b in zip(speed[:, 0].tolist(), learned.tolist(), true.tolist()):
        print(f"at {v:.2f} rad/s: learned {a:.3f} N·m, true {b:.3f} N·m")
    return (learned - true).abs().max().item()


if __name__ == "__main__":
    main()
