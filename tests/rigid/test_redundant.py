"""More contacts than it takes to carry a body, without the softness that would share the load."""

import numpy as np
import torch

import pullback as pb
from pullback.rigid.solvers.rows_kernels import SMALL
from pullback.spatial.rotations_torch import rotate
from tests.rigid.worlds import F64

G = 9.81


def test_boxes_without_softness_stay_finite_and_keep_their_momentum():
    """Their eight corners are redundant, and Newton's steps meet singular systems."""
    world = pb.World(gravity=(0.0, 0.0, -G), contact=pb.PGS(cfm=0.0))
    world.add_ground(friction=0.5)
    for name, place in (("low", (0, 0, 0.05)), ("high", (0.05, 0.01, 0.15))):
        world.add_box(name, size=(0.3, 0.2, 0.1), mass=1.0, position=place)
    sim = world.compile(dt=1e-3, dtype=F64)
    state = sim.initial_state(4)
    state.qd[:, 3:6] = 0.3 * torch.randn(4, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    for _ in range(50):
        push = [sum(np.array(c.force) for c in found if "ground" in c.shapes) for found in sim.contacts(state)]
        after = sim.step(state)
        before, gained = (
            rotate(s.q.view(4, 2, 7)[..., 3:], s.qd.view(4, 2, 6)[..., 3:]).sum(1) for s in (state, after)
        )
        expected = 1e-3 * (torch.from_numpy(np.array(push)) + torch.tensor([0, 0, -2 * G], dtype=F64))
        torch.testing.assert_close(gained - before, expected, rtol=0, atol=1e-12)
        state = after


SPEEDS = (0.5, 0.0, 1.0, -0.2, 0.3)


def sliding_boxes(numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Slide boxes that are far from each other, by few sweeps and Newton's steps; return where to, and two gradients.

    They are those of the boxes' final velocities in their first ones, and in their frictions.
    """
    world = pb.World(gravity=(0.0, 0.0, -G), contact=pb.PGS(iterations=5))
    world.add_ground(friction=1.0)
    frictions = torch.tensor([0.3 + 0.1 * k for k in numbers], dtype=F64).requires_grad_()
    for k, friction in zip(numbers, frictions, strict=True):
        place = (0.0, 3.0 * k, 0.0499)
        world.add_box(f"box {k}", size=(0.3, 0.2, 0.1), mass=1.0 + k, position=place, friction=friction)
    sim = world.compile(dt=1e-3, dtype=F64)
    state = sim.initial_state()
    state.qd.view(-1, 6)[:, 3] = torch.tensor([SPEEDS[k] for k in numbers], dtype=F64)
    state.qd.requires_grad_()
    states = sim.rollout(state, torch.zeros(20, 1, 0, dtype=F64))
    assert int(states.status.unconverged.sum()) == 0
    weights = torch.linspace(1.0, 2.0, 6, dtype=F64).repeat(len(numbers))
    adj_qd, adj_frictions = torch.autograd.grad((weights * states.qd[-1]).sum(), (state.qd, frictions))
    return states.q[-1].detach().view(-1, 7), adj_qd.view(-1, 6), adj_frictions


def test_bodies_that_do_not_touch_are_as_each_alone():
    """Sixty rows, twelve a box: an island each for Newton's steps and for the adjoint."""
    assert 12 * len(SPEEDS) > 2 * int(SMALL)
    together = sliding_boxes(list(range(len(SPEEDS))))
    assert together[0][:, 0].abs().max() > 5e-3
    for k in range(len(SPEEDS)):
        for found, alone in zip(together, sliding_boxes([k]), strict=True):
            torch.testing.assert_close(found[k], alone[0], rtol=1e-8, atol=1e-8)


def gradients_of_sliding(dtype: torch.dtype, contact: pb.PGS | None = None) -> torch.Tensor:
    """Return gradients (200, 6), by the first velocity, of 20 steps of boxes that slide on four corners."""
    world = pb.World(contact=contact)
    world.add_ground(friction=0.5)
    world.add_box("box", size=(0.2, 0.3, 0.1), mass=1.0, position=(0, 0, 0.0499), friction=0.4)
    sim = world.compile(dt=2e-3, substeps=5, dtype=dtype)
    start = sim.initial_state(200)
    drawn = torch.randn(200, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    # what float32 can hold, so that both types start at the same
    speeds = (drawn * torch.tensor([0.02, 0.02, 0.3, 0.5, 0.5, 0.02])).float().to(dtype).requires_grad_()
    states = sim.rollout(pb.State(start.q, speeds, start.impulses), torch.zeros(20, 200, 0, dtype=dtype))
    weights = torch.linspace(0.5, 1.5, 6, dtype=dtype)
    return torch.autograd.grad((weights * states.qd[-1]).sum() + states.q[-1, :, :3].sum(), speeds)[0].double()


def test_single_precision_shares_a_load_as_double_does():
    """By the softness that it has by default; by 1e-6 rounding shares it, and one gradient in six is another."""
    true = gradients_of_sliding(F64)
    wrong = [
        int(((found - true).norm(dim=1) > 0.1 * true.norm(dim=1)).sum())
        for found in (gradients_of_sliding(torch.float32), gradients_of_sliding(torch.float32, pb.PGS(cfm=1e-6)))
    ]
    # 9 and 33
    assert wrong[0] <= 14
    assert wrong[1] > 2 * wrong[0]


def test_the_default_softness_is_that_of_the_type_and_the_heaviest():
    world = pb.World()
    world.add_ground()
    for name, mass in (("light", 0.5), ("heavy", 20.0)):
        world.add_sphere(name, radius=0.1, mass=mass, position=(0, 0, mass))
    assert world.compile(dt=1e-3, dtype=F64).cfm == 1e-6
    assert world.compile(dt=1e-3, dtype=torch.float32).cfm == 1e-4 / 20.0
    huge, tiny, given = pb.PGS().cfm_for(1e4, double=False), pb.PGS().cfm_for(0.0, double=False), pb.PGS(cfm=0.0)
    assert (huge, tiny, given.cfm_for(1.0, double=False)) == (1e-6, 1e-3, 0.0)
