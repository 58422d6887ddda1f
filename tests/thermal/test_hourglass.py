"""The published hourglass: its mesh, births and toolpath load, and run with the constants published with them."""

import pytest
import torch

from bench.thermal import published_hourglass


@pytest.fixture(scope="module")
def hourglass():
    # the first elements are born, and the beam is lit, after 1.81 s
    return published_hourglass(dtype=torch.float64, threads=1, dt=0.045, duration=50 * 0.045)


def test_size_and_stable_step(hourglass):
    assert (len(hourglass.mesh.nodes), len(hourglass.mesh.elements)) == (18_438, 15_070)
    # with these constants the bound by elements was found to be 0.049 s
    assert 0.045 < hourglass.stable_dt < 0.05
    full = published_hourglass(dtype=torch.float32)
    assert full.steps == 16_673
    assert full.laser.on.sum() * full.dt == pytest.approx(305.2, abs=0.1)


def test_first_steps_run_and_have_a_gradient(hourglass):
    assert hourglass.steps == 50
    power = torch.full((50,), 200.0, dtype=torch.float64, requires_grad=True)
    history = hourglass.run(power, snapshots=[25, 50])
    # trilinear elements undershoot a little before a steep front
    assert float(history.final.detach().min()) > 295.0
    assert float(history.final.detach().max()) > 400.0
    lit = torch.as_tensor(hourglass.laser.on)
    assert history.ledger.laser == pytest.approx(0.045 * 200.0 * int(lit.sum()), rel=1e-12)
    assert abs(history.ledger.error) < 1e-10
    loss = ((history.snapshots - 300.0) ** 2).sum()
    (g,) = torch.autograd.grad(loss, power)
    assert 5 < int(lit.sum()) < 15
    assert bool((g[lit] > 0).all())
    direction = torch.linspace(1.0, 2.0, 50, dtype=torch.float64)
    with torch.no_grad():
        ends = [((hourglass.run(power + s * 1e-2 * direction, snapshots=[25, 50]).snapshots - 300.0) ** 2).sum()
                for s in (1, -1)]  # fmt: skip
    assert float(g @ direction) == pytest.approx(float(ends[0] - ends[1]) / 2e-2, rel=1e-7)
