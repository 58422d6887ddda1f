"""The Python blocks of the page about soft bodies run."""

from tests.rigid.test_simulation_page import run_blocks


def test_soft():
    found = run_blocks("soft.md")
    assert found["run"].x.shape == (7, found["sim"].particles, 3)
    assert found["v"].grad.shape == (found["sim"].particles, 3)
    # thrown upwards it ends higher
    assert found["v"].grad[:, 2].sum() > 0
    assert found["youngs"].grad != 0
