"""What `make reliability` measures can be measured, a little of it here, and a bar that is missed is called so."""

import sys

import numpy as np
import pytest
import torch

import pullback as pb
from checks import reliability
from checks.children import in_a_child
from checks.reliability_figures import SMALL, Part
from checks.reliability_robots import describe_run, examine, lowest_point
from checks.reliability_worlds import energy_gain, measure_passive, measure_piles, measure_tumbling, pile
from pullback.description.load import read

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="robots run in forked processes"),
]


def quietly(items, title):
    return items


def test_robots():
    found = in_a_child(lambda: examine(read("pendulum2"), "servos"), 120)
    assert found["outcome"] == "read"
    assert found["value"] | {"size": 0.0, "error": 0.0} == {
        "still": False, "finite": True, "overflow": False, "unconverged": False, "exact unconverged": False,
        "gradient": True, "size": 0.0, "error": 0.0,
    }  # fmt: skip
    assert found["value"]["error"] <= 1e-6


def test_a_robot_with_mimic_joints():
    found = in_a_child(lambda: examine(read("panda_gripper"), "servos"), 120)
    assert found["outcome"] == "read", found["text"]
    assert found["value"]["finite"]
    assert found["value"]["gradient"]
    assert found["value"]["error"] <= 1e-6


def test_a_robot_stands_where_its_lowest_point_is():
    world = pb.World()
    world.add(pb.load("laikago", base="floating", dtype=torch.float64), position=(0.0, 0.0, 1.0))
    height = lowest_point(world)
    world.add_ground(height=height)
    sim = world.compile(dt=1e-3, dtype=torch.float64)
    gaps = [contact.gap for contact in sim.contacts(sim.initial_state())[0]]
    assert min(gaps) == pytest.approx(0.0, abs=1e-9)


def test_robots_that_fall_short_are_named():
    part, fine = Part(), {"finite": True, "gradient": True, "error": 1e-9}
    rows = {"a": fine, "b": fine | {"error": 0.3}, "c": {"finite": False, "gradient": False, "error": None}}
    describe_run(part, "limp", rows)
    assert [(figure.found, figure.held) for figure in part.figures] == [
        ("2 of 3", False),
        ("0 of 3", True),
        ("1 of 3; 1 off by more than 10 %", False),
    ]
    assert part.notes == ["limp: c: not finite", "limp: b: gradient off by 3.0e-01 of its largest entry"]


def test_energy_gain_is_relative_to_what_is_in_play():
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add_sphere("ball", radius=0.1, mass=2.0)
    sim = world.compile(dt=1e-3, dtype=torch.float64)
    qd = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    states = sim.rollout(pb.State(sim.initial_state().q, qd), 20)
    assert abs(energy_gain(sim, states)[0]) < 1e-12
    states.qd[-2:] *= 2**0.5
    assert energy_gain(sim, states)[0] == pytest.approx(1.0)
    states.qd[-1] = np.nan
    assert np.isinf(energy_gain(sim, states)[0])


def test_worlds_are_measured():
    for measure in (measure_tumbling, measure_piles, measure_passive):
        part = measure(every=3 * SMALL, progress=quietly)
        assert part.figures
        assert all(figure.found and isinstance(figure.held, bool) for figure in part.figures)
    assert len(pile("cubes").robots) == 27
    assert len(pile("wall").robots) == 16
    assert len(pile("bin").robots) == 9


def test_the_page_marks_what_was_missed():
    before, after = Part(), Part()
    before.add("what", "1", "3", False)
    after.add("what", "1", "2", False)
    after.add("other", "1", "0.5", True)
    text = reliability.page({"piles": before}, {"piles": after})
    assert "| what | 1 | 3 | 2 | **MISSED** |" in text
    assert "| other | 1 |  | 0.5 | held |" in text
