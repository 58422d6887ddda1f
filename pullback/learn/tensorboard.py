"""Write what iterations did for TensorBoard: `pip install tensorboard`, `tensorboard --logdir FOLDER`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from pullback.core.errors import PullbackError
from pullback.learn.short_horizon import Report, ShortHorizon


@contextmanager
def logging_to(run: ShortHorizon, folder: str | Path) -> Iterator[None]:
    """Write each report of a run to a folder, by steps of worlds, as long as the context lasts."""
    if find_spec("tensorboard") is None:
        raise PullbackError("a log for TensorBoard needs the package tensorboard: pip install 'pullback[rl]'")
    from torch.utils.tensorboard import SummaryWriter

    writer, iterate = SummaryWriter(str(folder)), run.iterate

    def iterate_and_log() -> None:
        iterate()
        report = run.history[-1]
        for name, value in scalars(report).items():
            writer.add_scalar(name, value, report.steps)

    run.iterate = iterate_and_log
    try:
        yield
    finally:
        run.iterate = iterate
        writer.close()


def scalars(report: Report) -> dict[str, float]:
    """Return the numbers of a report by the names that TensorBoard groups them by."""
    numbers = asdict(report)
    by_step, extra = numbers.pop("gradient_by_step"), numbers.pop("extra")
    ends = {"gradient/first_step": by_step[0], "gradient/last_step": by_step[-1]}
    group = {"gradient_norm": "gradient", "steep": "gradient", "lost": "gradient", "first_variance": "gradient"}
    group["zeroth_variance"] = "gradient"
    named = {f"{group.get(name, 'train')}/{name}": value for name, value in numbers.items() if name != "steps"}
    return {**named, **ends, **{f"adapted/{name}": value for name, value in extra.items()}}
