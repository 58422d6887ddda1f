"""The task drape: a cloth's stiffness from its fall."""

import torch

from pullback.tasks.common.least_squares import LeastSquares
from pullback.tasks.drape import GOAL, NOISE, TRUTH, Options, run


def test_stiffness_is_found(tmp_path):
    # of the five seeds, the one whose guess is worst; fitted to all moments at once it ends elsewhere
    found = run(Options(iterations=6, guesses=1, seed=4, out=tmp_path))
    truth = torch.tensor(list(TRUTH.values()), dtype=torch.float64)
    off = (found.numbers[:, 0, :2] / truth[:2] - 1.0).abs()
    assert float(off[0].max()) > 1.0
    assert float(off[-1].max()) < GOAL
    assert float(found.losses[-1, 0]) < 1.2 * 3**0.5 * NOISE
    assert (tmp_path / "drape.png").stat().st_size > 10_000
    assert (tmp_path / "drape.html").stat().st_size > 100_000


def test_least_squares_side_by_side_resumes_with_the_same_bits():
    t = torch.linspace(0.0, 2.0, 9, dtype=torch.float64)

    def see(z):
        return z[:, :1].exp() * torch.sin(z[:, 1:].exp() * t)

    truth = torch.tensor([[0.3, 0.1], [-0.2, 0.5], [0.0, 0.0]], dtype=torch.float64)
    start = truth + torch.tensor([[0.4, -0.3], [-0.5, 0.2], [0.1, 0.3]], dtype=torch.float64)
    whole, half = (LeastSquares(see, see(truth), start) for _ in range(2))
    for _ in range(4):
        half.iterate()
    rest = LeastSquares(see, see(truth), start)
    rest.load_state(half.state())
    for _ in range(8):
        whole.iterate()
    while rest.done < 8:
        rest.iterate()
    assert torch.equal(whole.z, rest.z)
    torch.testing.assert_close(whole.z, truth, rtol=0.0, atol=1e-6)
    # a problem alone takes the same steps
    alone = LeastSquares(see, see(truth[1:2]), start[1:2])
    for _ in range(8):
        alone.iterate()
    torch.testing.assert_close(alone.z[0], whole.z[1], rtol=0.0, atol=1e-12)
