"""States, worlds and simulations as torch's users expect them: printed, copied, moved, pickled; mistakes named."""

import copy
import pickle

import pytest
import torch

import pullback as pb
from pullback.core.errors import PullbackError


@pytest.fixture(scope="module")
def sim() -> pb.Sim:
    world = pb.World(contact=pb.PGS(warm_start=True))
    world.add_ground()
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.0, 0.0, 0.3))
    return world.compile(dt=1e-2, dtype=torch.float64)


def test_what_they_print(sim):
    assert repr(sim.world) == "World(1 robots and bodies (ball), 1 static shapes, contact=PGS)"
    state = sim.step(sim.initial_state(batch=2))
    assert repr(state).startswith("State(q=(2, 7), qd=(2, 6), dtype=torch.float64, device=cpu, impulses=")
    assert repr(state.status) == "Status(2 worlds: all well)"
    assert repr(sim.rollout(sim.initial_state(), 3)).startswith("Trajectory(4 states, q=(4, 1, 7)")


def test_states_are_moved_and_copied(sim):
    state = sim.initial_state()
    qd = state.qd.clone().requires_grad_()
    moving = pb.State(state.q, qd, state.impulses)
    twin = moving.clone()
    assert twin.qd is not qd
    twin.qd.sum().backward()
    assert qd.grad is not None
    single = moving.to(torch.float32)
    assert {x.dtype for x in (single.q, single.qd, single.impulses)} == {torch.float32}
    assert not moving.detach().qd.requires_grad
    if not torch.cuda.is_available():
        with pytest.raises(PullbackError, match="this machine has none; leave pin_memory"):
            moving.pin_memory()


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda sim: pickle.loads(pickle.dumps(sim))])
def test_simulations_are_copied_and_pickled(sim, way):
    twin = way(sim)
    state = sim.initial_state()
    for _ in range(30):
        state = sim.step(state)
    again = twin.step(pb.State(state.q, state.qd, state.impulses))
    torch.testing.assert_close(again.q, sim.step(state).q, rtol=0.0, atol=0.0)
    assert repr(twin) == repr(sim)


def test_mistakes_are_named(sim):
    world, arm = pb.World(), pb.load("panda")
    with pytest.raises(PullbackError, match=r"contact is a str; give a solver, such as pb.PGS\(\)"):
        pb.World(contact="pgs")
    with pytest.raises(PullbackError, match=r"q of 'panda' is a list; give a dict by joints' names"):
        world.add(arm, q=[0.0] * 7)
    with pytest.raises(PullbackError, match=r"size of 'box' has shape \(\); expected \(3,\), 3 numbers"):
        world.add_box("box", size=0.1, mass=1.0)
    with pytest.raises(PullbackError, match="kp is -1; it cannot be negative"):
        world.add(arm, actuators=pb.PositionServo(kp=-1.0))
    with pytest.warns(pb.SimulationWarning, match="dt is 1 s.*steps of 1 to 10 ms"):
        sim.world.compile(dt=1.0, dtype=torch.float64)
