"""Push a ball where the gradient is zero: by the average gradient of perturbed worlds, or by the other side of a kink.

A carriage with a motor stands 10 cm before the ball. The loss sees the ball only, and a small change of the motor's
targets does not reach it. Among worlds with some noise on the targets there are a few where the ball is pushed. If it
leans on the ball without force, that is a kink: forwards the ball moves, backwards, the plain gradient, it does not.
"""

import tempfile
from pathlib import Path

import torch

import pullback as pb
from pullback.rigid.smoothing import Smoothing

CARRIAGE = """
<robot name="carriage"><link name="rail"/><link name="slider">
    <inertial><mass value="1"/><inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><sphere radius="0.0625"/></geometry></collision></link>
  <joint name="x" type="prismatic"><parent link="rail"/><child link="slider"/><axis xyz="1 0 0"/>
    <limit lower="-2" upper="2" effort="50" velocity="10"/></joint>
</robot>
"""
DT, STEPS, KNOTS, GOAL = 5e-3, 100, 3, 0.6


def compile_world(gap: float, contact: pb.PGS) -> pb.Sim:
    """Return a carriage at x = 0, and a ball `gap` away from it; sizes in binary, so that 0 is 0."""
    file = Path(tempfile.mkdtemp()) / "carriage.urdf"
    file.write_text(CARRIAGE)
    world = pb.World(contact=contact)
    world.add_ground(friction=0.5)
    world.add(pb.load(file), position=(0.0, 0.0, 0.125), friction=0.0, actuators=pb.PositionServo(kp=100.0, kd=20.0))
    world.add_sphere("ball", radius=0.125, mass=0.5, position=(0.1875 + gap, 0.0, 0.125), friction=0.5)
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
            sim = compile_world(gap, pb.PGS(kinks="downhill" if way == "downhill" else "computed"))
            smooth = None if way in ("plain", "downhill") else Smoothing(worlds=32, order=way, seed=0)
            distance, first = learn(sim, smooth, epochs)
            print(f"{where:7s} {way:8s}: first gradient {first:.4f} m, the ball ends {distance:.4f} m from the goal")
            distances[f"{where}, {way}"] = distance
    return distances


if __name__ == "__main__":
    main()
