"""Find the friction of a floor from how a box slid over it, from several guesses at once.

Each guess is a world of its own: friction has one value a world. The recording has noise of a millimetre. With a guess
that is too low the box slides on, with one that is too high it stops early; either way there is a gradient.
"""

import torch

import pullback as pb

DT, STEPS, TRUTH = 2e-3, 300, 0.21
GUESSES = (0.05, 0.1, 0.3, 0.5)


def slide(sim: pb.Sim, worlds: int) -> torch.Tensor:
    """Return where the box is, x [m] at every step, (STEPS + 1, worlds)."""
    start = sim.initial_state(batch=worlds)
    start.qd[:, 3] = 1.0
    return sim.rollout(start, STEPS).q[:, :, 0]


def main(epochs: int = 30) -> torch.Tensor:
    """Return the friction found from each guess, (4,)."""
    generator = torch.Generator().manual_seed(0)
    world = pb.World()
    world.add_ground(friction=TRUTH)
    world.add_box("box", size=(0.2, 0.2, 0.05), mass=1.0, position=(0.0, 0.0, 0.025))
    sim = world.compile(dt=DT, dtype=torch.float64)
    with torch.no_grad():
        clean = slide(sim, 1)
    recorded = clean + 1e-3 * torch.randn(clean.shape, dtype=torch.float64, generator=generator)

    # the logarithm is learned, so that friction stays above zero
    logarithm = torch.tensor(GUESSES, dtype=torch.float64).log().requires_grad_()
    optimizer = torch.optim.Adam([logarithm], lr=0.2, betas=(0.5, 0.9))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        optimizer.zero_grad()
        friction = logarithm.exp()
        # a value computed anew has to be set anew
        world.set_shape("ground", friction=friction)
        errors = (slide(sim, len(GUESSES)) - recorded).square().mean(0)
        # the worlds do not know of each other, so one sum gives each its own gradient
        errors.sum().backward()
        optimizer.step()
        schedule.step()
        if epoch % 10 == 0 or epoch == epochs - 1:
            off = [f"{1e3 * e:.2f}" for e in errors.detach().sqrt().tolist()]
            print(f"epoch {epoch:2d}: friction {[round(m, 4) for m in friction.tolist()]}, off by {', '.join(off)} mm")
    return logarithm.detach().exp()


if __name__ == "__main__":
    main()
