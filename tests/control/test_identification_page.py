"""The Python blocks of docs/identification.md run, and find what they say."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "identification.md"


def test_identification():
    text = PAGE.read_text(encoding="utf-8")
    found: dict = {}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        source = "\n" * text[: block.start(1)].count("\n") + block[1]
        exec(compile(source, str(PAGE), "exec"), found)
    assert found["found"]["friction of ball"].item() == pytest.approx(0.2, rel=1e-3)
    assert found["found"]["size of ball"].item() == pytest.approx(0.1, rel=1e-3)
    assert found["motor"]["gain of motor"].item() == pytest.approx(1.0, rel=1e-3)
    assert "only their sum" in str(found["caught"][-1].message)
