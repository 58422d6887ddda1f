"""Adam with steps that grow shorter and gradients that are clipped: how tasks through soft contact search."""

from __future__ import annotations

import torch
from rich.console import Console

from pullback.control.search.evaluate import Objective
from pullback.control.search.methods import cosine_schedule
from pullback.control.search.search import Found
from pullback.control.search.shooting import minimize

Tensor = torch.Tensor

LONGEST_GRADIENT = 1.0


def descend(loss: Objective, start: Tensor, iterations: int, learning_rate: float, console: Console) -> Found:
    """Return what is found from each row of `start` (B, n)."""
    return minimize(
        loss, start, iterations=iterations, learning_rate=learning_rate, longest_gradient=LONGEST_GRADIENT,
        schedule=cosine_schedule(iterations), label="gradient", console=console,
    )  # fmt: skip
