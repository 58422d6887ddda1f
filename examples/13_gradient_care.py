"""Push a ball where the gradient is zero: by the average gradient of perturbed worlds, or by the other side of a kink.

A carriage with one motor stands 10 cm before the ball. The loss sees the ball only, and a small change of the motor's
targets does not reach it. Among worlds with some noise on the targets there are a few where the ball is pushed.

A carriage that leans on the ball without force stands on a kink: forwards the ball moves, backwards it does not. The
plain gradient is that of backwards, zero. `kinks="downhill"` takes the side on which the loss falls.
"""

import tempfile
from pathlib import Path
from typing import Literal

import torch

import pullback as pb
from pullback.rigid.smoothing import Smoothing

CARRIAGE = """
<robot name="carriage">
  <link name="rail"/>
  <link name="slider">
    <inertial><mass value="1"/><inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><sphere radius="0.0625"/></geometry></collision>
  </link>
  <joint name="x" type="prismatic"><parent link="rail"/><child link="slider"/><axis xyz="1 0 0"/>
    <limit lower="-2" upper="2" effort="50" velocity="10"/></joint>
</robot>
"""
# no rounding in sums of these: what is to touch exactly does
CARRIAGE_RADIUS, BALL_RADIUS = 0.0625, 0.125
DT, STEPS, KNOTS = 5e-3, 100, 3
GOAL = 0.6


def compile_world(gap: float, kinks: Literal["computed", "downhill"] = "computed") -> pb.Sim:
    """Return a carriage at x = 0, and a ball `gap` away from it."""
    file = Path(tempfile.mkdtemp()) / "carriage.urdf"
    file.write_text(CARRIAGE)
    x = CARRIAGE_RADIUS + BALL_RADIUS + gap
    world = pb.World(contact=pb.PGS(kinks=kinks))
    world.add_ground(friction=0.5)
    world.add(
        pb.load(file), position=(0.0, 0.0, BALL_RADIUS), friction=0.0, actuators=pb.PositionServo(kp=100.0, kd=20.0)
    )
    world.add_sphere("ball", radius=BALL_RADIUS, mass=0.5, position=(x, 0.0, BALL_RADIUS), friction=0.5)
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
    """Return how far from the goal the ball ends, by where it starts and by the gradient."""
    distances = {}
    for gap, where in ((0.1, "away"), (0.0, "touched")):
        for way in ("plain", "downhill", "first", "zeroth", "mixed") if gap else ("plain", "downhill", "mixed"):
            sim = compile_world(gap, kinks="downhill" if way == "downhill" else "computed")
            smooth = None if way in ("plain", "downhill") else Smoothing(worlds=32, order=way, seed=0)
            distance, first = learn(sim, smooth, epochs)
            print(f"{where:7s} {way:8s}: first gradient {first:.4f} m, the ball ends {distance:.4f} m from the goal")
            distances[f"{where}, {way}"] = distance
    return distances


if __name__ == "__main__":
    main()
