"""One run of a sweep: `python -m pullback.cli.sweep.child FOLDER` runs what FOLDER/plan.json says."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from pullback.cli.run import parse, plain, run_into
from pullback.cli.run_folder import new_run
from pullback.cli.sweep.grid import PLAN, Run, write_json
from pullback.tasks import find_task


def main(folder: Path) -> int:
    """Run the task and write its result."""
    _end_with(os.getppid())
    plan = json.loads((folder / PLAN).read_text())
    task = find_task(plan["task"])
    options = parse(task, plan["arguments"])
    run = new_run(Path(options.out), task.name, plan["arguments"], plain(options))
    run_into(run, task, options, as_json=True)
    status = "stopped" if (folder / "stop").exists() else "done"
    scores = [score for _, score in Run(folder, {}, 0, ()).scores]
    write_json(folder / "result.json", {**run.record, "status": status, "score": min(scores, default=None)})
    return 0


def _end_with(parent: int) -> None:
    """End this process when the one that started it has: nobody is left to read the result."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
