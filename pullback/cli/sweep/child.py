"""One run of a sweep: `python -m pullback.cli.sweep.child FOLDER` runs what FOLDER/run.json says."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from pullback.cli.run import run_task
from pullback.cli.sweep.grid import Run, write_json


def main(folder: Path) -> int:
    """Run the task and write its result."""
    _end_with(os.getppid())
    plan = json.loads((folder / "run.json").read_text())
    found = run_task(plan["task"], plan["arguments"])
    status = "stopped" if (folder / "stop").exists() else "done"
    scores = [score for _, score in Run(folder, {}, 0, ()).scores if score == score]
    write_json(folder / "result.json", {"status": status, "score": min(scores, default=None), **found})
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
