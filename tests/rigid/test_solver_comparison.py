"""A short version of the page of solvers: what it says of them holds."""

import numpy as np
import pytest

from checks.solver_problems import PROBLEMS
from checks.solvers import SOLVERS, Found, draw, examine, measure_onsets, page, roughness

DROP, SLIDE, STACK, PUSH = PROBLEMS


def all_solvers(problem, points: int = 5) -> dict[str, Found]:
    return {name: examine(problem, contact, points) for name, contact in SOLVERS.items()}


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Found]]:
    return {problem.name: all_solvers(problem) for problem in (DROP, SLIDE, PUSH)}


def test_gradients_are_central_differences(results):
    for found in results.values():
        for name, result in found.items():
            assert result.error < 1e-6, name
            assert result.unconverged == 0 or name == "unrolled"


def test_the_stack_by_springs_converges_and_has_its_gradient():
    result = examine(STACK, SOLVERS["compliant"], 3)
    assert result.unconverged == 0
    assert result.error < 1e-6


def test_a_slide_is_as_long_as_friction_says(results):
    """v² / 2 mu g, but with a pyramid, whose friction is stronger off its axes."""
    way = 0.9**2 / (2 * 0.3 * 9.81)
    for name, result in results["slide"].items():
        if name == "pyramid":
            assert result.motion[-1] < 0.85 * way
        else:
            assert result.motion[-1] == pytest.approx(way, rel=5e-3)


def test_a_bounce_is_a_jolt_or_a_spring(results):
    found = results["drop"]
    assert found["implicit"].forces.max() > 8 * found["compliant"].forces.max()
    # the same momentum: the first contact turns the ball round
    fall = (2 * 9.81 * DROP.chosen) ** 0.5
    assert 1e-3 * found["implicit"].forces[:250].sum() == pytest.approx(1.6 * fall, rel=0.01)
    assert found["compliant"].motion.min() < -5e-3 < found["implicit"].motion.min()


def test_a_push_out_of_reach_has_no_gradient(results):
    for result in results["push"].values():
        assert result.slopes[0] == 0.0
        assert result.slopes[-1] > 0.8


def test_a_gradual_onset_makes_the_gradient_smooth():
    found = measure_onsets(31)
    sharp, _, gradual = (roughness(x.slopes) for x in found.values())
    assert gradual < 0.3 * sharp


def test_the_page_has_a_row_for_each_solver(results):
    text = page(results, {1e-4: results["drop"]["compliant"]})
    for name in SOLVERS:
        assert text.count(f"| {name} |") == 1 + len(results)
    figure = draw(results)
    assert len(figure.axes) == 4 * len(results)
    assert all(np.isfinite(line.get_ydata()).all() for ax in figure.axes for line in ax.lines)
