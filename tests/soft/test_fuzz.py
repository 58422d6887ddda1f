"""A million random particle-steps: nothing that is not a number without saying so, no particle lost in silence."""

import numpy as np
import pytest
import torch

import pullback.soft as soft


def random_scene(rng):
    """Return a simulation of one to three bodies of random material, shape, speed and walls, and a state."""
    dim = int(rng.integers(2, 4))
    dtype = torch.float64 if rng.random() < 0.5 else torch.float32
    low = np.zeros(dim)
    kinds = ["stick", "slip", "separate", "open"]
    domain = soft.Domain(low, low + 1.0, float(rng.uniform(0.03, 0.12)), friction=float(rng.choice([0.0, 0.5, 5.0])))
    sides = {side: str(rng.choice(kinds)) for side in domain.names()}
    ramp = soft.Wall(tuple(rng.standard_normal(dim)), float(rng.uniform(-0.5, 0.2)), str(rng.choice(kinds[:3])), 0.3)
    domain = soft.Domain(low, low + 1.0, domain.cell, sides=sides, friction=domain.friction, walls=[ramp])
    bodies = []
    for k in range(int(rng.integers(1, 4))):
        youngs = float(10.0 ** rng.uniform(1, 6))
        poisson, viscosity = float(rng.uniform(-0.2, 0.49)), float(rng.choice([0.0, 1.0]))
        given = {"density": float(10.0 ** rng.uniform(1, 4)), "viscosity": viscosity}
        stiff = {"youngs": youngs, "poisson": poisson, **given}
        material = [
            lambda stiff=stiff: soft.Elastic(**stiff),
            lambda stiff=stiff: soft.Elastic(model="fixed_corotated", **stiff),
            lambda youngs=youngs, given=given: soft.Fluid(bulk=youngs, **given),
            lambda stiff=stiff, youngs=youngs: soft.Plastic(
                yield_stress=youngs * float(10.0 ** rng.uniform(-4, 0)), **stiff
            ),
            lambda stiff=stiff: soft.Sand(friction_angle=float(rng.uniform(0.05, 1.4)), **stiff),
        ][int(rng.integers(5))]()
        centre = rng.uniform(0.2, 0.8, dim)
        size = rng.uniform(0.02, 0.19, dim)
        count = int(rng.integers(1, 80))
        points = centre + size * rng.uniform(-1, 1, (count, dim))
        muscles = (
            {"actuator": int(rng.integers(-1, 2)), "fibre": rng.standard_normal(dim)} if rng.random() < 0.5 else {}
        )
        volume = float(np.prod(2.0 * size) / count)
        bodies.append(soft.Body(f"body {k}", points, volume, material, **muscles))
    sim = soft.SoftSim(domain, bodies, dt=1e-12, gravity=10.0 * rng.standard_normal(dim), dtype=dtype, threads=2)
    sim = soft.SoftSim(
        domain, bodies, dt=sim.stable_dt * float(rng.uniform(0.1, 0.99)), gravity=sim.gravity, dtype=dtype
    )
    # one set of kernels for each dimension and type
    sim.variant = sim.variant._replace(kinds=(0, 1, 2, 3, 4))
    state = sim.state()
    speed = float(10.0 ** rng.uniform(-3, 0.3)) * domain.cell / sim.dt
    velocity = speed * rng.standard_normal(dim) + 0.3 * speed * rng.standard_normal(state.v.shape)
    return sim, state.replace(v=torch.as_tensor(velocity).to(state.v))


def run_random(count, seed):
    """Return particle-steps, rollouts that failed and that did not."""
    rng = np.random.default_rng(seed)
    done, failed, held = 0, 0, 0
    for _ in range(count):
        sim, state = random_scene(rng)
        x = state.x.clone().requires_grad_()
        actuation = (
            torch.as_tensor(1e3 * rng.standard_normal((60, sim.actuators))).to(state.v) if sim.actuators else None
        )
        run = sim.rollout(state.replace(x=x), 60, actuation=actuation, frames=7, check=False)
        done += 60 * sim.particles
        if bool(run.failed):
            failed += 1
            assert run.final.x.isnan().all()
            continue
        held += 1
        for part in (run.x, run.v, run.final.C, run.final.F, run.final.history):
            assert part.isfinite().all()
        # a gradient that is not finite is an error of its own
        torch.autograd.grad(run.final.x.sum(), x)
        reach = 3.5 * sim.domain.cell
        assert (run.x >= -reach).all()
        assert (run.x <= 1.0 + reach).all()
    return done, failed, held


def test_random_scenes():
    done, failed, held = run_random(25, 0)
    assert done > 10_000
    assert failed > 0
    assert held > 10


@pytest.mark.slow
def test_a_million_random_particle_steps():
    done = 0
    for seed in range(1, 8):
        done += run_random(40, seed)[0]
    assert done > 1_000_000
