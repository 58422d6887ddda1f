"""The task throw: the ball is held, let go and ends at its target; gradients get it there, with a real gradient."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.tasks.throw import DEFAULT, NEAR, Options, Thrower, run


@pytest.fixture(scope="module")
def thrower():
    return Thrower("default")


def test_twenty_iterations_hit_the_target_where_cma_es_does_not(tmp_path, capsys):
    found = run(Options(cma_iterations=3, out=tmp_path / "new"))
    assert found.miss < 1e-6
    reached = found.comparison.reached(found.comparison.gradient, NEAR)
    assert reached is not None
    assert reached <= 12
    assert found.comparison.search is not None
    assert found.comparison.search.loss > 1e4 * found.comparison.gradient.loss
    # within what the arm can do
    assert found.torques.abs().max() < 1.0
    assert found.fastest < 1.0
    text = capsys.readouterr().out
    assert "CMA-ES: never below 0.01 m" in text
    assert "below 0.01 m after" in text
    saved = np.load(tmp_path / "new" / "throw.npz")
    assert saved["q"].shape == (451, 16)
    np.testing.assert_allclose(saved["q"][-1, 9:12], DEFAULT.target, atol=1e-6)
    assert saved["u"].shape == (450, 9)
    assert found.picture.read_bytes().startswith(b"\x89PNG")
    assert found.replay is not None
    assert found.replay.stat().st_size > 1e5


def test_the_ball_is_held_until_the_fingers_open_and_flies_freely_then(thrower):
    torques = 0.5 * torch.sin(torch.linspace(0, 6, 450, dtype=torch.float64))[None, :, None].repeat(1, 1, 7)
    with torch.no_grad():
        motion = thrower.sim.rollout(thrower.state, thrower.controls(torques), check=True)
    ball = thrower.ball(motion)[:, 0]
    robot = thrower.sim.world.robots["panda"]
    position, _ = robot.compute_forward_kinematics(motion.q[:251, 0, :9], "panda_hand")
    held = (ball[:251] - position).norm(dim=-1)
    assert (position[250] - position[0]).norm() > 0.02
    torch.testing.assert_close(held, torch.full_like(held, DEFAULT.tip), atol=3e-3, rtol=0.0)
    # from well after the release on: a parabola
    bend = ball[270:].diff(n=2, dim=0) / DEFAULT.dt**2
    torch.testing.assert_close(bend, torch.tensor([0.0, 0.0, -9.81]).to(bend).expand_as(bend), atol=1e-6, rtol=0.0)


def test_the_gradient_is_that_of_the_throw(thrower):
    generator = torch.Generator().manual_seed(1)
    knots = torch.randn(1, 7, 10, dtype=torch.float64, generator=generator)
    smooth = torch.nn.functional.interpolate(knots, 450, mode="linear").transpose(1, 2)
    point, way = 0.3 * smooth.tanh(), smooth.flip(1) / 10
    torques = point.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(thrower.loss(torques).sum(), torques)
    step = 1e-5
    with torch.no_grad():
        ahead, back = thrower.loss(torch.cat([point + step * way, point - step * way]))
    assert (gradient * way).sum().item() == pytest.approx(((ahead - back) / (2 * step)).item(), rel=1e-4)


def test_the_released_variant_runs_on_its_own_numbers(tmp_path):
    found = run(Options(variant="released", iterations=2, cma_iterations=0, out=tmp_path))
    assert found.motion.q.shape[0] == 1001
    assert found.comparison.search is None
    # near weightlessness: what is not touched falls 5 cm in 10 s
    thrower = Thrower("released")
    with torch.no_grad():
        still = thrower.sim.rollout(thrower.state, thrower.controls(thrower.rest()))
    assert thrower.ball(still)[-1, 0, 2].item() - thrower.ball(still)[0, 0, 2].item() == pytest.approx(-0.051, abs=2e-3)
    assert (tmp_path / "throw_released.png").is_file()


def test_what_makes_no_throw_is_refused():
    with pytest.raises(pb.PullbackError, match="iterations is 0; give at least 1"):
        run(Options(iterations=0, cma_iterations=0))
    with pytest.raises(pb.PullbackError, match="cma_iterations is -1"):
        run(Options(cma_iterations=-1))
