"""Push a box to a goal with a ball that does not touch it yet: the controls are found through the contact.

A carriage with two motors, along x and y, carries the ball. It has to come to the box, push it, and stop in time for
the box to slide to the goal and rest there. The loss sees the box, and how far from it the ball is.
"""

import tempfile
from pathlib import Path

import torch

import pullback as pb

CARRIAGE = """
<robot name="carriage">
  <link name="rail"/>
  <link name="slider">
    <inertial><mass value="0.5"/><inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial>
  </link>
  <link name="ball">
    <inertial><mass value="0.5"/><inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><sphere radius="0.05"/></geometry></collision>
  </link>
  <joint name="x" type="prismatic"><parent link="rail"/><child link="slider"/><axis xyz="1 0 0"/>
    <limit lower="-2" upper="2" effort="50" velocity="10"/></joint>
  <joint name="y" type="prismatic"><parent link="slider"/><child link="ball"/><axis xyz="0 1 0"/>
    <limit lower="-2" upper="2" effort="50" velocity="10"/></joint>
</robot>
"""
DT, STEPS, KNOTS = 5e-3, 200, 11
GOAL = (0.6, 0.15)


def main(epochs: int = 120) -> float:
    """Return how far [m] from the goal the box ends."""
    file = Path(tempfile.mkdtemp()) / "carriage.urdf"
    file.write_text(CARRIAGE)
    world = pb.World()
    world.add_ground(friction=0.4)
    world.add(pb.load(file), position=(0.0, 0.0, 0.1), friction=0.2, actuators=pb.PositionServo(kp=100.0, kd=20.0))
    world.add_box("box", size=(0.2, 0.2, 0.2), mass=1.0, position=(0.25, 0.0, 0.1), friction=0.4)
    sim = world.compile(dt=DT, dtype=torch.float64)
    print(sim, world.actuator_names)

    # targets of the two servos: straight lines between knots
    place = torch.arange(STEPS, dtype=torch.float64)[:, None] * ((KNOTS - 1) / STEPS)
    between = (1.0 - (place - torch.arange(KNOTS)).abs()).clamp(min=0.0)
    knots = torch.zeros(KNOTS, 2, dtype=torch.float64, requires_grad=True)
    goal = torch.tensor(GOAL, dtype=torch.float64)
    optimizer = torch.optim.Adam([knots], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    start, distance = sim.initial_state(), float("nan")
    for epoch in range(epochs):
        optimizer.zero_grad()
        motion = sim.rollout(start, (between @ knots)[:, None])
        ball, box = motion.q[:, 0, :2], motion.q[:, 0, 2:4]
        # before they touch, the box does not know of the ball: closeness leads it there
        closeness = (ball - box).square().sum(-1).mean()
        loss = (box[-1] - goal).square().sum() + 0.1 * closeness + 0.01 * motion.qd[-1, 0].square().sum()
        loss.backward()
        optimizer.step()
        schedule.step()
        distance = (box[-1] - goal).norm().item()
        if epoch % 20 == 0 or epoch == epochs - 1:
            print(f"epoch {epoch:3d}: box ends at {[round(x, 3) for x in box[-1].tolist()]}, {distance:.4f} m off")
    return distance


if __name__ == "__main__":
    main()
