"""The task identify-soft: E and nu of a cube from its bounce."""

import torch

from pullback.tasks.identify_soft import GOAL, NOISE, TRUTH, Options, inside, run, slope


def test_both_numbers_are_found(tmp_path):
    found = run(Options(iterations=6, guesses=1, seed=1, out=tmp_path))
    off = (found.numbers[:, 0] / torch.tensor(list(TRUTH.values()), dtype=torch.float64) - 1.0).abs()
    assert float(off[0].min()) > 0.3
    assert float(off[-1].max()) < GOAL
    assert float(found.losses[-1, 0]) < 1.2 * 3**0.5 * NOISE
    assert (tmp_path / "identify_soft.png").stat().st_size > 10_000
    assert (tmp_path / "identify_soft.html").stat().st_size > 100_000
    # an ended run in the same folder is resumed: nothing is left to do
    again = run(Options(iterations=6, guesses=1, seed=1, out=tmp_path))
    assert torch.equal(again.numbers, found.numbers)


def test_slope_is_the_derivative_of_the_numbers():
    z = torch.tensor([[0.3, -1.2], [-2.0, 0.7]], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(inside(z).sum(), z)
    torch.testing.assert_close(slope(z.detach()), expected)
