"""A run as a folder: what was asked, how it ended, what each iteration found, and the files that the task wrote."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pullback
from pullback.core.errors import PullbackError, unknown_name
from pullback.core.ranks import launch_name, was_restarted

FORMAT = "pullback run 1"
RECORD, METRICS, TENSORBOARD = "run.json", "metrics.jsonl", "tensorboard"
HOME = Path("out")
"""Where runs are made unless --out says otherwise."""


@dataclass
class RunFolder:
    """A folder with the record of a run, `run.json`; the record's keys are the attributes of the JSON object."""

    path: Path
    record: dict[str, Any]

    @property
    def is_finished(self) -> bool:
        """Whether the task came to its end."""
        return self.record.get("status") == "finished"

    @property
    def files(self) -> list[str]:
        """The files in the folder, without the record."""
        found = (file for file in self.path.rglob("*") if file.is_file())
        return sorted(str(file.relative_to(self.path)) for file in found if file.name != RECORD)

    def begin(self) -> None:
        """Write that the run has started, again if it is resumed."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.record |= {"status": "running", "started": _now()}
        self._write()

    def end(self, status: str, seconds: float, **found: Any) -> None:
        """Write how the run ended: finished, interrupted or failed."""
        spent = round(self.record.get("seconds", 0.0) + seconds, 2)
        self.record |= {"status": status, "ended": _now(), "seconds": spent, **found}
        self._write()

    def _write(self) -> None:
        # whole or not at all: another process may be listing runs
        written = self.path / f"{RECORD}.part"
        written.write_text(json.dumps(self.record, indent=2) + "\n", encoding="utf-8")
        written.replace(self.path / RECORD)


def new_run(path: Path, task: str, arguments: list[str], options: Any) -> RunFolder:
    """Return the record of a run that is about to begin."""
    versions = {name: version(name) for name in ("torch", "warp-lang")} | {"python": platform.python_version()}
    record = {"format": FORMAT, "pullback": pullback.__version__, "task": task, "arguments": arguments}
    return RunFolder(path, record | {"options": options, "versions": versions, "launch": launch_name()})


def run_of_this_launch(home: Path) -> RunFolder | None:
    """Return the run at or below a folder that `torchrun` began before it started its ranks again."""
    if not was_restarted():
        return None
    begun = [run for run in find_runs(home) if run.record.get("launch") == launch_name() and not run.is_finished]
    return begun[-1] if begun else None


def next_folder(task: str, home: Path = HOME) -> Path:
    """Return a folder that does not exist yet: out/throw-1, out/throw-2 and so on."""
    taken = [int(rest) for path in home.glob(f"{task}-*") if (rest := path.name[len(task) + 1 :]).isdecimal()]
    return home / f"{task}-{max(taken, default=0) + 1}"


def read_run(path: Path) -> RunFolder:
    """Return the run in a folder; one that is none, or of another version, is an error."""
    try:
        record = json.loads((path / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise unknown_name("run", str(path), [str(run.path) for run in find_runs(HOME)]) from None
    except (OSError, ValueError) as error:
        raise PullbackError(f"{path / RECORD} cannot be read ({error}); the other files of the run stay") from None
    found = record.get("format") if isinstance(record, dict) else None
    if found != FORMAT:
        raise PullbackError(
            f"{path} holds a run that this version of Pullback does not read (its format is {found!r}, expected "
            f"{FORMAT!r}); use the version that made it, or start a new run"
        )
    return RunFolder(path, record)


def find_runs(home: Path) -> list[RunFolder]:
    """Return the runs below a folder, oldest first; records that cannot be read are left out."""
    found = []
    for file in home.rglob(RECORD):
        try:
            found.append(read_run(file.parent))
        except PullbackError:
            continue
    return sorted(found, key=lambda run: str(run.record.get("started")))


def refuse_earlier_run(path: Path, task: str, *, resume: bool = False) -> None:
    """Raise if a folder holds a run, which another would overwrite; one of the same task may be resumed."""
    if (path / RECORD).exists():
        earlier = read_run(path)
        if resume and earlier.record["task"] == task:
            return
        told = f"{earlier.record['task']}, {earlier.record['status']} {earlier.record.get('ended', '')}".strip()
        raise PullbackError(
            f"--out {path} holds an earlier run ({told}); give another folder, or leave --out away for a new one, or "
            f"`pullback runs resume {path}`"
        )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
