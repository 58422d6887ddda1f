"""The runs of a sweep: every combination of values, for every seed, each in a folder of its own.

A folder holds `plan.json`, what to run; `files`, the folder of `pullback run` with metrics after each iteration, of
which the sweep reads `objective`, lower is better; `output.txt`, what the run printed; `stop`, if it was asked to end
early; and, once the run has ended by itself, `result.json`. That last file, written whole or not at all, is what makes
a run count: a sweep that goes on repeats only runs without it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pullback.cli.run_folder import METRICS
from pullback.core.errors import PullbackError, unknown_name
from pullback.core.files import write_whole
from pullback.core.metrics import read_metrics
from pullback.tasks import find_task

FILES, PLAN = "files", "plan.json"

ALIASES = {"lr": "learning_rate"}
"""Short names of options."""


@dataclass(frozen=True)
class Run:
    """One run of a sweep."""

    folder: Path
    values: dict[str, str]
    """The values of the options that the sweep goes over."""
    seed: int
    command: tuple[str, ...]
    """What runs it; it leaves `result.json` in the folder."""

    @property
    def name(self) -> str:
        """The values and the seed as text."""
        return f"{self.setting} seed={self.seed}".strip()

    @property
    def setting(self) -> str:
        """The values as text."""
        return " ".join(f"{name}={value}" for name, value in self.values.items())

    @property
    def result(self) -> dict[str, Any] | None:
        """What the run ended with, None if it has not."""
        return _read(self.folder / "result.json")

    @property
    def scores(self) -> list[tuple[int, float]]:
        """Iteration and score, as far as the run has come."""
        try:
            rows = read_metrics(self.metrics)
        except OSError:
            return []
        return [(row["iteration"], row["objective"]) for row in rows if row.get("objective") is not None]

    @property
    def metrics(self) -> Path:
        """The file with what each iteration found."""
        return self.folder / FILES / METRICS

    def stop(self) -> None:
        """Ask the run to end after its current iteration."""
        (self.folder / "stop").touch()


def open_sweep(out: Path, task: str, over: list[str], seeds: int, fixed: list[str]) -> list[Run]:
    """Return the runs of a sweep, and prepare their folders; another sweep in the same folder is an error."""
    fields = [field.name for field in dataclasses.fields(find_task(task).options)]
    choices = dict(_parse(text, fields) for text in over)
    if seeds < 1:
        raise PullbackError(f"seeds is {seeds}; give 1 or more")
    if seeds > 1 and "seed" not in fields:
        raise PullbackError(f"{task} has no option seed; leave --seeds out")
    plan = {"task": task, "over": choices, "seeds": seeds, "fixed": fixed}
    file = out / "sweep.json"
    known = _read(file)
    if known is not None and known != plan:
        different = next(name for name in plan if known.get(name) != plan[name])
        raise PullbackError(
            f"{out} holds a sweep with {different} = {known.get(different)}, now it is {plan[different]}; give another "
            f"folder by --out, or the options it was started with"
        )
    write_json(file, plan)
    runs = []
    for number, values in enumerate(product(*choices.values())):
        chosen = dict(zip(choices, values))
        for seed in range(seeds):
            folder = out / f"{number:03d}_seed{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            flags = [x for name, value in chosen.items() for x in (f"--{name.replace('_', '-')}", value)]
            flags += ["--seed", str(seed)] if "seed" in fields else []
            flags += ["--out", str(folder / FILES)]
            write_json(folder / PLAN, {"task": task, "arguments": [*fixed, *flags]})
            command = (sys.executable, "-m", "pullback.cli.sweep.child", str(folder))
            runs.append(Run(folder, chosen, seed, command))
    return runs


def _parse(text: str, fields: list[str]) -> tuple[str, list[str]]:
    """Return the option and its values of `name=a,b,c`."""
    name, _, values = text.partition("=")
    name = ALIASES.get(name, name).replace("-", "_")
    if name not in fields or name in ("seed", "out"):
        raise unknown_name("option to go over", name, [f for f in fields if f not in ("seed", "out")])
    chosen = [value for value in values.split(",") if value]
    if not chosen:
        raise PullbackError(f"--over {text}: no values; write {name}=VALUE,VALUE")
    return name, chosen


def write_json(path: Path, content: Any) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(json.dumps(content, indent=2).encode()))


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PullbackError(f"{path} is damaged ({error}); delete it, and the run is repeated") from None
