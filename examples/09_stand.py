"""Let the Laikago stand on its servos, weigh it by its contact forces, and find the targets that lift it to a height.

Servos give way under load, so the robot stands lower than its joint targets say. The gradient of the height by the
targets, through 600 steps on four feet, tells how to correct them.
"""

import torch

import pullback as pb

LEG = (0.2, 0.0, -0.5)  # abduction, hip, knee [rad]
TOES = ("toeFR", "toeFL", "toeRR", "toeRL")
STEPS = 600


def main(goal: float = 0.5, epochs: int = 5) -> tuple[float, float]:
    """Return the contact forces divided by the weight, and the error [m] of the height that was asked for."""
    world, dog = pb.World(), pb.load("laikago", base="floating")
    world.add(
        dog,
        name="dog",
        position=(0.0, 0.0, 0.4835),
        q=dict(zip(dog.joint_names[1:], 4 * LEG)),
        actuators=pb.PositionServo(kp=150.0, kd=3.0, limit=100.0),
        collision_links=TOES,
    )
    world.add_ground(friction=0.8)
    sim = world.compile(dt=1e-3, dtype=torch.float64)

    # every leg the same: three numbers to learn
    leg = torch.tensor(LEG, dtype=torch.float64, requires_grad=True)
    start = sim.initial_state()
    for epoch in range(epochs):
        # only the states every 20 steps are kept; the backward pass computes the others again
        motion = sim.rollout(start, leg.repeat(STEPS, 1, 4), checkpoint=20)
        height = motion.q[-1, 0, 2]
        print(f"epoch {epoch}: height {height.item():.4f} m, targets {[round(a, 3) for a in leg.tolist()]}")
        (slope,) = torch.autograd.grad(height, leg)
        with torch.no_grad():
            # the shortest step that closes the gap, were the height a linear function of the targets
            leg -= (height - goal) * slope / slope.square().sum()

    # stand for two seconds with what was found, and weigh
    with torch.no_grad():
        end = sim.rollout(start, leg.repeat(2000, 1, 4), checkpoint=2000, check=True)[-1]
        contacts = sim.contacts(end, leg.repeat(1, 4))[0]
    weight = 9.81 * dog.compute_total_mass().item()
    for contact in contacts:
        print(f"  {contact.shapes[0]}: {contact.force[2]:.2f} N upward")
    share = sum(contact.force[2] for contact in contacts) / weight
    print(f"the four feet carry {share:.5f} of the weight, {weight:.2f} N, at a height of {end.q[0, 2].item():.4f} m")
    return share, abs(end.q[0, 2].item() - goal)


if __name__ == "__main__":
    main()
