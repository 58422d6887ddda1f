"""Search without gradients: CMA-ES by the package `cma`, and random shooting; a population is one batch of worlds."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from pullback.control.search.options import SearchSettings
from pullback.control.search.search import Evaluation, Method
from pullback.core.errors import PullbackError

Tensor = torch.Tensor

DIAGONAL_FROM = 500
"""From this dimension on CMA-ES adapts only the diagonal of its covariance (sep-CMA-ES): the full one costs n³."""
POPULATION = 32
"""Default population of random shooting."""


def make_gradient_free(name: str, centre: Tensor, settings: SearchSettings) -> Method:
    """Return "cma" or "random" around a centre (n,)."""
    population, spread, seed = settings.population, settings.spread, settings.seed
    if not 0.0 < spread < float("inf"):
        raise PullbackError(f"spread is {spread}; give a positive standard deviation")
    if population is not None and population < 2:
        raise PullbackError(f"population is {population}; give 2 or more")
    if name == "cma":
        return Evolution(centre, population, spread, seed)
    return RandomShooting(centre, population or POPULATION, spread, seed)


class Normal:
    """Normal numbers from a generator of their own: `cma` would use numpy's global one."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.RandomState(seed)

    def __call__(self, *shape: int) -> np.ndarray:
        """Return numbers of this shape."""
        return self.generator.randn(*shape)


class Evolution:
    """CMA-ES. Candidates that are not finite count as the worst of their population.

    The strategy is a function of its start, its seed and the losses it was told. A checkpoint holds these losses, and
    a resumed search replays them: plain numbers, where the package itself would pickle.
    """

    name, uses_gradient, ended = "cma", False, ""

    def __init__(self, centre: Tensor, population: int | None, spread: float, seed: int) -> None:
        try:
            import cma
        except ImportError:
            raise PullbackError("CMA-ES needs the package cma: pip install 'pullback[search]'") from None
        if centre.numel() < 2:
            raise PullbackError("CMA-ES needs at least two variables; use method='random' or a gradient method")
        self._like, self.settings = centre, {"spread": spread, "population": population}
        options: dict[str, Any] = {"verbose": -9, "randn": Normal(seed), "seed": np.nan, "CMA_diagonal": False}
        # minimize decides when to stop
        options |= {"tolfun": 0, "tolx": 0, "tolfunhist": 0, "tolstagnation": 0, "tolflatfitness": 1_000_000}
        if population is not None:
            options["popsize"] = population
        if centre.numel() >= DIAGONAL_FROM:
            options["CMA_diagonal"] = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._strategy = cma.CMAEvolutionStrategy(centre.cpu().double().numpy(), spread, options)
        self._asked: list[np.ndarray] = []
        self._told: list[Tensor] = []

    @property
    def population(self) -> int:
        """Candidates per iteration."""
        return int(self._strategy.popsize)

    def ask(self) -> Tensor:
        """Return a population."""
        self._asked = self._strategy.ask()
        return torch.as_tensor(np.stack(self._asked)).to(self._like)

    def tell(self, found: Evaluation) -> None:
        """Rank the population and adapt."""
        self._tell(torch.where(found.bad, torch.inf, found.losses).double().cpu())

    def _tell(self, losses: Tensor) -> None:
        """Rank the population by losses (population,), infinite where they are not finite."""
        self._told.append(losses)
        worst = losses[losses.isfinite()].max()
        ranked = torch.where(losses.isfinite(), losses, worst + 1.0 + worst.abs())
        self._strategy.tell(self._asked, ranked.tolist())

    def state(self) -> dict[str, Any]:
        """Return the losses of all finished iterations, and what they led to."""
        losses = torch.stack(self._told) if self._told else torch.zeros(0, self.population, dtype=torch.float64)
        return {"losses": losses, "mean": torch.as_tensor(self._strategy.mean), "sigma": float(self._strategy.sigma)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Replay the losses of a saved search, and check that they lead to the same state."""
        losses, mean = state["losses"], state["mean"]
        if losses.ndim != 2 or losses.shape[1] != self.population or losses.dtype != torch.float64:
            raise PullbackError(f"it has losses of shape {tuple(losses.shape)}; expected (n, {self.population})")
        for row in losses:
            self._asked = self._strategy.ask()
            self._tell(row)
        if not torch.equal(torch.as_tensor(self._strategy.mean), mean) or self._strategy.sigma != state["sigma"]:
            raise PullbackError(
                "its losses do not lead to its state: it was written from another start, or with another version of "
                "cma or numpy"
            )


class RandomShooting:
    """Independent normal draws around the centre, which is the first candidate itself."""

    name, uses_gradient, ended = "random", False, ""

    def __init__(self, centre: Tensor, population: int, spread: float, seed: int) -> None:
        self._centre, self.population, self._spread = centre, population, spread
        self.settings = {"spread": spread, "population": population}
        self._generator, self._done = torch.Generator().manual_seed(seed), 0
        # the random state before candidates that were asked for and not evaluated yet
        self._before = self._generator.get_state()

    def ask(self) -> Tensor:
        """Return new draws."""
        self._before = self._generator.get_state()
        noise = torch.randn(self.population, len(self._centre), dtype=torch.float64, generator=self._generator)
        if self._done == 0:
            noise[0] = 0.0
        return self._centre + self._spread * noise.to(self._centre)

    def tell(self, found: Evaluation) -> None:
        """Count the iteration."""
        self._done += 1
        self._before = self._generator.get_state()

    def state(self) -> dict[str, Any]:
        """Return the random state after the last finished iteration."""
        return {"generator": self._before, "done": self._done}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        self._generator.set_state(state["generator"])
        self._done = state["done"]
