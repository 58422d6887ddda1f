"""The loop under every search: iterate, show progress, stop at Ctrl-C, and save checkpoints to resume from.

`minimize`, `identify`, `design` and the tasks differ in what one iteration does. What they share stands here: a search
is an object with `iterate()`, and `SearchLoop.run` advances it until it ends, its iterations are used up, or the user
interrupts it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from pullback.core.errors import PullbackError
from pullback.core.interrupt import Interrupt, gentle_interrupt
from pullback.core.metrics import log_iteration
from pullback.core.ranks import launch_name, ranks, was_restarted
from pullback.core.state_file import read_state, write_state

RARER = 20.0
"""Times as long as writing a checkpoint takes, until the next one is written."""
FORMAT = "pullback search 2"
"""Written into every checkpoint; files with another format are refused."""


class Search(Protocol):
    """A search that advances one iteration at a time."""

    @property
    def done(self) -> int:
        """Number of finished iterations, those before a resume included."""
        ...

    @property
    def ended(self) -> str:
        """Why the search is over, or an empty string."""
        ...

    def iterate(self) -> None:
        """Run one iteration."""
        ...

    def summary(self) -> str:
        """Return the text beside the progress bar, in rich's markup."""
        ...


class ResumableSearch(Search, Protocol):
    """A search that can be saved between two iterations and resumed with the same result, bit for bit."""

    def state(self) -> dict[str, Any]:
        """Return everything later iterations depend on: tensors, numbers, strings, lists and dicts of them."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        ...


@dataclass
class Checkpoint:
    """The file a search is saved to, and the settings in which it must agree with the search that resumes from it."""

    search: ResumableSearch
    path: Path
    settings: Mapping[str, Any]
    advice: str = "give the settings it was saved with, or start over without resume"
    """What to do about a file that cannot be resumed from."""
    saved: int = 0
    """Iterations that are in the file."""

    def save(self) -> None:
        """Replace the file in one step: whatever happens, there is a complete one, the last or this."""
        self.saved = self.search.done
        # all ranks put the state together, one writes it
        content = {"format": FORMAT, "settings": self._settings(), "state": self.search.state()}
        content["launch"] = launch_name()
        if ranks().is_first:
            write_state(self.path, content)

    def exists(self) -> bool:
        """Return whether there is a file to resume from."""
        return ranks().from_first(self.path.exists())

    def begin(self, resume: bool) -> None:
        """Resume if that is asked for, or if `torchrun` started these ranks again and the file is of their first try.

        Without a request a file that is not there, or of another run, is no error: the search begins.
        """
        if resume or ranks().from_first(self._is_of_this_launch() if ranks().is_first else None):
            self.resume()

    def _is_of_this_launch(self) -> bool:
        if not was_restarted() or not self.path.exists():
            return False
        saved, _ = self._read()
        return isinstance(saved, dict) and saved.get("launch") == launch_name()

    def resume(self) -> None:
        """Bring the search to where it was saved; a file that is damaged or of another search is an error."""
        saved, error = ranks().from_first(self._read() if ranks().is_first else None)
        if error:
            raise PullbackError(f"{error}; {self.advice}")
        found = saved.get("format") if isinstance(saved, dict) else type(saved).__name__
        if found != FORMAT:
            raise PullbackError(
                f"{self.path} is not a checkpoint that this version of Pullback reads (its format is {found!r}, "
                f"expected {FORMAT!r}); {self.advice}"
            )
        if not isinstance(saved.get("settings"), dict) or "state" not in saved:
            raise PullbackError(f"{self.path} lacks its settings or its state; {self.advice}")
        self._compare(saved["settings"])
        try:
            self.search.load_state(saved["state"])
        except Exception as error:
            text = f"{self.path} cannot be resumed from: {_first_line(error)}"
            raise PullbackError(f"{text}; {self.advice}") from error
        self.saved = self.search.done

    def _read(self) -> tuple[Any, str]:
        """Return what is in the file, or why it cannot be read."""
        try:
            return read_state(self.path), ""
        except PullbackError as error:
            return None, str(error)

    def _settings(self) -> dict[str, str]:
        return {name: repr(value) for name, value in self.settings.items()}

    def _compare(self, before: Mapping[str, str]) -> None:
        """Raise for the first setting that differs from the file's."""
        now = self._settings()
        for name in [*now, *sorted(before.keys() - now.keys())]:
            there, here = before.get(name, "not given"), now.get(name, "not given")
            if there != here:
                raise PullbackError(f"{self.path} was written with {name} = {there}, now it is {here}; {self.advice}")


@dataclass(frozen=True)
class SearchLoop:
    """How long to search, what to show, and how often to save."""

    iterations: int
    """The most iterations, those before a resume included."""
    label: str = "searching"
    """Text before the progress bar."""
    progress: bool = True
    """Whether to show a progress bar."""
    console: Console | None = None
    save_every: float = 0.0
    """Least time [s] between two checkpoints, longer where writing one takes long; the last state is always saved."""

    def run(self, search: Search, checkpoint: Checkpoint | None = None) -> str:
        """Iterate, and return why the search ended: its own reason, "iterations" or "interrupted"."""
        reason, saved_at, wait = self._reason(search, stopped=False), time.perf_counter(), self.save_every
        together = ranks()
        together.refuse_differences({"the search": self._fingerprint(search, checkpoint)})
        with gentle_interrupt() as stop, self._progress(stop) as progress, together.talking_before_steps():
            bar = _ProgressBar(progress, search, self)
            try:
                while not reason:
                    search.iterate()
                    log_iteration(self.label, search)
                    bar.update()
                    began = time.perf_counter()
                    late = checkpoint is not None and began - saved_at >= wait
                    stopped, late = together.end_iteration(bool(stop), late)
                    reason = self._reason(search, stopped)
                    if checkpoint is not None and late:
                        checkpoint.save()
                        saved_at = time.perf_counter()
                        wait = max(self.save_every, RARER * (saved_at - began)) if self.save_every else 0.0
            finally:
                # also after an error or a second Ctrl-C: finished iterations that are not in the file yet; but an error
                # on one of many ranks leaves the others elsewhere, and a state takes all of them
                if checkpoint is not None and search.done > checkpoint.saved and (reason or not together.many):
                    checkpoint.save()
        if reason == "interrupted" and self._shows:
            where = f"; the checkpoint is {checkpoint.path}" if checkpoint is not None else ""
            text = f"[yellow]stopped after {search.done} iterations with the best result so far{where}[/]"
            (self.console or Console()).print(text)
        return reason

    @property
    def _shows(self) -> bool:
        return self.progress and ranks().is_first

    def _fingerprint(self, search: Search, checkpoint: Checkpoint | None) -> dict[str, Any]:
        """Return what must be the same on all ranks."""
        settings = {} if checkpoint is None else checkpoint.settings
        return {"kind": type(search).__name__, "iterations": self.iterations, "done": search.done, **settings}

    def _reason(self, search: Search, stopped: bool) -> str:
        if search.ended:
            return search.ended
        if search.done >= self.iterations:
            return "iterations"
        return "interrupted" if stopped else ""

    def _progress(self, stop: Interrupt) -> Progress:
        text = TextColumn("{task.fields[text]}"), TimeElapsedColumn(), TextColumn("{task.fields[left]} left")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *text, _Stopping(stop))
        return Progress(*columns, console=self.console, disable=not self._shows)


class _ProgressBar:
    """The bar of one run of the loop."""

    def __init__(self, progress: Progress, search: Search, loop: SearchLoop) -> None:
        self._progress, self._search, self._loop = progress, search, loop
        self._first, self._begun = search.done, time.perf_counter()
        self._task = progress.add_task(
            loop.label, total=loop.iterations, completed=search.done, text=search.summary(), left="?"
        )

    def update(self) -> None:
        """Show the last iteration."""
        if self._progress.disable:
            return
        done = self._search.done
        pace = (time.perf_counter() - self._begun) / max(1, done - self._first)
        left = clock(max(0, self._loop.iterations - done) * pace)
        self._progress.update(self._task, completed=done, text=self._search.summary(), left=left)


class _Stopping(ProgressColumn):
    """Shows that a Ctrl-C was noticed while the current iteration goes on."""

    def __init__(self, stop: Interrupt) -> None:
        super().__init__()
        self._stop = stop

    def render(self, task: Task) -> Text:
        """Return the text of the column."""
        return Text("stopping" if self._stop else "", style="yellow")


def has_stalled(losses: Sequence[float], patience: int, tolerance: float) -> bool:
    """Return whether the last `patience` losses are not below the ones before by the fraction `tolerance`."""
    if len(losses) <= patience:
        return False
    before, lately = min(losses[:-patience]), min(losses[-patience:])
    return not lately < before - tolerance * abs(before)


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
