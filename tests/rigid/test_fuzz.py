"""A short fuzz of the simulator, and that its checks notice what they are for: docs/fuzz.md has the long one."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch

import pullback as pb
from checks.fuzz import check_steps, examine
from checks.fuzz_checks import Findings, check_distances, check_flags, contacts_of, is_same, side_by_side
from checks.fuzz_laws import check_laws
from checks.random_extras import EXTRAS
from checks.random_worlds import KINDS, draw
from pullback.rigid.state import Status

pytestmark = pytest.mark.filterwarnings("ignore")
SEEDS = {"flight": (2, 3), "passive": (4, 8), "driven": (8, 11), "chaos": (9, 13), "crowded": (8, 10), "violent": (5,)}
SEEDS_WITH = {"shapes": 175, "loops": 60, "compliant": 86}
STEPS = 48


@pytest.mark.parametrize("kind", KINDS)
def test_random_worlds(kind):
    findings = Findings()
    with np.errstate(all="ignore"):
        for seed in SEEDS[kind]:
            examine(seed, findings, kind=kind, steps=STEPS)
    assert not findings.broken
    assert findings.checks["other bits from the same seed"] == len(SEEDS[kind])
    if kind in ("passive", "driven", "chaos"):
        assert findings.counts["contacts"] > 500
        assert sum(number for name, number in findings.checks.items() if "balance of momentum" in name) > 700
    if kind == "crowded":
        assert findings.counts["steps with more contacts than room"] > 0
    if kind == "violent":
        assert findings.counts["worlds that became not finite"] > 0


def test_solved_steps_of_a_world_in_float32():
    """Wedged so that impulses are 1,000 times what moves: rounding must not count as solved."""
    findings = Findings()
    with np.errstate(all="ignore"):
        examine(5, findings, kind="driven", steps=STEPS)
    assert not findings.broken


@pytest.mark.parametrize("seed", [5, 17, 80, 93, 148, 347])
def test_worlds_that_were_once_wrong(seed):
    """Sweeps that add energy, from a warm start (5) and from a cold one (93); worlds without softness.

    Those have redundant contacts (80), and a limit that wedges a contact (347). Servos that reach their limits in the
    step in which a contact bounces (17): what it would be without the contact has them at these limits. Servos for
    which friction leaves no set at their limits that is right (148), in a hundredth of the steps, all of them flagged.
    """
    findings = Findings()
    with np.errstate(all="ignore"):
        examine(seed, findings, gradients=seed == 80, plain=True)
    assert not findings.broken
    if seed == 148:
        assert 0 < findings.counts["steps with a servo at a limit against its law"] < 40
    if seed == 93:
        # all steps are solved since
        assert "energy added by contact and joints, other steps, warm start" not in findings.checks
        assert findings.checks["energy added by contact and joints, solved steps"] > 1000


def test_a_gradient_too_large_for_float32_is_an_error():
    """Sweeps that do not converge and double the gradient each, step after step."""
    drawn = draw(226, plain=True, worlds=16, steps=128)
    # as stiff as can be: no finish, no bounds on the way out of a penetration, explicit dampers
    rough = replace(drawn.world.contact, finish=False, max_push_speed=inf, max_limit_speed=inf)
    drawn.world.contact = rough
    sim = drawn.world.compile(dt=drawn.sim.dt, dtype=drawn.sim.dtype, substeps=drawn.sim.substeps, damping="explicit")
    q = drawn.state.q.clone().requires_grad_()
    states = sim.rollout(replace(drawn.state, q=q), drawn.controls[:20])
    loss = states.q[-1].sum()
    assert loss.isfinite()
    with pytest.raises(pb.GradientError, match=r"gradient of the rollout is not finite in .* each sweep may double"):
        torch.autograd.grad(loss, q, retain_graph=True)
    with pytest.raises(pb.GradientError) as caught:
        torch.autograd.grad(loss, q, retain_graph=True)
    assert (states.status.unconverged[caught.value.worlds] > 0).all()
    (part,) = torch.autograd.grad(1e-30 * loss, q)
    assert part.isfinite().all()
    assert part[caught.value.worlds].abs().max() > 1e-30 * 1e30


@pytest.mark.parametrize(("feature", "seed"), SEEDS_WITH.items())
def test_random_worlds_with(feature, seed):
    findings = Findings()
    with np.errstate(all="ignore"):
        examine(seed, findings, steps=STEPS)
    assert not findings.broken
    assert findings.counts[f"worlds with {EXTRAS[feature]}"] == 16
    wanted = {"loops": "solved steps: loops that open", "compliant": "solved steps: force of a spring"}
    if feature in wanted:
        assert findings.checks[wanted[feature]] > 300


def test_extras_leave_other_seeds_alone():
    first, plain = (draw(5, worlds=2, plain=plain) for plain in (False, True))
    assert not first.extras
    assert is_same(first.state.q, plain.state.q)
    assert is_same(first.controls, plain.controls)
    assert draw(SEEDS_WITH["loops"], worlds=1).extras == ("loops",)
    assert draw(SEEDS_WITH["loops"], worlds=1, plain=True).extras == ()


def test_a_seed_is_a_world():
    first, again, other = draw(5, worlds=3), draw(5, worlds=3), draw(6, worlds=3)
    assert is_same(first.state.q, again.state.q)
    assert is_same(first.controls, again.controls)
    assert first.describe() == again.describe() != other.describe()


# -- the checks can fail ---------------------------------------------------------------------------------------------


def steps_of(seed: int, kind: str):
    """Return a world, its steps side by side, their flags and contacts."""
    drawn = draw(seed, kind=kind, steps=STEPS)
    states = drawn.sim.rollout(drawn.state, drawn.controls, check=False)
    steps = side_by_side(drawn, states)
    drawn.spread(steps.index)
    again = drawn.sim.step(steps.state, steps.u, check=False)
    assert again.status is not None
    contacts = contacts_of(drawn.sim, drawn.sim.contacts(steps.state, steps.u))
    return drawn, states, steps, again.status.code.numpy(), contacts


def test_laws_notice_a_wrong_velocity():
    drawn, _, steps, code, contacts = steps_of(8, "passive")
    findings = Findings()
    steps.after.qd[100] += 1e-6
    check_laws(drawn, steps, code, contacts, findings)
    assert "eq. (1): balance of momentum" in findings.broken


def test_laws_notice_servos_that_follow_something_else():
    drawn, _, steps, code, contacts = steps_of(6, "driven")
    steps.u[:] *= 1.0 + 1e-4
    findings = Findings()
    check_laws(drawn, steps, code, contacts, findings)
    assert "eq. (1): balance of momentum" in findings.broken


def test_laws_notice_bounces_that_are_too_low():
    drawn, _, steps, code, contacts = steps_of(8, "passive")
    for shape in [shape for item in drawn.world.items for shape in item.shapes]:
        if shape.restitution is not None:
            drawn.world.set_shape(shape.name, restitution=1.02 * shape.restitution)
    findings = Findings()
    check_laws(drawn, steps, code, contacts, findings)
    assert "solved steps: pressed and leaving" in findings.broken


def test_laws_notice_loops_that_open():
    drawn, _, steps, code, contacts = steps_of(SEEDS_WITH["loops"], "passive")
    steps.after.qd[100:200] += 1e-3
    findings = Findings()
    check_laws(drawn, steps, code, contacts, findings)
    assert "eq. (1): balance of momentum" in findings.broken
    assert "solved steps: loops that open" in findings.broken


def test_laws_notice_springs_that_push_too_hard():
    drawn, _, steps, code, contacts = steps_of(SEEDS_WITH["compliant"], "chaos")
    contacts.force[:] *= 1.0 + 1e-5
    findings = Findings()
    check_laws(drawn, steps, code, contacts, findings)
    assert "solved steps: force of a spring" in findings.broken


def test_laws_notice_energy_and_forces_that_pull_or_leave_the_cone():
    drawn, _, steps, code, contacts = steps_of(8, "passive")
    findings = Findings()
    pressed = np.abs(contacts.force).max(1) > 0
    contacts.force[pressed] *= -1.0
    check_laws(drawn, steps, code, contacts, findings)
    assert "force that pulls" in findings.broken
    assert any(name.startswith("friction beyond the") for name in findings.broken)
    findings = Findings()
    steps.after.qd[:] *= 1.001
    check_laws(drawn, steps, code, contacts, findings)
    assert "eq. (3): energy of free bodies" in findings.broken


def test_distances_notice_a_contact_that_is_missing_or_moved():
    drawn, _, steps, code, contacts = steps_of(8, "passive")
    laws = check_laws(drawn, steps, code, contacts, Findings())
    findings = Findings()
    contacts.gap[:] += 1e-6
    check_distances(drawn, laws.poses, contacts, len(steps), findings)
    assert any(name.startswith("gap") for name in findings.broken)
    findings = Findings()
    fewer = type(contacts)(*(x[1:] for x in vars(contacts).values()))
    check_distances(drawn, laws.poses, fewer, len(steps), findings)
    assert any(name.startswith("number of contacts") for name in findings.broken)
    findings = Findings()
    fewer = type(contacts)(*(x[contacts.row != contacts.row[0]] for x in vars(contacts).values()))
    check_distances(drawn, laws.poses, fewer, len(steps), findings)
    assert any(name.startswith("contact missing") for name in findings.broken)


def test_flags_that_are_missing_are_noticed():
    drawn, states, *_ = steps_of(5, "violent")
    assert (states.status.code & 1).any()
    findings = Findings()
    check_flags(drawn, replace(states, status=Status(torch.zeros(drawn.worlds, 4), 1)), findings)
    assert "not finite without a flag" in findings.broken


def test_other_bits_are_noticed():
    drawn, states, *_ = steps_of(8, "passive")
    drawn.spread(torch.arange(drawn.worlds))
    findings = Findings()
    check_steps(drawn, replace(states, qd=states.qd + 1e-15 * (states.qd != 0)), findings)
    assert "other bits in another batch" in findings.broken
