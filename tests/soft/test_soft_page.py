"""The Python blocks of the page about soft bodies run."""

from tests.rigid.test_simulation_page import run_blocks


def test_soft():
    found = run_blocks("soft.md")
    assert found["run"].x.shape == (7, found["sim"].particles, 3)
    assert found["v"].grad.shape == (found["sim"].particles, 3)
    # thrown upwards it ends higher
    assert found["v"].grad[:, 2].sum() > 0
    assert found["youngs"].grad != 0
    # a plate that falls on jelly faster is thrown back higher, and there is a push
    assert found["qd"].grad.shape == (1, 6)
    assert found["qd"].grad.abs().sum() > 0
    assert found["fall"].wrenches[..., 5].max() > 3.0
