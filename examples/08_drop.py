"""Drop a box, a ball and a capsule, look at what touches, and ask how a throw changes where the box ends."""

import torch

import pullback as pb

DT, STEPS = 2e-3, 500


def main() -> float:
    """Print energies, contacts and a gradient, and return how far the gradient is from its difference quotient."""
    # a box on four corners takes more sweeps than there are to converge: differentiate the sweeps that were made
    world = pb.World(contact=pb.PGS(gradient="unrolled"))
    world.add_ground(friction=0.5)
    world.add_box("box", size=(0.2, 0.2, 0.1), mass=1.0, position=(0.0, 0.0, 0.4), orientation=(0.1, 0.1, 0.0, 0.99))
    world.add_sphere("ball", radius=0.1, mass=0.5, position=(0.6, 0.0, 0.5), restitution=0.7)
    world.add_capsule("capsule", radius=0.05, length=0.2, mass=0.5, position=(-0.6, 0.0, 0.4))
    sim = world.compile(dt=DT, dtype=torch.float64)
    print(sim)

    # the box is thrown along x: entries 0 to 2 of its velocity are angular, 3 to 5 linear, in its own axes
    start = sim.initial_state()
    velocity = torch.tensor([0.5, 0.0, 0.0], dtype=torch.float64, requires_grad=True)

    def fall(velocity: torch.Tensor) -> pb.Trajectory:
        qd = torch.cat([torch.zeros(3, dtype=torch.float64), velocity, start.qd[0, 6:]])
        return sim.rollout(pb.State(start.q, qd[None]), STEPS)

    motion = fall(velocity)
    with torch.no_grad():
        for t in range(0, STEPS + 1, 100):
            kinetic, potential = sim.energies(motion[t])
            total = (kinetic + potential).item()
            print(f"t = {t * DT:.1f} s: kinetic {kinetic.item():.3f} J, kinetic + potential {total:.3f} J")

    print("what touches at the end:")
    for contact in sim.contacts(motion[-1].detach())[0]:
        print(
            f"  {' on '.join(contact.shapes)}: gap {1e3 * contact.gap:+.3f} mm, upward force {contact.force[2]:.3f} N"
        )

    # where the box comes to rest, by the velocity it was thrown with, through flight, impact, tumbling and sliding
    x = motion.q[-1, 0, 0]
    (gradient,) = torch.autograd.grad(x, velocity)
    step = 1e-6 * torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    with torch.no_grad():
        difference = (fall(velocity + step).q[-1, 0, 0] - fall(velocity - step).q[-1, 0, 0]) / 2e-6
    print(f"the box ends at x = {x.item():.4f} m; d x / d velocity = {[round(g, 4) for g in gradient.tolist()]} s")
    print(f"along x: adjoint {gradient[0].item():.8f}, difference quotient {difference.item():.8f}")
    return (gradient[0] - difference).abs().item()


if __name__ == "__main__":
    main()
