"""Push a ball that nothing touches yet, where the gradient is zero, by the average gradient of perturbed worlds.

A carriage with one motor stands 10 cm before the ball. The loss sees the ball only, and a small change of the motor's
targets does not reach it. Among worlds with some noise on the targets there are a few where the ball is pushed.
"""

import tempfile
from pathlib import Path

import torch

import pullback as pb
from pullback.rigid.smoothing import Smoothing

CARRIAGE = """
<robot name="carriage">
  <link name="rail"/>
  <link name="slider">
    <inertial><mass value="1"/><inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><sphere radius="0.05"/></geometry></collision>
  </link>
  <joint name="x" type="prismatic"><parent link="rail"/><child link="slider"/><axis xyz="1 0 0"/>
    <limit lower="-2" upper="2" effort="50" velocity="10"/></joint>
</robot>
"""
DT, STEPS, KNOTS = 5e-3, 100, 3
GOAL = 0.6


def compile_world() -> pb.Sim:
    """Return a carriage at x = 0, and a ball at x = 0.25 of which it is 0.1 away."""
    file = Path(tempfile.mkdtemp()) / "carriage.urdf"
    file.write_text(CARRIAGE)
    world = pb.World()
    world.add_ground(friction=0.5)
    world.add(pb.load(file), position=(0.0, 0.0, 0.1), friction=0.0, actuators=pb.PositionServo(kp=100.0, kd=20.0))
    world.add_sphere("ball", radius=0.1, mass=0.5, position=(0.25, 0.0, 0.1), friction=0.5)
    return world.compile(dt=DT, dtype=torch.float64)


def learn(sim: pb.Sim, smooth: Smoothing | None, epochs: int) -> tuple[float, float]:
    """Return how far [m] from the goal the ball ends, and the size of the first gradient."""
    # targets of the motor: straight lines between knots, the first of them where it stands
    place = torch.arange(1, STEPS + 1, dtype=torch.float64)[:, None] * (KNOTS / STEPS)
    between = (1.0 - (place - torch.arange(1, KNOTS + 1)).abs()).clamp(min=0.0)
    knots = torch.zeros(KNOTS, dtype=torch.float64, requires_grad=True)
    start, first, distance = sim.initial_state(), 0.0, float("nan")

    def losses(knots: torch.Tensor) -> torch.Tensor:
        """Return the squared distance from the goal in each world, for knots (B, KNOTS)."""
        controls = (between @ knots.mT)[..., None]
        begin = pb.State(start.q.expand(len(knots), -1), start.qd.expand(len(knots), -1))
        return (sim.rollout(begin, controls)[-1].q[:, 1] - GOAL).square()

    optimizer = torch.optim.Adam([knots], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        optimizer.zero_grad()
        sigma = 0.15 * (1.0 - epoch / epochs)  # much noise finds the ball, little noise hits the goal
        loss = smooth(losses, (knots, sigma)) if smooth else losses(knots[None]).mean()
        loss.backward()
        first = knots.grad.norm().item() if epoch == 0 and knots.grad is not None else first
        optimizer.step()
        schedule.step()
        distance = losses(knots.detach()[None]).sqrt().item()
    return distance, first


def main(epochs: int = 80) -> dict[str, float]:
    """Return how far from the goal the ball ends, with the plain gradient and with each kind of smoothing."""
    sim, distances = compile_world(), {}
    for order in ("plain", "first", "zeroth", "mixed"):
        smooth = None if order == "plain" else Smoothing(worlds=32, order=order, seed=0)
        distances[order], first = learn(sim, smooth, epochs)
        print(f"{order:6s}: first gradient {first:.4f} m, the ball ends {distances[order]:.4f} m from the goal")
    return distances


if __name__ == "__main__":
    main()
