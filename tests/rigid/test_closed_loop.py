"""`sim.step` again and again, which repeats a launch, against a rollout, which does not."""

import copy
import dataclasses
import pickle
import threading

import pytest
import torch

import pullback as pb

F64 = torch.float64
STEPS = 30


@pytest.fixture(scope="module")
def sim() -> pb.Sim:
    """Return a driven double pendulum beside a box that falls onto the ground."""
    world = pb.World()
    world.add(pb.load("pendulum2", dtype=F64), position=(0.0, 0.0, 1.0), actuators=pb.Torque(), collision_links=[])
    world.add_box("box", size=(0.1, 0.1, 0.1), mass=1.0, position=(2.0, 0.0, 0.055))
    world.add_ground(friction=0.5)
    return world.compile(dt=5e-3, dtype=F64)


def controls(sim, seed=0, batch=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(STEPS, batch, sim.nu, dtype=F64, generator=generator)


def stepped(sim, u, state=None):
    state = sim.initial_state(u.shape[1]) if state is None else state
    for now in u:
        state = sim.step(state, now)
    return state


def loss(state):
    return state.q.square().sum() + state.qd.sin().sum()


def test_steps_are_a_rollout_bit_for_bit(sim):
    u = controls(sim)
    end = sim.rollout(sim.initial_state(2), u)[-1]
    for _ in range(2):
        state = stepped(sim, u)
        assert torch.equal(state.q, end.q)
        assert torch.equal(state.qd, end.qd)


def test_gradient_is_that_of_a_rollout(sim):
    u = controls(sim)
    found = []
    for way in (stepped, lambda sim, u: sim.rollout(sim.initial_state(2), u)[-1]):
        leaf = u.clone().requires_grad_()
        found += torch.autograd.grad(loss(way(sim, leaf)), leaf)
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)


def test_states_that_were_returned_are_not_written_again(sim):
    u = controls(sim)
    state = stepped(sim, u)
    q, qd, code = state.q.clone(), state.qd.clone(), state.status.code
    stepped(sim, u, state)
    assert torch.equal(state.q, q)
    assert torch.equal(state.qd, qd)
    assert code.tolist() == [0, 0]


def test_parameters_that_change_in_between_count():
    world = pb.World()
    world.add_box("box", size=(0.1, 0.1, 0.1), mass=1.0, position=(0.0, 0.0, 1.0))
    sim = world.compile(dt=1e-2, dtype=F64)
    u = torch.zeros(1, 0, dtype=F64)
    state = sim.step(sim.step(sim.initial_state(), u), u)
    world.gravity = torch.tensor([0.0, 0.0, 5.0], dtype=F64)
    up = sim.step(state, u)
    torch.testing.assert_close(up.qd[0, 5] - state.qd[0, 5], torch.tensor(0.05, dtype=F64))
    world.gravity = torch.tensor([0.0, 0.0, 5.0], dtype=F64, requires_grad=True)
    sim.step(up, u).qd[0, 5].backward()
    torch.testing.assert_close(world.gravity.grad, torch.tensor([0.0, 0.0, 0.01], dtype=F64))


def test_other_batches_and_layouts_in_between(sim):
    u = controls(sim)
    stepped(sim, u)
    one = stepped(sim, u[:, :1])
    spread = torch.stack((u, u), -1).flatten(-2)[..., ::2]
    again = stepped(sim, spread)
    torch.testing.assert_close(again.q[:1], one.q, rtol=0.0, atol=0.0)


def test_what_is_wrong_is_said_as_before_a_loop(sim):
    u = controls(sim)
    state = stepped(sim, u)
    with pytest.raises(pb.PullbackError, match=r"state is a tuple"):
        sim.step((state.q, state.qd), u[0])
    with pytest.raises(pb.PullbackError, match=r"u is \(2, 7\)"):
        sim.step(state, torch.zeros(2, 7, dtype=F64))
    with pytest.raises(pb.PullbackError, match=r"starts cold"):
        sim.step(pb.State(state.q, state.qd, torch.zeros(2, 5, dtype=F64)), u[0])
    with pytest.raises(pb.PullbackError, match=r"controls is not finite"):
        sim.step(state, torch.full_like(u[0], torch.nan))


def test_states_from_a_loop_are_copied_stored_and_changed(sim):
    u = controls(sim)
    state = stepped(sim, u)
    after = sim.step(state, u[0])
    for copied in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert torch.equal(sim.step(copied, u[0]).q, after.q)
    wide = torch.stack((state.q, state.q), -1)[..., 0]
    assert torch.equal(sim.step(dataclasses.replace(state, q=wide), u[0]).q, after.q)
    with pytest.raises(pb.PullbackError, match=r"q \(2, 3\)"):
        sim.step(dataclasses.replace(state, q=state.q[:, :3]), u[0])


def test_transforms_and_second_derivatives(sim):
    u = controls(sim)
    state = stepped(sim, u).detach()

    def end(control):
        return sim.step(state, control).qd.sum(0)

    jacobian = torch.func.jacrev(end)(u[0])
    expected = torch.autograd.functional.jacobian(end, u[0])
    torch.testing.assert_close(jacobian, expected, rtol=1e-12, atol=1e-14)
    leaf = u[0].clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(sim.step(state, leaf)), leaf, create_graph=True)
    with pytest.raises(pb.SecondDerivativeError):
        first.sum().backward()


def test_threads_have_launches_of_their_own(sim):
    inputs = [controls(sim, seed) for seed in range(4)]
    expected = [sim.rollout(sim.initial_state(2), u)[-1].q for u in inputs]
    found: list[torch.Tensor | None] = [None] * len(inputs)

    def work(k):
        found[k] = stepped(sim, inputs[k]).q

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(found, expected):
        assert torch.equal(one, other)


def test_the_first_step_of_all_may_be_in_a_transform():
    world = pb.World()
    world.add_box("box", size=(0.1, 0.1, 0.1), mass=1.0, position=(0.0, 0.0, 1.0))
    sim = world.compile(dt=1e-2, dtype=F64)
    state = sim.initial_state()

    def after(qd):
        return sim.step(pb.State(state.q, qd)).qd[0]

    first = torch.func.jacrev(after)(state.qd)
    u = torch.zeros(1, 0, dtype=F64)
    for _ in range(3):
        state = sim.step(state, u)
    assert torch.isfinite(first).all()
    assert state.qd[0, 5].item() == pytest.approx(-9.81 * 0.03)
