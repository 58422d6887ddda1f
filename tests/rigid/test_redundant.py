"""More contacts than it takes to carry a body, without the softness that would share the load."""

import numpy as np
import torch

import pullback as pb
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
