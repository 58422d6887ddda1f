"""Material points on a GPU: the motion and gradients of a CPU."""

import pytest
import torch

import pullback.soft as soft
from tests.soft.scenes import MATERIALS, actuation_of, parts_of, scene, start

pytestmark = pytest.mark.gpu


def found_on(device: str, dtype: torch.dtype, dim: int, kinds: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return the final state and gradients by everything, of a small scene."""
    sim = scene(kinds, dim, dtype, device=device)
    steps = 20
    given = {name: x.to(device, dtype) for name, x in parts_of(start(scene(kinds, dim))).items()}
    given["actuation"] = actuation_of(sim, steps).to(device, dtype)
    given["gravity"] = sim.gravity.clone()
    leaves = {name: x.detach().clone().requires_grad_() for name, x in given.items()}
    state = soft.SoftState(*[leaves[name] for name in ("x", "v", "C", "F", "history")])
    run = sim.rollout(state, steps, actuation=leaves["actuation"], gravity=leaves["gravity"], frames=5)
    loss = run.final.x.square().sum() + run.final.F.square().sum() + run.v.square().sum()
    grads = torch.autograd.grad(loss, list(leaves.values()))
    named = {f"adj_{name}": g for name, g in zip(leaves, grads)} | parts_of(run.final)
    return {name: x.detach().cpu().double() for name, x in named.items()}


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize(
    ("dtype", "tolerance", "kinds"),
    [
        (torch.float64, 1e-9, tuple(MATERIALS)),
        (torch.float32, 1e-3, ("neo_hookean", "fixed_corotated", "fluid")),
    ],
    ids=["float64", "float32"],
)
def test_a_gpu_gives_what_a_cpu_gives(dtype, tolerance, kinds, dim):
    expected = found_on("cpu", torch.float64, dim, kinds)
    for name, ours in found_on("cuda", dtype, dim, kinds).items():
        theirs = expected[name]
        assert float((ours - theirs).norm()) <= tolerance * max(float(theirs.norm()), 1e-3), name
