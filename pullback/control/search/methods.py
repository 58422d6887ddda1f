"""Methods of `minimize` that use gradients, and the choice of a method by name."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi
from typing import Any

import torch

from pullback.control.search.lbfgs import BatchLBFGS
from pullback.control.search.options import SearchSettings
from pullback.control.search.search import Evaluation, Method
from pullback.core.errors import PullbackError, unknown_name

Tensor = torch.Tensor
Optimizer = Callable[[list[Tensor]], torch.optim.Optimizer]

LEARNING_RATES = {"adam": 1e-2, "sgd": 1e-2, "lbfgs": 1e-1}
GRADIENT_FREE = ("cma", "random")
METHODS = (*LEARNING_RATES, *GRADIENT_FREE)
SHORTER, LONGER = 0.5, 1.1
"""Factors on the steps of a row: after an iteration in which it was not finite, and after any other, up to 1."""


class Descent:
    """A torch optimiser on all rows at once; torch's optimisers treat every number separately, so rows do not mix.

    A row that is not finite goes half way back to where it last was, and takes shorter steps for some iterations.
    """

    uses_gradient, ended = True, ""

    def __init__(self, z: Tensor, make: Optimizer, name: str, settings: SearchSettings) -> None:
        self.name, self.settings = name, {}
        self._z = z.clone().requires_grad_()
        # the last finite point of each row, and the share of a step of the optimiser that it takes
        self._finite, self._share = z.clone(), z.new_ones(len(z), 1)
        self._optimizer = make([self._z])
        if isinstance(self._optimizer, torch.optim.LBFGS):
            raise PullbackError("torch.optim.LBFGS mixes the rows and evaluates unasked; give method='lbfgs'")
        self._rates = [group["lr"] for group in self._optimizer.param_groups]
        self._schedule, self._longest, self._done = settings.schedule, settings.longest_gradient, 0

    def ask(self) -> Tensor:
        """Return the current rows."""
        return self._z.detach().clone()

    def tell(self, found: Evaluation) -> None:
        """Take a step; rows that are not finite take a part of their last one back."""
        before, bad = self.ask(), found.bad[:, None]
        assert found.gradients is not None
        gradient = torch.where(bad, 0.0, found.gradients)
        if self._longest is not None:
            norm = gradient.norm(dim=1, keepdim=True)
            gradient = gradient * (self._longest / norm.clamp(min=self._longest))
        for group, rate in zip(self._optimizer.param_groups, self._rates):
            group["lr"] = rate * (1.0 if self._schedule is None else self._schedule(self._done))
        self._z.grad = gradient
        self._optimizer.step()
        self._done += 1
        with torch.no_grad():
            self._finite = torch.where(bad, self._finite, before)
            self._share = torch.where(bad, SHORTER * self._share, (LONGER * self._share).clamp(max=1.0))
            after = torch.where(self._share < 1.0, before.lerp(self._z, self._share), self._z)
            self._z.copy_(torch.where(bad, before.lerp(self._finite, 1.0 - SHORTER), after))

    def state(self) -> dict[str, Any]:
        """Return the rows and the optimiser's state."""
        rows = {"z": self.ask(), "finite": self._finite, "share": self._share}
        return {**rows, "optimizer": self._optimizer.state_dict(), "done": self._done}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        with torch.no_grad():
            self._z.copy_(state["z"])
        self._finite, self._share = (state[name].to(self._z.device) for name in ("finite", "share"))
        self._optimizer.load_state_dict(state["optimizer"])
        self._done = state["done"]


def make_method(method: str | Optimizer, z: Tensor, settings: SearchSettings) -> Method:
    """Return the method for unbounded numbers that start at z (B, n)."""
    if callable(method):
        if settings.learning_rate is not None:
            raise PullbackError("an optimiser of your own has its learning rate already; leave learning_rate out")
        return Descent(z, method, getattr(method, "__name__", "optimizer").strip("<>"), settings)
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if method in GRADIENT_FREE:
        from pullback.control.search.gradient_free import make_gradient_free

        return make_gradient_free(method, z[0], settings)
    rate = LEARNING_RATES[method] if settings.learning_rate is None else settings.learning_rate
    if not 0.0 < rate < float("inf"):
        raise PullbackError(f"learning_rate is {rate}; give a positive number")
    if method == "lbfgs":
        if settings.schedule is not None or settings.longest_gradient is not None:
            raise PullbackError("lbfgs finds its own step length; leave out schedule and longest_gradient")
        return BatchLBFGS(z, rate)
    kinds: dict[str, Any] = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    return Descent(z, lambda tensors: kinds[method](tensors, lr=rate), method, settings)


def cosine_schedule(iterations: int) -> Callable[[int], float]:
    """Return the factor on the learning rate that falls from 1 to 0 along half a cosine."""
    return lambda iteration: 0.5 + 0.5 * cos(pi * iteration / iterations)
