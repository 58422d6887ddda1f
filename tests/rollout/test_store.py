"""States on a disk and in the host's memory: the same gradient as in the device's memory; errors say what to do."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.core.errors import PullbackError
from pullback.rollout.store import DiskStore, open_store
from tests.thermal.cases import wall


@pytest.mark.parametrize("checkpoint", [pb.OnDisk(), pb.OnDisk(pb.Every(7)), pb.OnDisk(pb.Binomial(5)), pb.OnHost()])
def test_gradients_have_the_same_bits_as_with_states_in_memory(checkpoint):
    process = wall(duration=0.6)

    def gradient(kept):
        power = torch.full((process.steps,), 250.0, dtype=torch.float64, requires_grad=True)
        process.run(power, checkpoint=kept).final.square().mean().backward()
        return power.grad

    assert torch.equal(gradient(checkpoint), gradient(1))


def test_a_disk_returns_what_it_was_given_in_any_order(tmp_path):
    like = torch.zeros(1000, dtype=torch.float64)
    store = DiskStore(20, like, tmp_path)
    states = torch.rand(20, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for slot, state in enumerate(states):
        store.write(slot, state)
    order = [*range(19, -1, -1), *np.random.default_rng(1).permutation(20).tolist(), 3, 3, 4]
    for slot in order:
        assert torch.equal(store.read(slot), states[slot])
    assert list(tmp_path.iterdir()) == [], "the file has no name"


def test_no_room_is_an_error_that_says_how_much_is_needed(tmp_path):
    with pytest.raises(PullbackError, match=r"states cannot be kept in .*000 of them are .* GB: give a folder"):
        open_store(pb.OnDisk(folder=tmp_path), 10**12, torch.zeros(10**6))
    with pytest.raises(PullbackError, match="states cannot be kept"):
        open_store(pb.OnDisk(folder=tmp_path / "nowhere"), 10, torch.zeros(10))


def test_rollouts_of_robots_refuse_a_disk():
    world = pb.World()
    world.add(pb.load("cart_pole"), name="cart")
    sim = world.compile(dt=0.01)
    with pytest.raises(PullbackError, match=r"only thermal\.Process keeps states on a disk"):
        sim.rollout(sim.initial_state(1), torch.zeros(4, 1, sim.nu), checkpoint=pb.OnDisk())
