"""What studies of learning share: options, and learners that train one seed after the other, SHAC and PPO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pullback.core.errors import PullbackError
from pullback.learn import Config, Env, Policy, PPOConfig, Watch, evaluate, make, train, train_ppo
from pullback.learn.recorded import rounding
from pullback.learn.seeded import First
from pullback.tasks.common.learning_curves import Curves
from pullback.tasks.common.threads import simulation_threads

TRIALS = 10
"""Trials of PPO while it learns."""
TRIED = 4
"""Episodes of a trial."""


@dataclass
class StudyOptions:
    """Options of every study."""

    width: int = 256
    """Units of each of the two hidden layers."""
    batch: int = 256
    """Transitions of an update."""
    first_weights: First = "torch"
    """How weights are drawn at first: torch, as torch does, or glorot, as Keras and so the released code do."""
    model_width: int = 200
    """Units of each hidden layer of MBPO's models."""
    fit_growth: float = 0.0
    """Share by which the actions taken must have grown until these models are fitted again; 0: every 250 actions."""
    worlds: int = 1
    """Worlds of a seed in which SAC and MBPO act side by side; with more, as many updates come after fewer steps."""
    quick: bool = False
    """A few steps of everything, to see that it runs."""
    resume: bool = False
    """Go on from the checkpoints in the output folder."""
    seed: int = 0
    """The first seed."""
    out: Path = Path("out")
    """Folder for checkpoints, curves, tables and the picture."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""
    env_device: str = ""
    """Where worlds are stepped, if elsewhere: a few are faster on the CPU."""
    compiled: bool = False
    """On a GPU: let torch.compile make few kernels of an update's many, a minute at first."""
    tf32: bool = False
    """On an NVIDIA GPU: let matrix products round their factors to 11 bits, which is faster."""


@contextmanager
def computing(options: StudyOptions) -> Iterator[None]:
    """Use the threads and the rounding that a study asks for, while it lasts."""
    with simulation_threads(), rounding(options.tf32):
        yield


def share_actions(settings: dict[str, Any], worlds: int) -> dict[str, Any]:
    """Return settings of SAC or MBPO, given for one world of a seed, for several that act at once.

    A seed takes as many actions in an epoch, and as many updates after an action.
    """
    given = dict(settings)
    if given["epoch_steps"] % worlds:
        raise PullbackError(f"worlds is {worlds}; give a divisor of the {given['epoch_steps']} actions of an epoch")
    for name in ("epoch_steps", "random_steps", "first_update", "fit_every"):
        if name in given:
            given[name] = max(1, given[name] // worlds) if given[name] else 0
    return {**given, "updates": given["updates"] * worlds}


@dataclass(frozen=True)
class Budget:
    """How much a method may try."""

    seeds: int
    seed: int
    """The first."""
    steps: int
    """Steps of worlds, of each seed."""
    worlds: int
    """Worlds of a seed."""
    horizon: int
    """Steps of an iteration in each of them."""
    episode: int | None = None
    """Steps of an episode, where they are not the environment's."""

    @property
    def iterations(self) -> int:
        """Iterations within the budget."""
        return max(1, self.steps // (self.worlds * self.horizon))


def train_shac(
    name: str, given: Mapping[str, Any], case: str, budget: Budget, file: Path, resume: bool
) -> tuple[Curves, list[Policy]]:
    """Return the curves of SHAC in a shipped environment with options `given`, and the policies.

    The curve is the mean return of the last episodes with noise; the last point is that of the policies of the mean.
    """
    runs, last = [], []
    for seed in range(budget.seed, budget.seed + budget.seeds):
        env, trial = _worlds(name, given, budget, seed)
        config = Config.of(env, horizon=budget.horizon, iterations=budget.iterations, seed=seed)
        own = file.with_name(f"{file.stem}_{seed}.pt")
        run = train(env, config, checkpoint=own, resume=resume and own.exists(), progress=False)
        runs.append(run)
        last.append(evaluate(trial, run.policy, seed).mean().item())
    steps = [report.steps for report in runs[0].history]
    returns = np.array([[report.episode_return for report in run.history] for run in runs]).T
    # before the first episode is over there is no return
    there = ~np.isnan(returns).any(1)
    kept = [n for n, here in zip(steps, there) if here]
    curve = Curves("shac", case, [*kept, steps[-1]], [*returns[there].tolist(), last], sum(r.seconds for r in runs))
    return curve, [run.policy for run in runs]


def train_ppo_seeds(name: str, given: Mapping[str, Any], case: str, budget: Budget, file: Path, resume: bool) -> Curves:
    """Return the curves of PPO in a shipped environment with options `given`."""
    curves, seconds = [], 0.0
    every = max(1, budget.iterations // TRIALS)
    for seed in range(budget.seed, budget.seed + budget.seeds):
        env, trial = _worlds(name, given, budget, seed)
        watch = Watch(lambda policy, trial=trial, seed=seed: evaluate(trial, policy, seed).mean().item(), every)
        own = file.with_name(f"{file.stem}_{seed}.pt")
        config = PPOConfig(budget.iterations, horizon=budget.horizon, hidden=(64, 64), seed=seed)
        search = train_ppo(
            env, config, watch=watch, checkpoint=own, resume=resume and own.exists(), progress=False
        )  # fmt: skip
        scores = [report.score for report in search.history[::every]]
        curves.append([*scores, watch.score(search.policy)])
        seconds += search.history[-1].seconds
    taken = [*range(0, budget.iterations, every), budget.iterations]
    steps = [n * budget.worlds * budget.horizon for n in taken]
    return Curves("ppo", case, steps, np.array(curves).T.tolist(), seconds)


def _worlds(name: str, given: Mapping[str, Any], budget: Budget, seed: int) -> tuple[Env, Env]:
    """Return the environment to learn in, and the one to try policies in."""
    env, trial = make(name, budget.worlds, seed=seed, **given), make(name, TRIED, seed=seed, **given)
    if budget.episode is not None:
        env.episode = trial.episode = budget.episode
    return env, trial
