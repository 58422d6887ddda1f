"""The Python block of the page about replays runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "viewer.md"


def test_the_page_runs(tmp_path, monkeypatch) -> None:
    pytest.importorskip("viser")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    assert (tmp_path / "out" / "ball.html").stat().st_size > 5e5
