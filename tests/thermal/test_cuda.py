"""A part on a GPU: the temperatures and gradients of a CPU."""

import pytest
import torch

import pullback.thermal as th
from tests.thermal.cases import PARAMETERS, leaves, wall

pytestmark = pytest.mark.gpu

METHODS = {"explicit": {}, "implicit": {"method": th.Implicit(0.6), "dt": 0.05}}


def gradients(device: str, dtype: torch.dtype, **options) -> dict[str, torch.Tensor]:
    """Return temperatures, and gradients by everything, of the small wall."""
    process = wall(dtype=dtype, device=device, **options)
    power, parameters = leaves(process)
    leaf = [x.detach().to(device).requires_grad_() for x in (power, *parameters.values())]
    history = process.run(
        leaf[0],
        probes=process.probes([(0.0, 0.0, 0.001), (0.001, 0.0, 0.0015)]),
        snapshots=range(0, process.steps + 1, 5),
        **dict(zip(parameters, leaf[1:])),
    )
    loss = history.snapshots.square().mean() + history.probes.square().mean() + history.final.square().mean()
    found = torch.autograd.grad(loss, leaf)
    named = dict(zip(["power", *PARAMETERS], found)) | {"snapshots": history.snapshots, "probes": history.probes}
    return {name: x.detach().cpu().double() for name, x in named.items()}


@pytest.mark.parametrize("options", METHODS.values(), ids=METHODS.keys())
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_a_gpu_gives_what_a_cpu_gives(options, dtype, tolerance):
    expected = gradients("cpu", torch.float64, **options)
    for name, ours in gradients("cuda", dtype, **options).items():
        theirs = expected[name]
        assert float((ours - theirs).norm() / theirs.norm()) < tolerance, name
