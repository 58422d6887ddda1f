"""Metrics of a run: what each iteration of a search found, as JSON lines and for TensorBoard.

Whoever runs a task opens a `MetricsLog` with `logging_metrics`; the search loop writes to the one that is open.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from pullback.core.extras import need_extra

_OPEN: ContextVar[MetricsLog | None] = ContextVar("metrics", default=None)


class MetricsLog:
    """A file of JSON lines, one an iteration: the search's label, the iteration, seconds since the start, numbers."""

    def __init__(self, path: Path, tensorboard: Path | None = None) -> None:
        self.path = path
        self._start = time.perf_counter()
        self._writer: Any = None
        if tensorboard is not None:
            need_extra("tensorboard", "rl", "files for TensorBoard are written")
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(tensorboard))

    def write(self, label: str, iteration: int, numbers: dict[str, float]) -> None:
        """Append one line; numbers that are not finite are null."""
        seconds = round(time.perf_counter() - self._start, 4)
        plain = {name: x if math.isfinite(x) else None for name, x in numbers.items()}
        line = {"search": label, "iteration": iteration, "seconds": seconds, **plain}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._writer is not None:
            for name, x in numbers.items():
                self._writer.add_scalar(f"{label}/{name}", x, iteration)

    def close(self) -> None:
        """Write what TensorBoard's writer still holds."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def logging_metrics(log: MetricsLog) -> Iterator[None]:
    """Let searches write to a log as long as the context lasts."""
    token = _OPEN.set(log)
    try:
        yield
    finally:
        _OPEN.reset(token)
        log.close()


def log_iteration(label: str, search: Any) -> None:
    """Write what a search's last iteration found to the log that is open, if one is."""
    log = _OPEN.get()
    if log is not None:
        log.write(label, search.done, last_numbers(search))


def last_numbers(search: Any) -> dict[str, float]:
    """Return what a search's last iteration found; its score, lower is better, is the objective that sweeps compare."""
    score = getattr(search, "score", None)
    return _numbers(search) | ({} if score is None else {"objective": float(score)})


def _numbers(search: Any) -> dict[str, float]:
    """Return a search's own `metrics()`, or else the numbers of its last report, or its last loss."""
    if hasattr(search, "metrics"):
        return search.metrics()
    history, losses = getattr(search, "history", None), getattr(search, "losses", None)
    if history and is_dataclass(history[-1]) and not isinstance(history[-1], type):
        found = asdict(history[-1])
        found |= found.pop("extra", {})
        # a list is one number for each of several: seeds, say
        listed = {
            f"{name}_{k}": x for name, many in found.items() if isinstance(many, list) for k, x in enumerate(many)
        }
        return {name: float(x) for name, x in {**found, **listed}.items() if isinstance(x, (int, float))}
    return {"loss": float(losses[-1])} if losses else {}


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file of metrics; a last line that was cut off is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
