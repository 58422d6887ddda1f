"""The Python blocks of the page about control run."""

import pytest
import torch

from tests.rigid.test_simulation_page import run_blocks


def test_control():
    found = run_blocks("control.md")
    result, sim = found["found"], found["sim"]
    assert result.converged.all()
    hand = found["frame"].pose(result.states.q[-1])[0]
    assert (hand - torch.tensor([0.4, 0.2, 0.6]).double()).norm(dim=-1).max() < 0.03
    assert result.gains.shape == (80, 2, sim.nu, 2 * sim.nv)
    assert (found["closed"].gap == 0.0).all()
    assert found["closed"].cost.sum().item() == pytest.approx(result.cost.sum().item(), rel=0.05)
    assert found["obeyed"].violation.max() <= 1e-6
    assert found["obeyed"].states.qd.abs().max() <= 1.5 + 1e-6
    assert result.states.qd[:, 0].abs().max() > 1.6
    drive = found["drive"]
    assert drive.q.shape == (41, 2, sim.nq)
    assert drive.real_time_factor > 0.0
