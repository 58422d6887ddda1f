"""Steps that are computed again are computed alike: gradients do not depend on what was kept, to the last bit."""

from dataclasses import replace

import pytest
import torch

import pullback as pb
from checks.random_worlds import draw
from tests.rigid.test_room import SIDE

SCHEDULES = (1, 7, pb.Binomial(3))


def gradients(sim: pb.Sim, state: pb.State, controls: torch.Tensor) -> list[torch.Tensor]:
    """Return the gradient by state and controls, one row, under each schedule."""
    found = []
    for schedule in SCHEDULES:
        leaves = [x.clone().requires_grad_() for x in (state.q, state.qd, controls)]
        states = sim.rollout(
            replace(state, q=leaves[0], qd=leaves[1]), leaves[2], checkpoint=schedule, check=False
        )  # fmt: skip
        good = states.status.code & 1 == 0
        loss = states.q[-1, good].square().sum() + states.qd[-1, good].square().sum()
        found.append(torch.cat([x.flatten() for x in torch.autograd.grad(loss, leaves)]))
    return found


@pytest.mark.parametrize("seed", [5, 14, 19])
def test_random_worlds_whose_steps_are_not_solved(seed):
    """Where rounding decides most; single and double, warm and cold, swept to the end and not."""
    drawn = draw(seed, worlds=4, steps=23, plain=True)
    first, *others = gradients(drawn.sim, drawn.state, drawn.controls)
    assert first.abs().max() > 0
    for other in others:
        assert torch.equal(other, first)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_stack(dtype):
    world = pb.World()
    world.add_ground()
    for k in range(3):
        world.add_box(f"cube{k}", size=(SIDE,) * 3, mass=1.0, position=(0.01 * k, 0.0, SIDE * (k + 0.5)))
    sim = world.compile(dt=1e-3, dtype=dtype)
    state = sim.initial_state()
    state.qd[0, 15] = 0.3
    first, *others = gradients(sim, state, torch.zeros(25, 1, 0, dtype=dtype))
    assert first.abs().max() > 0
    for other in others:
        assert torch.equal(other, first)
