"""A part of the conformance matrix that is quick: `make conformance` does all of it."""

from dataclasses import replace

import pytest

import pullback as pb
from checks.conformance import (
    AGREE,
    SAME,
    SCHEDULES,
    SETTINGS,
    Result,
    Row,
    default_errors,
    failures,
    judged_by,
    measure,
    modes_of,
    page,
    schedule_differences,
)
from checks.conformance_bounce import BOUNCE, FALL, analytic_bounce, bounce
from checks.conformance_cases import all_cases
from checks.conformance_compliant import compliant_cases

CASES = {case.name: case for case in all_cases()}
COMPLIANT = {case.name: case for case in compliant_cases()}
CONTACT = (
    "revolute, sticking",
    "prismatic, sliding",
    "screw, sliding",
    "screw, impact",
    "ball, impact with restitution",
    "chain, sliding",
    "revolute, joint limit",
    "screw, impact, split",
    "chain, impact with restitution, split",
    "revolute, joint limit, split",
    "chain, dry friction, slipping",
    "free, rolling",
    "free, sliding: capsule on box",
    "free, sliding: cylinder on box",
    "free, sliding: mesh on plane",
    "free, sliding: sphere on dish",
    "free, rolling: sphere on hills",
    "revolute, self-contact",
)


def test_every_case_has_its_own_name():
    assert len({**CASES, **COMPLIANT}) == len(all_cases()) + len(compliant_cases())


@pytest.mark.parametrize("integrator", ["", ", explicit", ", rk4", ", midpoint"])
@pytest.mark.parametrize("joint", ["free", "revolute", "prismatic", "screw", "ball", "chain"])
def test_smooth_motion_agrees_with_central_differences(joint, integrator):
    row = measure(CASES[f"{joint}, none{integrator}"], [("cone", "implicit")], single=False)
    assert row.error < 1e-6
    assert not any(result.kinks for result in row.results.values())


@pytest.mark.parametrize("name", CONTACT)
def test_contact_agrees_with_central_differences(name):
    row = measure(CASES[name], [("cone", "implicit"), ("cone", "unrolled")], single=False)
    assert not failures(row)
    assert row.error < 1e-4
    assert row.modes < AGREE
    assert not any(result.kinks for result in row.results.values())


@pytest.mark.parametrize("name", COMPLIANT)
def test_compliant_contact_agrees_with_central_differences_and_has_no_kinks(name):
    # servos at their limits have a kink of their own where they act at the end of the step
    case = replace(COMPLIANT[name], options={**COMPLIANT[name].options, "damping": "explicit"})
    row = measure(case, modes_of(case), single="box" in name)
    assert not failures(row)
    assert row.error < 1e-5
    assert row.unconverged == 0
    assert not any(result.kinks for result in row.results.values())


def test_a_kink_is_counted_and_not_judged():
    row = measure(CASES["free, exactly touching"], [("cone", "implicit")], single=False)
    assert row.results["q"].kinks > 0
    assert row.results["friction"].kinks == 0
    assert row.error < 1e-4


@pytest.mark.parametrize("name", ["chain, sliding", "chain, none, rk4"])
def test_every_schedule_gives_the_same_gradient(name):
    found = schedule_differences(CASES[name])
    assert found.keys() == SCHEDULES.keys()
    assert max(found.values()) < SAME


@pytest.mark.parametrize("name", ["chain, sliding", "free, sliding: box on box"])
def test_default_settings_are_right_whether_the_solver_converges_or_not(name):
    found = default_errors(CASES[name])
    assert all(found[setting] < judged_by(name, setting) for setting in SETTINGS)
    assert found["implicit, unconverged"] == 0
    assert (found["sweeps, unconverged"] > 0) == (name == "free, sliding: box on box")


@pytest.mark.parametrize("e", [0.5, 0.9])
def test_each_bounce_turns_the_gradient_round_by_the_restitution(e):
    options = {"gravity": 0.0, "height": 0.0505, "speed": -1.0, "e": e}
    assert bounce(1e-3, **options, time=0.2)[1] == pytest.approx(-e, abs=1e-9)
    assert bounce(1e-3, **options, time=0.38, ceiling=0.36)[1] == pytest.approx(e * e, abs=1e-9)


def test_a_bounce_under_gravity_has_the_analytic_gradient():
    expected = analytic_bounce(**FALL)
    errors = [abs(bounce(dt, speed=0.0, **FALL)[1] - expected) for dt in (4e-3, 1e-3, 2.5e-4)]
    assert errors[-1] < 4 * BOUNCE
    assert errors == sorted(errors, reverse=True)


def test_the_analytic_gradient_of_a_full_bounce_is_one():
    t = (2.0 * 0.3 / 9.81) ** 0.5
    assert analytic_bounce(9.81, 0.3, 1.0, 2.0 * t) == pytest.approx(1.0, abs=1e-12)


def test_the_page_says_what_was_missed():
    case = CASES["chain, sliding"]
    row = Row(case, {"q": Result(1e-3, 3, 0), "qd": Result(0.0, 3, 3)}, modes=1e-9, single=1e-4)
    assert failures(row) == ["chain, sliding: 1.0e-03 against central differences, bar 0.0001"]
    text = page([row], {}, {}, [("thrown", -0.4, -0.5, 0.01)])
    assert f"version {pb.__version__}" in text
    assert "**6 derivatives, 3 of them on a kink**" in text
    assert "| chain | sliding | 100 | 1e-03 | 1e-04 | 3 of 6 | 1e-09 | 1e-04 | **missed** |" in text
    assert "| thrown | -0.40000 | -0.50000 | 1e-01 | **missed** |" in text
