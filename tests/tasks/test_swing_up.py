"""The task swing-up: tips reach the top, another engine agrees, and the energy audit adds up."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.tasks.common.swing_systems import audit, cart_pole, pendulum
from pullback.tasks.swing_up import Options, drive, first_controls, run, solve

MASSES = (1.0, 2.16, 2.16)
INERTIAS = (0.00494875, 0.00539427, 0.00539427)


def chain_energy(q: np.ndarray, qd: np.ndarray) -> float:
    """Return the energy of a pendulum of three links from the positions and speeds of its masses, written out."""
    angle, spin = np.cumsum(q), np.cumsum(qd)
    total, place, speed = 0.0, np.zeros(2), np.zeros(2)
    for k, (mass, inertia) in enumerate(zip(MASSES, INERTIAS)):
        place = place + 0.5 * np.array([np.cos(angle[k]), np.sin(angle[k])])
        speed = speed + 0.5 * spin[k] * np.array([-np.sin(angle[k]), np.cos(angle[k])])
        total += 0.5 * mass * speed @ speed + 0.5 * inertia * spin[k] ** 2 + mass * 9.8 * place[1]
    # the body at the tip
    return total + 0.5 * 0.01 * speed @ speed + 0.5 * 0.0001 * spin[-1] ** 2 + 0.01 * 9.8 * place[1]


def test_the_audit_compares_the_energy_of_the_masses_with_force_times_way():
    system = pendulum(3)
    sim = system.compile(1, "cpu")
    generator = torch.Generator().manual_seed(1)
    controls = 5.0 * torch.randn(30, 2, 3, dtype=torch.float64, generator=generator)
    motion = sim.rollout(sim.initial_state(2), controls)
    found = audit(sim, motion, controls)
    q, qd = motion.q.numpy(), motion.qd.numpy()
    energy = np.array([[chain_energy(q[t, w], qd[t, w]) for w in range(2)] for t in range(31)])
    np.testing.assert_allclose(found.gained.numpy(), energy - energy[0], rtol=1e-10, atol=1e-10)
    work = np.stack([controls[t].numpy() * (q[t + 1] - q[t]) for t in range(30)]).sum((0, 2))
    np.testing.assert_allclose(found.work[-1].numpy(), work, rtol=1e-10)
    np.testing.assert_allclose((found.gained - found.work).numpy(), found.numerical.numpy())


def test_what_steps_add_vanishes_with_their_length():
    system = pendulum(2)
    added = []
    for substeps in (8, 16, 32):
        sim = system.compile(substeps, "cpu")
        controls = torch.full((30, 1, 2), 4.0, dtype=torch.float64)
        added.append(audit(sim, sim.rollout(sim.initial_state(), controls), controls).numerical[-1, 0].item())
    # a method of first order
    assert added[0] / added[1] == pytest.approx(2.0, rel=0.2)
    assert added[1] / added[2] == pytest.approx(2.0, rel=0.1)


def test_the_return_is_the_sum_of_rewards():
    system = pendulum(2)
    q = torch.randn(6, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q[0] = 0.0
    left = system.distance2(q)[:, 0]
    rewards = left[:-1] - left[1:]
    rewards[-1] -= left[-1]
    assert system.returns(q).item() == pytest.approx(rewards.sum().item())
    q[-1] = torch.tensor([np.pi / 2, 0.0])
    assert system.returns(q).item() == pytest.approx(system.maximum) == pytest.approx(2.0)


FINE = 64
"""Substeps of a control in which no link turns by 0.25 rad."""


@pytest.mark.parametrize(("links", "substeps"), [(2, 1), (3, 1), (2, 8)])
def test_the_tip_reaches_the_top_and_mujoco_agrees(links, substeps):
    system = pendulum(links)
    swing = solve(system, system.compile(substeps, "cpu"), starts=8, iterations=60, seed=0)
    assert swing.share >= 0.99
    assert swing.controls.abs().max() <= 10.0
    # one substep is a plain Euler step, as MuJoCo's; with more only short ones are: long ones keep the trees' energy
    fine = 1 if substeps == 1 else FINE
    sim = system.compile(fine, "cpu")
    total = system.returns(sim.rollout(sim.initial_state(), swing.controls[:, :1]).q).item()
    assert by_mujoco(links, fine, swing.controls[:, 0].numpy()) == pytest.approx(total, abs=1e-4)
    if substeps == 8:
        # motors did nearly all of it
        assert abs(swing.ends(swing.energy.numerical)) < 0.05 * swing.ends(swing.energy.gained)


def by_mujoco(links: int, substeps: int, controls: np.ndarray) -> float:
    """Return what the controls earn in MuJoCo, whose Euler steps are the same for joints without damping."""
    mujoco = pytest.importorskip("mujoco")
    body = '<inertial pos="0 0.5 0" mass="{}" diaginertia="{} {} {}"/><joint type="hinge" axis="1 0 0"/>'
    first = body.format(1.0, 0.00494875, 0.00494174, 0.002219)
    other = body.format(2.16, 0.00539427, 0.0048979, 0.00311573)
    inner = '<body pos="0 0.5 0"><inertial pos="0 0 0" mass="0.01" diaginertia="1e-4 1e-4 1e-4"/></body>'
    for _ in range(links - 1):
        inner = f'<body pos="0 0.5 0">{other}{inner}</body>'
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="{1 / 60 / substeps}" gravity="0 0 -9.8" integrator="Euler"/>'
        f"<worldbody><body>{first}{inner}</body></worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    for row in controls:
        data.qfrc_applied[:] = row
        for _ in range(substeps):
            mujoco.mj_step(model, data)
    mujoco.mj_forward(model, data)
    tip, top = data.xpos[-1], np.array([0.0, 0.0, 0.5 * links])
    return 0.5 * links**2 - 2.0 * float((tip - top) @ (tip - top))


def test_first_controls_are_seeded_bounded_and_stay_finite():
    system = pendulum(7)
    sim = system.compile(1, "cpu")
    first = first_controls(system, sim, 8, seed=3)
    torch.testing.assert_close(first, first_controls(system, sim, 8, seed=3), rtol=0.0, atol=0.0)
    assert not torch.equal(first, first_controls(system, sim, 8, seed=4))
    assert first.shape == (100, 8, 7)
    end = sim.rollout(sim.initial_state(8), first)[-1]
    assert end.q.abs().max() < 1e3
    assert end.qd.abs().max() < 1e3


def test_the_pole_stands_up_on_its_cart():
    system = cart_pole()
    swing = solve(system, system.compile(1, "cpu"), starts=4, iterations=60, seed=0)
    x, angle = swing.states.q[-1, 0].tolist()
    assert abs(x) < 0.01
    assert abs(np.degrees(angle)) < 1.0
    assert swing.states.qd[-1].abs().max() < 0.05
    assert swing.controls.abs().max() <= 20.0


def test_planning_on_the_way_swings_up_a_heavier_pole():
    found = drive("cpu", steps=150)
    assert abs(np.degrees(found.q[-1, 0, 1].item())) < 5.0
    assert found.q[0, 0, 1].item() == pytest.approx(np.pi)
    assert found.controls.abs().max() <= 20.0
    assert found.real_time_factor > 0.0


def test_a_run_reports_the_energy_and_leaves_its_files(tmp_path, capsys):
    options = Options(links=1, substeps=(1, 2), starts=4, iterations=20, generations=3, out=tmp_path / "new")
    found = run(options)
    text = capsys.readouterr().out
    assert "numerical" in text
    assert "CMA-ES, 1 substep" in text
    assert "20 iterations" in text or "10 iterations" in text
    assert [swing.substeps for swing in found.swings] == [1, 2]
    assert all(swing.share > 0.99 for swing in found.swings)
    saved = np.load(tmp_path / "new" / "swing_up.npz")
    assert saved["q"].shape == (101, 1)
    assert saved["u"].shape == (100, 1)
    assert (tmp_path / "new" / "swing_up.png").read_bytes().startswith(b"\x89PNG")
    again = pendulum(1).compile(1, "cpu")
    motion = again.rollout(again.initial_state(), torch.from_numpy(saved["u"])[:, None])
    np.testing.assert_allclose(motion.q[:, 0].numpy(), saved["q"], rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"links": 0}, "links is 0; give at least 1"),
        ({"starts": 0}, "starts is 0; give at least 1"),
        ({"iterations": 0}, "iterations is 0; give at least 1"),
        ({"substeps": ()}, "no substeps are given"),
        ({"substeps": (0,)}, "substeps is 0; give at least 1"),
    ],
)
def test_what_cannot_be_solved_is_refused(options, message):
    with pytest.raises(pb.PullbackError, match=message):
        run(Options(**options))
