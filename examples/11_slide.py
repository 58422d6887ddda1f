"""Find how fast to push a box off so that it slides to a mark and stops there.

By hand: friction takes mu g from the speed every second, so the box stops after v² / (2 mu g). The simulation takes it
in steps, and its way is shorter by v dt / 2: a speed that is higher by mu g dt / 2 makes up for it.
"""

import math

import torch

import pullback as pb

DT, STEPS, FRICTION, GRAVITY = 2e-3, 1000, 0.3, 9.81


def main(mark: float = 0.8, epochs: int = 12) -> tuple[float, float]:
    """Return the speed [m/s] that was found, and the one by hand."""
    world = pb.World(gravity=(0.0, 0.0, -GRAVITY))
    world.add_ground(friction=FRICTION)
    world.add_box("box", size=(0.2, 0.2, 0.1), mass=1.0, position=(0.0, 0.0, 0.05), friction=FRICTION)
    sim = world.compile(dt=DT, dtype=torch.float64)
    start = sim.initial_state()

    speed = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    for epoch in range(epochs):
        qd = torch.cat([start.qd[0, :3], speed[None], start.qd[0, 4:]])
        # two seconds of sliding and resting; the states between are computed again on the way back
        end = sim.rollout(pb.State(start.q, qd[None]), STEPS, checkpoint=pb.Binomial(8))[-1]
        x = end.q[0, 0]
        (slope,) = torch.autograd.grad(x, speed)
        if epoch % 2 == 0:
            by_hand = speed.item() / (FRICTION * GRAVITY)
            print(
                f"{speed.item():.5f} m/s: stops at {x.item():.5f} m, slope {slope.item():.4f} s ({by_hand:.4f} by hand)"
            )
        with torch.no_grad():
            # descend on (x - mark)² / 2, with a step that fits its curvature
            speed -= 0.8 / slope.square() * (x - mark) * slope

    by_hand = math.sqrt(2.0 * FRICTION * GRAVITY * mark)
    print(f"found {speed.item():.5f} m/s, by hand {by_hand:.5f} m/s; at rest: {abs(end.qd[0, 3].item()):.1e} m/s")
    return speed.item(), by_hand


if __name__ == "__main__":
    main()
