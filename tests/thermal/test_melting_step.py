"""Nodes that run into melting within one step take up the heat they are given, and no other."""

import numpy as np
import pytest
import torch

import pullback.thermal as th


@pytest.mark.parametrize("start", [1300.0, 1473.43, 1520.0, 1560.0])
def test_a_step_into_melting_keeps_the_heat(start):
    mesh = th.box((1e-3, 1e-3, 1e-3), 1e-3)
    path = th.Toolpath(t=[0.0, 0.01], x=[5e-4, 5e-4], y=[5e-4, 5e-4], z=[1e-3, 1e-3], on=[0, 1])
    beam = th.Gaussian(radius=5e-4, absorptivity=1.0)
    process = th.Process(mesh, path, material=th.material("in718"), dt=0.01, source=beam, initial=start)
    for watts in np.linspace(5.0, 150.0, 300):
        history = process.run(float(watts))
        assert abs(history.ledger.error) < 1e-13, watts


def test_and_gives_it_back():
    mesh = th.box((1e-3, 1e-3, 1e-3), 1e-3)
    cold = np.flatnonzero(mesh.nodes[:, 2] < 5e-4)
    mesh = th.Mesh(mesh.nodes, mesh.elements, mesh.element_sets, {"cold": cold})
    process = th.Process(mesh, material=th.material("in718"), dt=0.02, duration=0.02, fixed={"cold": 300.0})
    for start in np.linspace(1540.0, 2400.0, 300):
        initial = torch.full((len(mesh.nodes),), float(start), dtype=torch.float64)
        assert abs(process.run(initial=initial).ledger.error) < 1e-13, start
