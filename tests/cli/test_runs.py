"""Runs as folders: nothing is overwritten, metrics are kept, and runs are listed, compared and resumed."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pullback import cli
from pullback.core.search_loop import SearchLoop
from pullback.tasks import Task


@dataclass
class Options:
    """Options of a task that counts."""

    iterations: int = 3
    """How far."""
    rate: float = 0.5
    """What the loss is multiplied by."""
    fail_at: int = -1
    """The iteration that raises."""
    resume: bool = False
    """Go on."""
    out: Path = Path("out")
    """Folder."""


@dataclass
class Counting:
    """A search whose loss falls."""

    rate: float
    fail_at: int
    losses: list[float] = field(default_factory=lambda: [1.0])

    @property
    def done(self):
        return len(self.losses) - 1

    ended = ""

    def iterate(self):
        if self.done == self.fail_at:
            raise KeyboardInterrupt
        self.losses.append(self.rate * self.losses[-1])

    def summary(self):
        return ""


def count(options):
    search = Counting(options.rate, -1 if options.resume else options.fail_at)
    SearchLoop(options.iterations, "counting", progress=False).run(search)
    (options.out / "picture.png").write_text("a picture")
    return {"loss": search.losses[-1], "resumed": options.resume}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Work in a folder of its own, with one task."""
    monkeypatch.chdir(tmp_path)
    for module in ("pullback.cli.run", "pullback.cli.runs"):
        monkeypatch.setattr(sys.modules[module], "find_task", lambda name: Task(name, "Count.", Options, count))
    return tmp_path


def run(capsys, *arguments):
    try:
        status = cli.main(list(arguments))
    except SystemExit as stop:
        status = int(stop.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, " ".join(captured.err.split())


def test_every_run_has_a_folder_of_its_own(capsys, here):
    for number in (1, 2):
        assert run(capsys, "run", "count") == (0, f"run: out/count-{number}\n", "")
    record = json.loads((here / "out/count-1/run.json").read_text())
    assert (record["status"], record["task"], record["result"]["loss"]) == ("finished", "count", 0.125)
    assert record["options"]["rate"] == 0.5
    lines = [json.loads(line) for line in (here / "out/count-1/metrics.jsonl").read_text().splitlines()]
    assert [(x["search"], x["iteration"], x["loss"]) for x in lines] == [
        ("counting", 1, 0.5), ("counting", 2, 0.25), ("counting", 3, 0.125)
    ]  # fmt: skip


def test_an_earlier_run_is_not_overwritten(capsys):
    assert run(capsys, "run", "count", "--out", "mine")[0] == 0
    status, _, err = run(capsys, "run", "count", "--out", "mine")
    assert status == 2
    assert "--out mine holds an earlier run (count, finished" in err
    assert "pullback runs resume mine" in err
    # Ctrl-C may have ended it early: it can be told to go on, unless it is of another task
    assert "and with --out mine --resume goes on" in run(capsys, "runs", "resume", "mine")[2]
    assert run(capsys, "run", "count", "--out", "mine", "--resume")[0] == 0
    assert run(capsys, "run", "another", "--out", "mine", "--resume")[0] == 2


def test_runs_are_listed_shown_and_compared(capsys, here):
    run(capsys, "run", "count")
    run(capsys, "run", "count", "--rate", "0.25")
    status, out, _ = run(capsys, "runs")
    assert status == 0
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["out/count-1", "finished"], ["out/count-2", "finished"]
    ]  # fmt: skip
    _, out, _ = run(capsys, "runs", "show", "out/count-2")
    assert "again: pullback run count --rate 0.25" in out
    assert "counting loss: 0.25 -> 0.01562" in out
    status, out, _ = run(capsys, "runs", "compare", "out/count-1", "out/count-2", "--plot", "both.png", "--json")
    rows = json.loads(out)["rows"]
    assert rows["option rate"] == [0.5, 0.25]
    assert rows["result loss"] == [0.125, 0.015625]
    assert "option iterations" not in rows
    assert (here / "both.png").stat().st_size > 1000


def test_an_interrupted_run_is_resumed_in_its_folder(capsys, here):
    status, _, _ = run(capsys, "run", "count", "--fail-at", "1")
    assert status == 130
    assert json.loads(run(capsys, "runs", "--json")[1])[0]["status"] == "interrupted"
    assert run(capsys, "runs", "resume", "out/count-1")[0] == 0
    (found,) = json.loads(run(capsys, "runs", "--json")[1])
    assert (found["status"], found["result"]["resumed"]) == ("finished", True)
    status, _, err = run(capsys, "runs", "resume", "out/count-1")
    assert (status, "out/count-1 is finished" in err) == (2, True)


def test_tensorboard(capsys, here):
    pytest.importorskip("tensorboard")
    assert run(capsys, "run", "count", "--tensorboard")[0] == 0
    assert list((here / "out/count-1/tensorboard").glob("events*"))


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ('{"format": "pullback run 0"}', "this version of Pullback does not read (its format is 'pullback run 0'"),
        ("{", "cannot be read"),
        (None, "no run named 'old'"),
    ],
)
def test_runs_that_cannot_be_read(capsys, here, record, text):
    if record is not None:
        (here / "old").mkdir()
        (here / "old/run.json").write_text(record)
    status, _, err = run(capsys, "runs", "show", "old")
    assert status == 2
    assert text in err


def test_one_run_is_nothing_to_compare(capsys):
    status, _, err = run(capsys, "runs", "compare", "out/count-1")
    assert status == 2
    assert "give at least two folders" in err
