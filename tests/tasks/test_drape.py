"""The task drape: a cloth's stiffness from its fall."""

import torch

from pullback.tasks.drape import TRUTH, Options, run


def test_numbers_come_nearer(tmp_path):
    found = run(Options(iterations=6, guesses=1, out=tmp_path))
    truth = torch.tensor(list(TRUTH.values()), dtype=torch.float64)
    off = (found.numbers[:, 0, :2] / truth[:2]).log().abs()
    assert float(off[-1].max()) < float(off[0].max())
    assert float(found.losses[-1, 0]) < 0.5 * float(found.losses[0, 0])
    assert (tmp_path / "drape.png").stat().st_size > 10_000
    assert (tmp_path / "drape.html").stat().st_size > 100_000
