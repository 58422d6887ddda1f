"""What searches for a policy share: how many iterations are done, the clock, the normaliser, and a score by steps."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from rich.console import Console

from pullback.core.errors import PullbackError
from pullback.core.search_loop import Checkpoint, SearchLoop
from pullback.learn.env import Env
from pullback.learn.networks import Policy

Tensor = torch.Tensor


class Timed(Protocol):
    """A report of an iteration."""

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        ...


Report = TypeVar("Report", bound=Timed)


@dataclass(frozen=True)
class Watch:
    """A number that tells how good a policy is, looked at now and then: success, say."""

    score: Callable[[Policy], float]
    every: int = 50
    """Iterations from one look to the next; the first comes before any learning."""


class Learner(Generic[Report]):
    """A policy of an environment that improves by iterations; a search of `core/search_loop.py`."""

    ended = ""
    """Nothing but the number of iterations ends it."""

    def __init__(self, env: Env, policy: Policy | None, fresh: Callable[[], Policy], watch: Watch | None) -> None:
        """Take a policy that was trained before and knows its observations, or make a fresh one."""
        sizes = env.observation_size, env.action_size
        if policy is not None and (policy.sizes[0], policy.sizes[-1]) != sizes:
            raise PullbackError(
                f"the policy is from {policy.sizes[0]} to {policy.sizes[-1]} numbers, {env.name} from {sizes[0]} to "
                f"{sizes[1]}; give a policy of this environment"
            )
        self.env = env
        self.policy = fresh().to(env.device) if policy is None else policy
        self.normalizes = policy is None
        self.history: list[Report] = []
        self._watch = watch
        self._began = time.perf_counter()

    @property
    def done(self) -> int:
        """Number of finished iterations."""
        return len(self.history)

    @property
    def seconds(self) -> float:
        """Time since the beginning, that before a resume included."""
        return time.perf_counter() - self._began

    def restore(self, history: list[Report]) -> None:
        """Go on from the reports of earlier iterations."""
        self.history = history
        self._began = time.perf_counter() - (history[-1].seconds if history else 0.0)

    def look(self) -> float:
        """Return the policy's score where it is time to look, else NaN."""
        if self._watch is None or self.done % self._watch.every:
            return float("nan")
        began = time.perf_counter()
        score = self._watch.score(self.policy)
        # looking is no part of learning
        self._began += time.perf_counter() - began
        return score

    def learn_observations(self, seen: list[Tensor]) -> None:
        """Let the normaliser take in observations (B, n) of some steps."""
        assert self.policy.normalizer is not None
        self.policy.normalizer.update(torch.cat(seen))

    # -- what a subclass has ---------------------------------------------------------------------------------------

    config: Any
    """Its settings, a dataclass with `iterations`."""

    @abstractmethod
    def iterate(self) -> None:
        """Improve the policy once, and append a report to the history."""

    @abstractmethod
    def summary(self) -> str:
        """Return the text beside the progress bar."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return all that later iterations depend on."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""


SearchT = TypeVar("SearchT", bound=Learner[Any])


def run_learner(
    search: SearchT,
    label: str,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    console: Console | None = None,
) -> SearchT:
    """Run a search until its iterations are used up, and return it.

    `checkpoint` is a file to save to every 30 s and at the end; with `resume` training goes on from it.
    """
    config, saved = search.config, None
    if checkpoint is not None:
        settings = {**search.env.settings, **{k: v for k, v in asdict(config).items() if k != "iterations"}}
        saved = Checkpoint(search, Path(checkpoint), settings)
        saved.begin(resume)
    elif resume:
        raise PullbackError("resume=True needs the checkpoint to go on from; give checkpoint='file.pt'")
    SearchLoop(config.iterations, label, progress, console, save_every=30.0).run(search, saved)
    return search
