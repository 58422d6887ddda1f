"""The examples of docs/hybrid.md run, one after the other."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "hybrid.md"


def test_the_examples_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    assert {path.name for path in (tmp_path / "out" / "arm").iterdir()} == {"arm.urdf", "residual.pt"}
    assert names["after"].q.shape == (8, 2)
    assert "tensor" in capsys.readouterr().out
