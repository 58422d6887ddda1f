"""The notebooks of docs/tutorials run from top to bottom, have no stored outputs, and stand on the site."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs/tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    pytest.importorskip("viser")
    monkeypatch.chdir(tmp_path)
    namespace: dict = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), namespace)


def test_notebooks_are_on_the_site():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 3
    assert [path.stem for path in NOTEBOOKS if f"tutorials/{path.stem}.md" not in text] == []
