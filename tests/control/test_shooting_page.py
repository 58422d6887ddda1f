"""The Python blocks of the page about shooting run, in order and in one namespace."""

from pathlib import Path

from tests.rigid.test_simulation_page import run_blocks

PAGE = Path("control_shooting.md")


def test_shooting():
    found = run_blocks(str(PAGE))
    assert found["found"].loss < 1e-6
    assert found["other"].loss > found["found"].loss
    assert found["trained"].loss < 0.5 * found["trained"].losses[0].item()
    assert found["by_step"].shape == (200, 1)
    assert found["modes"].shape == (1, 20)
