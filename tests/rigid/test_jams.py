"""Things that jam: friction holds what presses against each other, and impulses are as large as softness allows."""

from typing import Any

import numpy as np
import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64

RADIUS, SPEED = 0.1, 3.0


def wedge(angle: float) -> pb.Sim:
    """Return a ball that rolls in between the ground and a roof that leans over it and meets it at x = 0."""
    surface: dict[str, Any] = {"friction": 1.2, "restitution": 0.6}
    world = pb.World()
    world.add_ground(**surface)
    half = 0.5 * (np.pi - angle)
    world.add_plane("roof", orientation=(0.0, -np.sin(half), 0.0, np.cos(half)), **surface)
    start = (-RADIUS / np.tan(angle / 2) - 0.05, 0.0, RADIUS)
    world.add_sphere("ball", radius=RADIUS, mass=1.0, position=start, **surface)
    return world.compile(dt=5e-3, dtype=F64)


def rolled(sim: pb.Sim, steps: int = 60) -> pb.Trajectory:
    """Return the states of the ball, which rolls towards the edge at first."""
    state = sim.initial_state()
    state.qd[0, 3], state.qd[0, 1] = SPEED, SPEED / RADIUS
    return sim.rollout(state, steps)


def energies(sim: pb.Sim, states: pb.Trajectory) -> torch.Tensor:
    return torch.stack([sum(sim.energies(states[k])) for k in range(len(states))])[:, 0]


@pytest.mark.parametrize("angle", [0.2, 0.5, 0.9])
def test_a_ball_that_bounces_into_a_wedge_gains_nothing(angle):
    """It was thrown 300 to 960 m away: by eq. (5), with an impulse in the step at the start of which another holds."""
    sim = wedge(angle)
    states = rolled(sim)
    energy = energies(sim, states)
    assert (energy <= energy[0] * (1 + 1e-9)).all()
    assert (states.q[1:, 0, :3] - states.q[:-1, 0, :3]).norm(dim=1).max() < 1.01 * SPEED * sim.dt
    assert states.status.code.tolist() == [0]


def test_the_gradient_of_a_step_that_does_not_bounce():
    """That of central differences, and of `linearize`, where the ball strikes the roof."""
    sim = wedge(0.5)
    states = rolled(sim)
    struck = int((states.qd[1:, 0, 3] - states.qd[:-1, 0, 3]).abs().argmax())
    q, qd = states.q[struck].clone(), states.qd[struck].clone()
    # not on the line that nothing takes it off
    qd[0, :] += 1e-3 * torch.arange(1, 7, dtype=F64)
    roof = next(contact for contact in sim.contacts(pb.State(q, qd))[0] if "roof" in contact.shapes)
    moved = (sim.step(pb.State(q, qd)).q - q)[0, :3] @ torch.tensor(roof.normal, dtype=F64)
    assert roof.gap > 1e-3
    assert float(moved) == pytest.approx(-roof.gap, rel=1e-3)  # it may close the gap, no more
    weights = torch.linspace(0.5, 1.5, sim.nv, dtype=F64)

    def loss(qd: torch.Tensor) -> torch.Tensor:
        return (sim.step(pb.State(q.expand(len(qd), -1), qd)).qd * weights).sum(1)

    leaf = qd.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf).sum(), leaf)
    shifts = 1e-6 * torch.eye(sim.nv, dtype=F64)
    slopes = (loss(qd + shifts) - loss(qd - shifts)) / 2e-6
    assert (slopes - gradient[0]).abs().max() < 1e-5 * gradient.abs().max()
    jacobian = sim.linearize(pb.State(q, qd), torch.zeros(1, 1, 0, dtype=F64)).A[0, 0]
    assert torch.allclose(weights @ jacobian[sim.nv :, sim.nv :], gradient[0], rtol=1e-9, atol=1e-9)


def test_a_bounce_beside_nothing_is_as_it_was():
    """A ball that drops on the ground bounces up to e² of its height, from which nothing keeps it."""
    world = pb.World()
    world.add_ground(friction=1.2, restitution=0.9)
    world.add_sphere("ball", radius=RADIUS, mass=1.0, position=(0.0, 0.0, RADIUS + 0.5), restitution=0.9)
    sim = world.compile(dt=1e-3, dtype=F64)
    states = sim.rollout(sim.initial_state(), 700)
    height = states.q[:, 0, 2] - RADIUS
    low = int(height.argmin())
    assert height[low:].max() == pytest.approx(0.81 * 0.5, rel=1e-2)
