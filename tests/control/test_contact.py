"""iLQR through contact: a sled pushes a ball, with and without impulses that a warm start keeps, in both precisions."""

import pytest
import torch

import pullback as pb
from pullback.control import ControlCost, FramePose, Problem
from pullback.control.ilqr.ilqr import ilqr
from tests.control.scenes import JOINT, LINK, SPREAD, load_urdf

TARGET = 0.5


def pusher(contact):
    """A ball that a sled with a ball in front can push along x, nothing else."""
    ball = '<collision><geometry><sphere radius="0.1"/></geometry></collision></link>'
    links = "".join(LINK.format(name=n, mass=1, spread=SPREAD) for n in ("rail", "sled"))
    links = links[: -len("</link>")] + ball
    joint = JOINT.format(
        name="x", type="prismatic", lower=-10, upper=10, parent="rail", child="sled", axis="1 0 0", xyz="0 0 0"
    )
    world = pb.World(gravity=(0, 0, 0), contact=contact)
    world.add(load_urdf(links + joint), name="sled", actuators=pb.Torque(limit=float("inf")))
    world.add_sphere("ball", radius=0.1, mass=0.5, position=(0.2, 0, 0))
    return world


@pytest.mark.parametrize("warm", [False, True])
def test_push_a_ball(warm):
    sim = pusher(pb.PGS(iterations=30, warm_start=warm)).compile(dt=0.02, dtype=torch.float64)
    state = sim.initial_state(2)
    state.q[1, 0] = 0.0005
    goal = FramePose("ball", (TARGET, 0.0, 0.0))
    problem = Problem(sim, state, 30, 1e-3 * ControlCost(), 100.0 * goal, lower=-20.0, upper=20.0)
    found = ilqr(problem, torch.full((30, 1, 1), 0.5, dtype=torch.float64), iterations=30)
    assert (found.states.impulses is not None) == warm
    assert (found.states.q[-1, :, 1] - TARGET).abs().max() < 0.02
    assert found.states.q[-1, :, 0].min() > 0.05
    again = sim.rollout(state, found.controls)
    assert (again.q - found.states.q).abs().max() < 1e-9


@pytest.mark.slow
def test_single_precision():
    sim = pusher(pb.PGS(iterations=30)).compile(dt=0.02, dtype=torch.float32)
    problem = Problem(sim, sim.initial_state(), 30, 1e-3 * ControlCost(), 100.0 * FramePose("ball", (TARGET, 0, 0)))
    found = ilqr(problem, torch.full((30, 1, 1), 0.5), tolerance=1e-5)
    assert found.controls.dtype == torch.float32
    assert (found.states.q[-1, :, 1] - TARGET).abs().max() < 0.02
