"""The Python blocks of the page about process design run, in order and in one namespace."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "process_design.md"


def test_process_design(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    found: dict = {}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        # blank lines in front, so that an error names the page's own line
        source = "\n" * text[: block.start(1)].count("\n") + block[1]
        exec(compile(source, str(PAGE), "exec"), found)
    assert found["absorptivity"].grad.abs() > 0.0
    assert found["result"].best_loss < found["result"].losses[0]
    assert abs(found["history"].ledger.error) < 1e-10
    assert (tmp_path / "out" / "design" / "report.md").is_file()
    assert len(list((tmp_path / "out" / "design" / "temperatures").glob("*.vtu"))) == len(found["history"].snapshots)


def test_the_tasks_it_names_are_there():
    from pullback.tasks import task_names

    named = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert named
    assert set(named) <= set(task_names())
