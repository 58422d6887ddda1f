"""Gradient descent on the parameters of a module by Adam or L-BFGS, one iteration at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import isfinite
from typing import Any

import torch

from pullback.core.errors import PullbackError
from pullback.core.search_loop import has_stalled

Tensor = torch.Tensor

LEARNING_RATES = {"adam": 1e-2, "lbfgs": 1.0}
"""Optimisers and their default learning rates."""
KEPT = ("losses", "best_loss", "best_iteration", "best", "seconds", "evaluations", "at_rest")
"""Attributes that a checkpoint keeps."""


class ModuleDescent:
    """A search over the parameters of a module that require a gradient, for the lowest `objective()`.

    "lbfgs" is torch's, with a strong-Wolfe line search of one or several gradients an iteration. The search ends when
    the optimiser no longer moves, or when `patience` iterations do not lower the loss by the fraction `tolerance`.
    """

    def __init__(
        self,
        objective: Callable[[], Tensor],
        module: torch.nn.Module,
        optimizer: str = "adam",
        learning_rate: float | None = None,
        patience: int | None = None,
        tolerance: float = 0.0,
    ) -> None:
        if optimizer not in LEARNING_RATES:
            raise PullbackError(f"optimizer is {optimizer!r}; choose from {', '.join(map(repr, LEARNING_RATES))}")
        self.learning_rate = LEARNING_RATES[optimizer] if learning_rate is None else learning_rate
        if not self.learning_rate > 0.0:
            raise PullbackError(f"learning_rate is {self.learning_rate:g}; expected a positive number")
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        if not self.parameters:
            raise PullbackError("the module has no parameter that requires a gradient; there is nothing to optimise")
        self.objective, self.module, self.patience, self.tolerance = objective, module, patience, tolerance
        self.optimizer = _make_optimizer(optimizer, self.parameters, self.learning_rate)
        self.losses: list[float] = []
        """The loss at the beginning of each iteration."""
        self.best: dict[str, Tensor] = {}
        self.best_loss, self.best_iteration, self.at_rest = float("inf"), -1, False
        self.seconds, self.evaluations = 0.0, 0
        # points of this iteration with loss and gradient: a line search ends where the next iteration begins
        self._seen: list[tuple[list[Tensor], Tensor, list[Tensor]]] = []

    @property
    def done(self) -> int:
        """Number of finished iterations."""
        return len(self.losses)

    @property
    def ended(self) -> str:
        """Why the search is over, or an empty string."""
        if self.at_rest:
            return "converged"
        stalled = self.patience is not None and has_stalled(self.losses, self.patience, self.tolerance)
        return "patience" if stalled else ""

    @property
    def score(self) -> float:
        """What sweeps compare: the best loss."""
        return self.best_loss

    def summary(self) -> str:
        """Return the last and the best loss as text."""
        return f"loss {self.losses[-1]:.4g}, best {self.best_loss:.4g}" if self.losses else ""

    def iterate(self) -> None:
        """Take one step of the optimiser."""
        start = time.perf_counter()
        before = [p.detach().clone() for p in self.parameters]
        losses: list[float] = []

        def closure() -> Tensor:
            loss = self._evaluate()
            losses.append(loss.item())
            return loss

        self.optimizer.step(closure)  # type: ignore[arg-type]
        self._seen = [point for point in self._seen if self._is_here(point[0])]
        self.at_rest = self._is_here(before)
        self.losses.append(losses[0])
        self.seconds += time.perf_counter() - start

    def restore_best(self) -> None:
        """Put the best values into the module."""
        if self.best:
            self.module.load_state_dict(self.best)

    def _evaluate(self) -> Tensor:
        """Return the loss and set the gradients, computed anew unless this point was seen in this iteration."""
        for values, loss, gradients in self._seen:
            if self._is_here(values):
                for p, gradient in zip(self.parameters, gradients):
                    p.grad = gradient.clone()
                return loss
        self.optimizer.zero_grad()
        with torch.enable_grad():
            loss = self.objective()
            self._check_loss(loss)
            loss.backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for p in self.parameters]
        if not all(bool(g.isfinite().all()) for g in gradients):
            text = f"the gradient in iteration {self.done} is not finite (loss {loss.item():g})"
            raise PullbackError(text + self._advice())
        self.evaluations += 1
        if loss.item() < self.best_loss:
            self.best_loss, self.best_iteration, self.best = loss.item(), self.done, _values(self.module)
        if isinstance(self.optimizer, torch.optim.LBFGS):
            self._seen.append(([p.detach().clone() for p in self.parameters], loss.detach(), gradients))
        return loss.detach()

    def _is_here(self, values: list[Tensor]) -> bool:
        return all(torch.equal(p.detach(), value) for p, value in zip(self.parameters, values))

    def _check_loss(self, loss: Tensor) -> None:
        """Raise unless the loss is one finite number that depends on the parameters."""
        if loss.numel() != 1:
            raise PullbackError(f"the objective returned shape {tuple(loss.shape)}; expected one number")
        if not isfinite(loss.item()):
            raise PullbackError(f"the loss in iteration {self.done} is {loss.item()}{self._advice()}")
        if not loss.requires_grad:
            raise PullbackError("the objective does not depend on the module's parameters; call the module inside it")

    def _advice(self) -> str:
        """Say what is left after an error, and what may help."""
        if not self.losses:
            return "; check the objective at the start values"
        where = f"iteration {self.best_iteration} (loss {self.best_loss:.4g})"
        return f"; the module holds the best values, of {where}. A smaller learning_rate may help"

    def state(self) -> dict[str, Any]:
        """Return values, the optimiser's state, the history and torch's random numbers."""
        return {
            "module": _values(self.module),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            **{name: getattr(self, name) for name in KEPT},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        try:
            self.module.load_state_dict(state["module"])
        except RuntimeError:
            raise PullbackError(f"it was written for another module than {self.module}") from None
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        for name in KEPT:
            setattr(self, name, state[name])


def _make_optimizer(name: str, parameters: list[torch.nn.Parameter], rate: float) -> torch.optim.Optimizer:
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    # one iteration a call; the search ends when no parameter moves, so torch's own tolerances are off
    return torch.optim.LBFGS(
        parameters, lr=rate, max_iter=1, max_eval=30, line_search_fn="strong_wolfe", tolerance_grad=0.0,
        tolerance_change=0.0, history_size=20,
    )  # fmt: skip


def _values(module: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}
