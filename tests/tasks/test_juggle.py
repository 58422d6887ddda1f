"""The task juggle: a ball is hit three times and comes to three points."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.tasks.juggle import NEAR, STEPS, Juggler, Options, run


def test_gradients_juggle(tmp_path, capsys):
    found = run(Options(cma_iterations=2, out=tmp_path))
    assert found.miss < NEAR
    assert found.comparison.search is not None
    assert found.comparison.search.loss > 10.0 * found.comparison.gradient.loss
    # the ball falls between the points: it is hit three times
    heights = found.motion.q[:, 0, 4]
    assert all(float(heights[k : k + 280].min()) < 0.15 for k in (0, 280, 560))
    assert "misses by" in capsys.readouterr().out
    assert np.load(tmp_path / "juggle.npz")["q"].shape == (STEPS + 1, 9)
    assert found.picture.read_bytes().startswith(b"\x89PNG")
    assert found.replay is not None


def test_the_gradient_is_that_of_the_motion():
    juggler = Juggler("split")
    way = torch.linspace(0.0, 40.0, juggler.first().numel(), dtype=torch.float64).sin().reshape(juggler.first().shape)
    values = (juggler.first() + 0.02 * way).requires_grad_()
    (gradient,) = torch.autograd.grad(juggler.loss(values).sum(), values)
    step = 1e-7
    with torch.no_grad():
        ahead, back = juggler.loss(torch.cat([values + step * way, values - step * way]))
    assert (gradient * way).sum().item() == pytest.approx(((ahead - back) / (2 * step)).item(), rel=1e-4)


def test_what_cannot_be_juggled_is_refused():
    with pytest.raises(pb.PullbackError, match="iterations is 0"):
        run(Options(iterations=0))
