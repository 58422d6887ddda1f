"""Elastic points, muscles and a floor with friction against DiffTaichi's diffmpm3d: positions and gradients.

`data/diffmpm3d.npz` is a scene and what `bench/taichi_mpm.py` made of it in float64 with taichi 1.7.4.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import pullback.soft as soft

FOUND = dict(np.load(Path(__file__).parent / "data" / "diffmpm3d.npz"))

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_the_same_scene_ends_the_same_with_the_same_gradient(dtype):
    s = FOUND
    mu, lam, cell = float(s["mu"]), float(s["lam"]), float(s["cell"])
    poisson = lam / (2.0 * (lam + mu))
    material = soft.Elastic(
        youngs=2.0 * mu * (1.0 + poisson), poisson=poisson, density=float(s["mass"]) / float(s["volume"])
    )
    body = soft.Body("body", s["x"], float(s["volume"]), material, actuator=s["actuator"], fibre=(0.0, 1.0, 0.0))
    # nodes 0, 1 and 2 are floor there
    low = np.full(3, 2.0 * cell)
    sides = {"x-": "open", "x+": "open", "y-": "separate", "y+": "open", "z-": "open", "z+": "open"}
    domain = soft.Domain(low, low + 0.8125, cell, sides=sides, friction=float(s["friction"]))
    sim = soft.SoftSim(domain, [body], dt=float(s["dt"]), gravity=s["gravity"], dtype=dtype)
    x, v, actuation = (torch.tensor(s[name], dtype=dtype).requires_grad_() for name in ("x", "v", "actuation"))
    final = sim.rollout(sim.state().replace(x=x, v=v), int(s["steps"]), actuation=actuation).final.x
    # the floor was reached
    assert s["final"][:, 1].min() < 2.2 * cell
    found = final, *torch.autograd.grad((torch.tensor(s["weights"], dtype=dtype) * final).sum(), (x, v, actuation))
    for name, ours in zip(("final", "adj_x", "adj_v", "adj_actuation"), found):
        difference = np.linalg.norm(ours.detach().double().numpy() - s[name])
        assert difference <= TOLERANCE[dtype] * np.linalg.norm(s[name]), name
