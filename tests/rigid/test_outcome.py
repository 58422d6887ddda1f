"""What is said, and when, of steps that are not solved and of worlds that are not finite."""

import warnings

import pytest
import torch

import pullback as pb
from checks.random_worlds import draw
from tests.rigid.test_room import cubes
from tests.rigid.worlds import F64


def told(function, *args, **options) -> tuple[object, list[str]]:
    """Return a result and the simulation warnings on the way to it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **options)
    return result, [str(w.message) for w in caught if issubclass(w.category, pb.SimulationWarning)]


def test_backward_warns_once_of_steps_that_are_not_solved():
    """Eighteen cubes have more rows in play than the exact solver has a budget for."""
    sim = cubes(3, 2).compile(dt=1e-3, dtype=F64)
    state = sim.initial_state(2)
    state.qd.requires_grad_()
    states, said = told(sim.rollout, state, 2)
    assert not said
    assert states.status.first_unconverged.tolist() == [0, 0]
    _, said = told(torch.autograd.grad, states.q[-1].sum() + states.qd[-1].sum(), state.qd)
    assert len(said) == 1
    assert "is not solved in 2 substeps of world 0, the first of them in step 0 (2 such worlds" in said[0]
    _, said = told(torch.autograd.grad, sim.rollout(state, 2).q[-1].sum(), state.qd)
    assert not said


def test_sweeps_that_were_asked_for_are_not_warned_of():
    world = cubes(2, 1)
    world.contact = pb.PGS(iterations=2, finish=False)
    sim = world.compile(dt=1e-3, dtype=F64)
    state = sim.initial_state()
    state.qd.requires_grad_()
    states = sim.rollout(state, 2)
    assert int(states.status.unconverged) > 0
    assert not told(torch.autograd.grad, states.q[-1].sum(), state.qd)[1]


def arm(damping: float) -> pb.Sim:
    world = pb.World()
    world.add(pb.load("pendulum3"), name="arm", actuators=pb.VelocityServo(kd=damping))
    return world.compile(dt=1e-3, dtype=F64, damping="explicit")


def test_a_world_that_is_not_finite_is_told_once_with_the_joint_and_a_step_that_would_do():
    sim = arm(2e4)
    state = sim.initial_state(2)
    state.qd[1] = 1.0
    _, said = told(sim.rollout, state, 400)
    assert len(said) == 1
    assert "became not finite in step" in said[0]
    assert "need substeps below" in said[0]
    assert "damping='implicit'" in said[0]
    assert not told(sim.rollout, state, 400)[1]
    assert not told(arm(2e4).rollout, state, 400, check=False)[1]
    with pytest.raises(pb.PullbackError, match="became not finite"):
        sim.rollout(state, 400, check=True)
    # half of the step that is named settles, a longer one does not
    limit = float(said[0].split("below ")[1].split(" s")[0])
    for factor, settles in ((0.5, True), (1.3, False)):
        other = sim.world.compile(dt=factor * limit, dtype=F64, damping="explicit")
        speed = other.rollout(state, 15, check=False).qd[-1, 1].abs().max()
        assert bool(speed < 2.0) == settles
        assert bool(speed > 10.0) != settles


def test_too_fast_is_told():
    sim = arm(0.0)
    state = sim.initial_state()
    state.qd[0, 0] = 1e200
    (text,) = told(sim.rollout, state, 3)[1]
    assert "starts at 1e+200 rad/s" in text


# -- energy from nothing ---------------------------------------------------------------------------------------------


def gaining() -> tuple[pb.Sim, pb.State]:
    """Return sixteen limp trees, of which two turn by a third of a radian a step and gain energy by it."""
    drawn = draw(90, kind="passive", worlds=16, steps=100)
    drawn.world.contact = pb.PGS()
    return drawn.world.compile(dt=0.02, dtype=F64), pb.State(drawn.state.q.double(), drawn.state.qd.double())


def tumbling(speed: float, **options) -> tuple[pb.Sim, pb.State]:
    """Return three limp dogs in space, the last of which tumbles, its legs flung about."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add(pb.load("laikago"), name="dog")
    sim = world.compile(dt=1e-2, dtype=F64, **options)
    state = sim.initial_state(3)
    state.qd[-1] = torch.linspace(-speed, speed, sim.nv, dtype=F64)
    return sim, state


def test_a_passive_world_that_gains_energy_is_told_once_with_the_step_and_what_turns_too_fast():
    sim, state = gaining()
    states, said = told(sim.rollout, state, 100)
    assert states.status.code.nonzero().flatten().tolist() == [4, 7]
    assert states.status.code[[4, 7]].tolist() == [8, 8]
    assert len(said) == 1
    assert "world 4 is not driven and gained" in said[0]
    assert "in a step, more than its joints can follow: dt=" in said[0]
    again, said = told(sim.rollout, state, 100)
    assert not said
    assert torch.equal(again.status.code, states.status.code)


def test_energy_is_not_watched_where_it_was_not_asked_for():
    sim, state = gaining()
    states, said = told(sim.rollout, state, 100, check=False)
    assert not said
    assert not (states.status.code & 8).any()
    assert not told(sim.rollout, state, 20)[1]


@pytest.mark.parametrize(("speed", "substeps"), [(1.0, 10), (15.0, 1)])
def test_dogs_that_tumble_gain_nothing(speed, substeps):
    sim, state = tumbling(speed, substeps=substeps)
    states, said = told(sim.rollout, state, 60)
    assert not said
    assert states.status.code.tolist() == [0, 0, 0]


def test_odd_types_and_checks_are_refused_by_name():
    world = pb.World()
    world.add_sphere("ball", radius=0.1, mass=1.0)
    odd = torch.zeros(2, 3)
    with pytest.raises(pb.PullbackError, match=r"a world computes in torch.float32 or torch.float64"):
        world.compile(dt=1e-3, dtype=odd)
    sim = world.compile(dt=1e-3)
    with pytest.raises(pb.PullbackError, match=r"give True, False or None"):
        sim.rollout(sim.initial_state(), 2, check=odd)
