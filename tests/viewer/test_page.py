"""The Python blocks of the page about looking run, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "viewer.md"


def test_the_page_runs(tmp_path, monkeypatch) -> None:
    pytest.importorskip("viser")
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
    sizes = {file.name: file.stat().st_size for file in (tmp_path / "out").iterdir()}
    assert sizes["ball.html"] > 5e5
    assert set(sizes) == {"ball.html", "four.html", "gradient.html", "ball.mp4", "ball.gif", "wall.html", "wall.mp4"}
