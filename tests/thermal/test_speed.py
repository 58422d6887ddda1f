"""The gradient by the speed of the beam, through its positions."""

import pytest
import torch

import pullback as pb
from tests.thermal.cases import wall


def test_as_fast_as_the_path_is_where_the_path_is():
    process = wall()
    for speed in (1.0, torch.ones(process.steps, dtype=torch.float64)):
        positions = process.positions_at(speed)
        assert torch.allclose(positions, torch.as_tensor(process.positions), rtol=0, atol=1e-15)


@pytest.mark.parametrize("each", [False, True], ids=["one speed", "a speed in each step"])
def test_gradient_against_central_differences(each):
    process = wall()
    # not 1, where the beam turns between two steps and the path has a corner
    speed = torch.full((process.steps,) if each else (), 0.983, dtype=torch.float64, requires_grad=True)

    def loss(speed):
        return process.run(300.0, positions=process.positions_at(speed)).final.square().mean()

    (gradient,) = torch.autograd.grad(loss(speed), speed)
    direction = torch.randn(speed.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        plus, minus = (loss(speed + sign * 1e-6 * direction) for sign in (1, -1))
    assert float((gradient * direction).sum()) == pytest.approx(float(plus - minus) / 2e-6, rel=1e-5)


def test_what_is_no_speed():
    process = wall()
    with pytest.raises(pb.PullbackError, match=r"speed has shape \(3,\); expected one number or"):
        process.positions_at(torch.ones(3))
