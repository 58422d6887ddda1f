"""A short fuzz of settings, arguments and files, and that its laws notice what they are for: docs/fuzz.md has all."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import pullback as pb
from checks import fuzz_arguments, fuzz_files, fuzz_settings
from checks.children import in_a_child
from checks.fuzz import Options, page
from checks.fuzz_checks import Findings

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked and measured by /proc"),
]
# of each scene and each solver one, in both types
SEEDS = (1, 2, 4, 5, 9, 10, 11, 12, 14, 16)


def test_settings():
    findings = Findings()
    fuzz_settings.fuzz(SEEDS, findings)
    assert not findings.broken
    assert findings.checks["settings: crash"] == len(SEEDS)
    assert findings.checks["settings: other bits alone than in a batch"] >= len(SEEDS) - 1


def test_odd_arguments():
    findings = Findings()
    fuzz_settings.fuzz_calls(range(60), findings)
    assert not findings.broken
    assert findings.counts["calls with odd arguments that were refused"] > 30


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: pb.World(contact=3), "contact is a int; give a solver"),
        (lambda: pb.World().add_ground(name=3), "3 cannot be a name"),
        (lambda: pb.World().add_sphere("b", radius=0.1, mass=1.0, group="x"), "group of 'b' is 'x'; give a whole"),
        (lambda: pb.World().add_sphere("b", radius=0.1, mass=1.0, static=[]), "give True or False"),
        (lambda: pb.World().add_sphere("b", radius=torch.zeros(2, 3).to_sparse(), mass=1.0), "layout"),
        (lambda: pb.World().add_capsule("b", radius=0.1, length=1e308, mass=1.0), "too large"),
        (lambda: pb.World().set_shape(0.5), "0.5 is no name of a shape"),
        (lambda: pb.World().connect(None), "give names of links"),
        (lambda: pb.World().compile(dt=[1e-3]), r"dt is \[0.001\]; give one number"),
        (lambda: pb.PGS(iterations=2**40), "give at most 100,000"),
        (lambda: pb.PGS(warm_start=torch.zeros(3)), "warm_start is .*; give True or False"),
        (lambda: pb.Compliant(stiffness=()), "no number in it"),
        (lambda: pb.load(3), "3 is no robot; give its name"),
        (lambda: pb.load("pendulum999999"), "more than the limit links"),
        (lambda: fuzz_arguments.call_state({"q": [1.0]}), "q of the state is a list; expected a tensor"),
        (lambda: fuzz_arguments.call_linearize({"states": 3}), "states is a int; expected a pb.Trajectory"),
        (lambda: fuzz_arguments.a_sim(max_contacts=10**9), "max_contacts is 1,000,000,000; at most"),
        (lambda: fuzz_arguments.a_sim().initial_state(2**40), "batch is 1099511627776; give at most"),
    ],
)
def test_what_was_once_a_raw_traceback(call, match):
    with pytest.raises(pb.PullbackError, match=match):
        call()


def test_files():
    pytest.importorskip("mujoco")
    pytest.importorskip("meshio")
    findings = Findings()
    fuzz_files.fuzz(range(60), findings)
    assert not findings.broken
    assert findings.counts["files read"] > 5
    assert findings.counts["files refused"] > 20


def test_children_tell_what_became_of_them():
    assert in_a_child(lambda: 3)["value"] == 3
    assert in_a_child(lambda: pb.World(gravity=np.zeros(2)))["outcome"] == "refused"
    assert in_a_child(lambda: 1 / 0)["outcome"] == "raw ZeroDivisionError"
    assert in_a_child(endless, patience=1)["outcome"] == "took more than 1 s"
    assert in_a_child(lambda: len(b"x" * 300_000_000))["megabytes"] > 250


def endless():
    while True:
        pass


def test_the_laws_notice():
    """A world that was moved, heated up or pushed in on the way breaks the laws that say so."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    for k in range(2):
        world.add_box(f"b{k}", size=(0.1, 0.1, 0.1), mass=1.0, position=(0.2 * k, 0.0, 0.0))
    sim = world.compile(dt=1e-3, dtype=torch.float64)
    state = sim.initial_state(2)
    state = replace(state, qd=torch.randn(2, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    drawn = fuzz_settings.RandomWorld(0, "space", world, sim, state, torch.zeros(20, 2, 0, dtype=torch.float64))
    states = sim.rollout(state, drawn.controls)
    good, findings = np.array([True, True]), Findings()
    fuzz_settings.check_space(drawn, states, findings)
    fuzz_settings.check_depth(drawn, states, findings, good)
    fuzz_settings.check_alone(drawn, states, findings)
    assert not findings.broken
    assert fuzz_settings.energy_gain(sim, states).max() < 1e-3

    qd, q = states.qd.clone(), states.q.clone()
    qd[-5:] *= 1.1
    q[-1, :, 7] = 0.05
    wrong = replace(states, qd=qd, q=q)
    fuzz_settings.check_space(drawn, wrong, findings)
    fuzz_settings.check_depth(drawn, wrong, findings, good)
    fuzz_settings.check_alone(drawn, wrong, findings)
    assert len(findings.broken) == 3
    assert fuzz_settings.energy_gain(sim, wrong).min() > 0.1


def test_the_page_has_all_sections():
    findings = Findings()
    findings.check_true("holds", True, "here")
    wrong = Findings()
    wrong.check_true("does not hold", False, "there")
    text = page(findings, 2048, Options(), {"Settings": findings, "Files": wrong})
    assert "## Settings" in text
    assert "| does not hold | 1 | 1 | 0 | **broken** |" in text
    assert "- does not hold: 1 times; there" in text
