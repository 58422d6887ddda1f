"""The task golf: the ball is hit, bounces off by half, and ends in the hole."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.tasks.golf import DT, NEAR, Golfer, Options, run


def test_fifty_iterations_hole_the_ball(tmp_path, capsys):
    game = run(Options(cma_iterations=2, out=tmp_path))
    assert game.holed
    assert game.miss < 1e-6
    reached = game.comparison.reached(game.comparison.gradient, NEAR)
    assert reached is not None
    assert reached <= 25
    assert game.comparison.search is not None
    assert game.comparison.search.loss > 1e4 * game.comparison.gradient.loss
    assert game.torques.abs().max() < 1.0
    assert "and is in" in capsys.readouterr().out
    saved = np.load(tmp_path / "golf.npz")
    assert saved["q"].shape == (1001, 9)
    assert saved["u"].shape == (1000, 2)
    assert game.picture.read_bytes().startswith(b"\x89PNG")
    assert game.replay is not None


def test_the_hit_has_a_restitution_of_a_half():
    golfer = Golfer("default")
    with torch.no_grad():
        motion = golfer.sim.rollout(golfer.state, golfer.controls(golfer.rest()), check=True)
    moments = range(560, 600)
    gaps = []
    for contacts in golfer.sim.contacts(pb.State(motion.q[moments, 0], motion.qd[moments, 0])):
        gaps += [c.gap for c in contacts if "club/link1/0" in c.shapes] or [float("nan")]
    speeds = torch.tensor(gaps).diff() / DT
    speeds = speeds[~speeds.isnan()]
    assert -speeds.max() / speeds.min() == pytest.approx(0.5, abs=0.05)
    # the ball lies still on the tee until then
    assert (motion.q[:560, 0, 2:5] - motion.q[0, 0, 2:5]).norm(dim=-1).max() < 1e-5


@pytest.mark.parametrize("variant", ["default", "released"])
def test_the_gradient_is_that_of_the_swing(variant):
    golfer = Golfer(variant)
    way = torch.sin(torch.linspace(0, 3, 1000, dtype=torch.float64))[None, :, None].repeat(1, 1, 2)
    torques = (0.01 * way).requires_grad_()
    (gradient,) = torch.autograd.grad(golfer.loss(torques).sum(), torques)
    step = 1e-7
    with torch.no_grad():
        ahead, back = golfer.loss(torch.cat([torques + step * way, torques - step * way]))
    assert (gradient * way).sum().item() == pytest.approx(((ahead - back) / (2 * step)).item(), rel=1e-3)


def test_the_released_variant_lowers_its_loss(tmp_path):
    game = run(Options(variant="released", iterations=8, cma_iterations=0, out=tmp_path))
    assert game.comparison.gradient.losses[-1] < 0.8 * game.comparison.gradient.losses[0]
    assert not game.holed


def test_what_makes_no_game_is_refused():
    with pytest.raises(pb.PullbackError, match="cma_iterations is -1"):
        run(Options(cma_iterations=-1))
