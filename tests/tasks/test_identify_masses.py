"""The task identify-masses finds what the data can tell, says what it cannot, and survives being stopped."""

import signal

import pytest
import torch

import pullback as pb
from pullback.core.interrupt import gentle_interrupt
from pullback.tasks import identify_masses
from pullback.tasks.identify_masses import Options, run, standard_error

# a least-squares estimate lies within this many standard errors of the truth, but for one seed in ten thousand or so
SIGMAS = 4.5


@pytest.mark.parametrize("motion", ["torque", "sine"])
def test_it_finds_the_masses_to_the_accuracy_it_states(tmp_path, motion):
    found = run(Options(motion=motion, samples=500, out=tmp_path))
    seen = found.standard_error.isfinite()
    deviation = ((found.learned - found.true) / found.standard_error)[seen].abs()
    assert deviation.max() < SIGMAS
    assert found.losses[-1] < 1.2e-4  # the noise alone gives 1e-4
    strong = found.uncertainty < 0.01
    assert strong.sum() >= 5
    assert found.error[strong].max() < 0.03


def test_the_bolted_link_is_reported_as_unseen_not_hidden(tmp_path, capsys):
    found = run(Options(samples=200, epochs=3, out=tmp_path))
    assert found.links[0] == "iiwa_link_0"
    assert not found.interrupted
    assert torch.isinf(found.standard_error[0])
    assert found.learned[0] == pytest.approx(found.start[0].item())
    text = capsys.readouterr().out
    assert "no effect" in text
    assert "not converged" in text
    assert str(tmp_path) in text.replace("\n", "")


def test_it_writes_a_picture_and_a_robot_with_the_learned_masses(tmp_path):
    found = run(Options(samples=200, epochs=3, out=tmp_path / "new" / "folder"))
    assert found.picture is not None
    assert found.picture.read_bytes().startswith(b"\x89PNG")
    assert found.urdf is not None
    learned = pb.load(found.urdf, dtype=torch.float64)
    masses = torch.stack([learned.get_link_param(name, "mass") for name in found.links])
    torch.testing.assert_close(masses, found.learned)


def test_stopped_by_the_user_it_keeps_what_was_reached_and_still_reports(tmp_path, monkeypatch, capsys):
    calls = []
    predict = identify_masses.predict

    def impatient(*arguments):
        calls.append(1)
        if len(calls) == 8:
            signal.raise_signal(signal.SIGINT)
        return predict(*arguments)

    monkeypatch.setattr(identify_masses, "predict", impatient)
    found = run(Options(samples=200, out=tmp_path))
    assert found.interrupted
    assert 0 < len(found.losses) < 8
    assert found.picture is not None
    assert found.picture.is_file()
    assert "stopped after" in capsys.readouterr().out
    assert min(found.losses) < 0.5 * found.losses[0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_stops_at_once():
    with gentle_interrupt() as stop:
        assert not stop
        signal.raise_signal(signal.SIGINT)
        assert stop
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_robot_without_masses_is_refused(tmp_path):
    file = tmp_path / "empty.urdf"
    file.write_text('<robot name="empty"><link name="a"/></robot>')
    with pytest.raises(pb.PullbackError, match=r"no link of .* has a mass; there is nothing to find"):
        run(Options(robot=str(file), out=tmp_path))


def test_the_same_seed_gives_the_same_masses(tmp_path):
    first, second = (run(Options(samples=100, epochs=2, seed=3, out=tmp_path)) for _ in range(2))
    torch.testing.assert_close(first.learned, second.learned, rtol=0.0, atol=0.0)
    assert not torch.equal(first.start, run(Options(samples=100, epochs=2, seed=4, out=tmp_path)).start)


def test_the_standard_error_is_that_of_repeated_experiments():
    # estimate one mass in closed form from many noisy recordings: tau is linear in it
    robot = pb.load("pendulum1", dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    clean = pb.sine_motion(robot, samples=100, dt=0.05, generator=generator)
    mass = robot.get_link_param("link0", "mass")
    sides = []
    for factor in (1.0, 2.0):
        robot.set_link_param("link0", "mass", factor * mass)
        sides.append(robot.compute_inverse_dynamics(clean.q, clean.qd, clean.qdd))
    slope = (sides[1] - sides[0]) / mass
    robot.set_link_param("link0", "mass", mass)
    estimates, stated = [], []
    for _ in range(300):
        noise = 0.1 * clean.tau.std(0) * torch.randn(clean.tau.shape, dtype=torch.float64, generator=generator)
        data = pb.MotionData(clean.q, clean.qd, clean.qdd, clean.tau + noise)
        estimates.append(mass + (slope * noise).sum() / slope.square().sum())
        if len(stated) < 10:
            stated.append(standard_error(robot, ["link0"], data, "sine"))
    spread = torch.stack(estimates).std()
    torch.testing.assert_close(torch.stack(stated).mean(), spread, rtol=0.15, atol=0.0)
