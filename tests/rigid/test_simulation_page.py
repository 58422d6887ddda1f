"""The Python blocks of docs/simulation.md run, in order, in one namespace."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


def test_the_blocks_run():
    text = PAGE.read_text(encoding="utf-8")
    namespace: dict = {}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        # blank lines in front, so that an error names the page's own line
        source = "\n" * text[: block.start(1)].count("\n") + block[1]
        exec(compile(source, str(PAGE), "exec"), namespace)
    assert namespace["controls"].grad.abs().max() > 0.0
    # x = v t - mu g dt² (1 + 2 + ... + 50)
    assert float(namespace["friction"].grad) == pytest.approx(-9.81 * 2e-3**2 * 1275, rel=1e-3)
