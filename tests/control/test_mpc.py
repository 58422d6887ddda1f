"""Replanning on a plant that is not the model."""

import signal

import pytest
import torch

import pullback as pb
from pullback.control import ControlCost, Problem, StateCost
from pullback.control.ilqr.ilqr import ilqr
from pullback.control.ilqr.mpc import mpc
from pullback.core.errors import PullbackError
from tests.control.scenes import pendulum, sleds

REAL = torch.float64
TARGET = pb.State(torch.tensor([2.2, 0.4], dtype=REAL), torch.zeros(2, dtype=REAL))


def heavy_pendulum(dt):
    """The pendulum with links that are a third heavier than the model believes."""
    arm = pb.load("pendulum2", dtype=REAL)
    for body in arm.model.bodies:
        link = body.joint.child
        for name in ("mass", "inertia_mat"):
            arm.set_link_param(link, name, 1.33 * arm.get_link_param(link, name).detach())
    world = pb.World()
    world.add(arm, name="arm", actuators=pb.Torque(limit=float("inf")))
    return world.compile(dt=dt, dtype=REAL)


def reaching(batch=1):
    sim = pendulum()
    running = StateCost(TARGET, (10.0, 10.0, 0.1, 0.1)) + 1e-4 * ControlCost()
    return Problem(sim, sim.initial_state(batch), 30, running, 100.0 * StateCost(TARGET), lower=-150.0, upper=150.0)


def test_replanning_beats_the_plan():
    problem, plant = reaching(), heavy_pendulum(0.02)
    drive = mpc(problem, plant, 60)
    plan = ilqr(problem)
    blind = plant.rollout(plant.initial_state(), torch.cat([plan.controls, plan.controls[-1:].expand(30, -1, -1)]))
    miss = (drive.q[-1] - TARGET.q).abs().max()
    assert miss < 0.15
    assert miss < 0.2 * (blind.q[-1] - TARGET.q).abs().max()
    assert drive.q.shape == (61, 1, 2)
    assert drive.controls.abs().max() <= 150.0
    assert len(drive.planning) == 60
    assert drive.duration == pytest.approx(1.2)
    assert drive.real_time_factor > 0.0
    assert "times real time" in str(drive)


def test_plant_with_shorter_steps_and_rarer_plans():
    problem, plant = reaching(batch=2), heavy_pendulum(0.01)
    drive = mpc(problem, plant, 60, replan_every=3)
    assert drive.controls.shape == (120, 2, 2)
    assert len(drive.planning) == 20
    assert (drive.q[:, 0] - drive.q[:, 1]).abs().max() < 1e-6
    assert (drive.q[-1] - TARGET.q).abs().max() < 0.15


def test_on_its_own_model_the_plan_comes_true():
    problem = reaching()
    drive = mpc(problem, problem.sim, 5, replan_every=5, first_iterations=60)
    plan = ilqr(problem, iterations=60)
    assert (drive.q[:, 0] - plan.states.q[:6, 0]).abs().max() < 1e-8


def test_ctrl_c_while_planning_ends_the_drive():
    calls = []

    def impatient(iteration, costs):
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)

    problem = reaching()
    drive = mpc(problem, problem.sim, 40, first_iterations=2, callback=impatient)
    assert drive.interrupted
    assert len(drive.planning) == 3
    assert len(drive.controls) == 3


def test_moving_target():
    """`update` gives the problem of each plan."""
    sim = sleds()

    def towards(step, problem):
        goal = pb.State(torch.tensor([0.02 * step, 0.0], dtype=REAL), torch.zeros(2, dtype=REAL))
        return Problem(sim, problem.state, 10, StateCost(goal, (10.0, 10.0, 0.1, 0.1)) + 1e-3 * ControlCost())

    first = towards(0, Problem(sim, sim.initial_state(), 10, ControlCost()))
    drive = mpc(first, sim, 60, update=towards)
    assert drive.q[-1, 0, 0].item() == pytest.approx(0.02 * 60, abs=0.15)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"plant": "sleds"}, "same coordinates and controls"),
        ({"plant": "odd"}, "no multiple"),
        ({"steps": 0}, "give 1 step or more"),
        ({"replan_every": 31}, "within the horizon of 30"),
    ],
)
def test_bad_input(change, words):
    plants = {"sleds": sleds_of_three, "odd": lambda: heavy_pendulum(0.013)}
    problem = reaching()
    plant = plants[change["plant"]]() if "plant" in change else problem.sim
    options = {"steps": 5} | {k: v for k, v in change.items() if k != "plant"}
    with pytest.raises(PullbackError, match=words):
        mpc(problem, plant, **options)


def sleds_of_three():
    world = pb.World()
    world.add(pb.load("pendulum3"), name="arm")
    return world.compile(dt=0.02, dtype=REAL)


def test_a_plant_beyond_its_stops_is_planned_for():
    sim = sleds(lower=-1.0, upper=1.0)
    problem = Problem(sim, sim.initial_state(), 10, StateCost() + ControlCost())
    beyond = pb.State(torch.full((1, 2), 1.01, dtype=REAL), torch.zeros(1, 2, dtype=REAL))
    drive = mpc(problem, sim, 5, state=beyond)
    assert drive.q[-1].abs().max() < 1.01
    with pytest.raises(PullbackError, match="outside its limits -1 to 1"):
        Problem(sim, beyond, 10, StateCost())
