"""Steps that are split at a touch, and their adjoint, against the plain torch of tests/reference/split.py."""

from functools import partial

import pytest
import torch

import pullback as pb
from tests.reference.split import split_rollout
from tests.reference.step import Ball, Pair, Settings
from tests.rigid import test_step_reference as unsplit
from tests.rigid.test_step_reference import (
    ball_bounces,
    balls_collide,
    pendulum_at_its_limits,
    pendulum_locked,
    weighted,
)
from tests.rigid.worlds import F64

STATES = 1e-10
GRADIENTS = 1e-7


def ball_lands(cone):
    """A plastic impact with friction; the ball then slides."""
    return unsplit.ball(cone, 0.1 + 0.0054, unsplit.leaf(3.0, -2.0, 1.0, 0.5, -0.2, -1.0), 0.1, 0.0, 9)


def explicit_settings(cone, dt=1e-3):
    return Settings(dt=dt, sweeps=unsplit.SWEEPS, cone=cone, implicit=False)


CASES = [
    (ball_bounces, True),
    (ball_bounces, False),
    (ball_lands, True),
    (balls_collide, True),
    (pendulum_at_its_limits, True),
    (pendulum_locked, True),
]


@pytest.mark.parametrize(("case", "cone"), CASES, ids=lambda x: {True: "cone", False: "pyramid"}.get(x) or x.__name__)
def test_states_and_gradients_agree_with_the_reference(case, cone, monkeypatch):
    """Unrolled sweeps: their impacts are not told what they give way by."""
    monkeypatch.setattr(unsplit, "rollout", split_rollout)
    monkeypatch.setattr(unsplit, "settings", explicit_settings)
    compare(case(cone))


@pytest.mark.parametrize("case", [ball_bounces, ball_lands, balls_collide, pendulum_at_its_limits])
def test_impacts_are_refined(case, monkeypatch):
    """The softness is so large that a ball of 2 kg would sink at 2e-6 of the speed it comes down at."""
    monkeypatch.setattr(unsplit, "rollout", partial(split_rollout, told=True))
    monkeypatch.setattr(unsplit, "settings", lambda cone, dt=1e-3: explicit_settings(cone, dt)._replace(cfm=1e-3))
    monkeypatch.setattr(unsplit, "solver", lambda cone: pb.PGS(tolerance=1e-14, cfm=1e-3))
    compare(case(True))


def compare(case):
    """Compare states and gradients of a case with those of the reference."""
    sim = case.world.compile(dt=case.dt, dtype=F64, damping="explicit", impacts="split")
    controls = case.leaves["u"][:, None] if "u" in case.leaves else case.steps
    trajectory = sim.rollout(pb.State(case.leaves["q"][None], case.leaves["qd"][None]), controls, check=True)
    found, expected = (trajectory.q[:, 0], trajectory.qd[:, 0]), case.reference(case.leaves)
    for name, a, b in zip(("q", "qd"), found, expected):
        worst = float((a - b).detach().abs().max())
        assert worst < STATES, f"{name} differs by {worst:.1e}"
    leaves = list(case.leaves.values())
    gradients = [torch.autograd.grad(weighted(*x), leaves, allow_unused=True) for x in (found, expected)]
    for name, a, b in zip(case.leaves, *gradients):
        if name.endswith("inertia_mat"):
            # a change of an inertia is symmetric
            a, b = a + a.T, b + b.T
        b = torch.zeros_like(a) if b is None else b
        worst = float((a - b).abs().max() / (1.0 + b.abs().max()))
        assert worst < GRADIENTS, f"the gradient of {name} differs by {worst:.1e}: {a} instead of {b}"


def test_the_reference_knows_billiards():
    """A ball that hits another obliquely gives it v c (c, s), wherever it started on its line."""
    r = torch.tensor(0.1, dtype=F64)
    zero = torch.zeros((), dtype=F64)
    tree = unsplit.Tree(
        "balls",
        [unsplit.Link("root"), *(unsplit.Link(n, 1.0, inertia=4e-3 * unsplit.np.eye(3)) for n in "ab")],
        [unsplit.Joint(f"{n}_joint", "floating", "root", n) for n in "ab"],
    )
    model = unsplit.compile_tree(tree)
    pairs = [Pair(*(Ball(model.link_index[n], torch.zeros(3, dtype=F64), r) for n in "ab"), zero, zero + 1.0)]
    x = torch.tensor([-0.1853, 0.0], dtype=F64, requires_grad=True)
    still = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=F64)
    q = torch.cat([x, zero[None], still, torch.tensor([0.0, 0.08, 0.0], dtype=F64), still])
    qd = torch.zeros(12, dtype=F64)
    qd[3] = 1.0
    options = {"gravity": torch.zeros(3, dtype=F64), "settings": Settings(dt=4e-3, cfm=0.0), "pairs": pairs}
    _, qds = split_rollout(model, unsplit.description_parameters(model), q, qd, 3, **options)
    s = 0.4
    c = (1.0 - s * s) ** 0.5
    assert qds[-1, 9:11].tolist() == pytest.approx([c * c, c * s], abs=1e-12)
    by_x = torch.stack([torch.autograd.grad(v, x, retain_graph=True)[0] for v in qds[-1, 9:11]])
    assert by_x.flatten().tolist() == pytest.approx([0.0, 2.0 * s / 0.2, 0.0, -(c * c - s * s) / c / 0.2], abs=1e-9)
