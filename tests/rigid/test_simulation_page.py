"""The Python blocks of pages about worlds run, each page in order and in one namespace."""

import re
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")
DOCS = Path(__file__).parents[2] / "docs"


def run_blocks(name: str) -> dict:
    """Return what the blocks of a page leave behind."""
    page = DOCS / name
    text = page.read_text(encoding="utf-8")
    namespace: dict = {}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        # blank lines in front, so that an error names the page's own line
        source = "\n" * text[: block.start(1)].count("\n") + block[1]
        exec(compile(source, str(page), "exec"), namespace)
    return namespace


def test_simulation():
    found = run_blocks("simulation.md")
    assert found["controls"].grad.abs().max() > 0.0
    # x = v t - mu g dt² (1 + 2 + ... + 50)
    assert float(found["friction"].grad) == pytest.approx(-9.81 * 2e-3**2 * 1275, rel=1e-3)
    # the ball rests on the rim: its height over it is sqrt(R² - r²)
    assert float(found["after"].q[-1, 0, 2].detach()) == pytest.approx(0.1 + (0.035**2 - 0.03**2) ** 0.5, abs=1e-3)
    assert abs(float(found["drift"].detach())) < 1e-4
    assert found["push"].grad.abs().max() > 0.0
    # right follows, and the momentum along y is what left had
    left, right = found["swung"].q[-1, 0, [1, 8]].tolist()
    assert right > 0.002
    assert left + right == pytest.approx(0.1, abs=1e-6)
    assert float(found["anchor"].grad.norm()) > 0.0
    # joint 7 turns half as far as joint 5, the other way
    assert float(found["closed"].q[-1, 0, 4]) > 0.01
    assert float(found["closed"].q[-1, 0, 6]) == pytest.approx(-0.5 * float(found["closed"].q[-1, 0, 4]), abs=1e-8)
    assert float(found["ratio"].grad) > 0.0
    assert found["maps"].A.shape == (20, 1, 24, 24)
    assert float(found["hole"].grad) == pytest.approx(-0.03 / (0.035**2 - 0.03**2) ** 0.5, rel=0.1)
    assert float(found["stiffness"].grad) == pytest.approx(9.81 / 2e4**2, rel=1e-3)


def test_signed_distance():
    assert float(run_blocks("sdf.md")["radius"].grad) == pytest.approx(1.0)


def test_gradient_care():
    found = run_blocks("gradient_care.md")
    # both types agree where the load is shared by softness
    assert float(((found["single"] - found["double"]).norm(dim=1) / found["double"].norm(dim=1)).max()) < 0.05
