"""A run of a sweep that takes a moment: `python fake_task.py FOLDER SECONDS SCORE`."""

import json
import signal
import sys
import time
from pathlib import Path

stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
folder, seconds, score = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
(folder / "files").mkdir(exist_ok=True)
begun = time.monotonic()
for done in range(1, 11):
    with open(folder / "files" / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"iteration": done, "objective": score + 1.0 / done}) + "\n")
    time.sleep(seconds / 10)
    if stopped:
        break
result = {"status": "stopped" if stopped else "done", "score": score + 1.0 / done, "seconds": time.monotonic() - begun}
(folder / "result.tmp").write_text(json.dumps(result))
(folder / "result.tmp").rename(folder / "result.json")
