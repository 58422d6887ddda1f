"""Laser power over time, for an optimiser to change: as a network of time, as knots, or free in every step.

Each is a module that returns the power of all steps, (steps,) [W]. Its parameters are free numbers; the power is within
its bounds whatever they are: P = low + (high − low) (1 + tanh x) / 2. In steps in which the beam is not lit the power
does not count.
"""

from __future__ import annotations

from math import isfinite

import torch

from pullback.core.errors import PullbackError

Tensor = torch.Tensor
Bounds = tuple[float, float]

HIDDEN = 50
"""Units in each of the two hidden layers of the network."""
SPREAD = (10.0, 5.0, 2.0)
"""How much wider than usual the weights of the network's layers start: a wavy power over time."""


class Power(torch.nn.Module):
    """Power [W] in each of `steps` steps, between two bounds [W]."""

    def __init__(self, steps: int, bounds: Bounds) -> None:
        super().__init__()
        low, high = map(float, bounds)
        if steps < 1:
            raise PullbackError(f"steps is {steps}; expected one or more")
        if not (isfinite(high) and 0.0 <= low < high):
            raise PullbackError(f"bounds of the power are {low:g} and {high:g} W; expected 0 ≤ low < high")
        self.steps, self.bounds = int(steps), (low, high)

    def bounded(self, x: Tensor) -> Tensor:
        """Return powers [W] for unbounded numbers."""
        low, high = self.bounds
        # the clamp takes off what round-off may add
        return (low + (high - low) * 0.5 * (1.0 + torch.tanh(x))).clamp(low, high)

    def unbounded(self, watts: float | Tensor | None, count: int, dtype: torch.dtype) -> Tensor:
        """Return the unbounded numbers (count,) that give these powers [W]: one, (count,), or None for the middle."""
        low, high = self.bounds
        if watts is None:
            watts = 0.5 * (low + high)
        values = torch.as_tensor(watts, dtype=torch.float64).detach().cpu()
        if values.ndim > 1 or values.numel() not in (1, count):
            raise PullbackError(f"start has shape {tuple(values.shape)}; expected one number or ({count},)")
        bad = ((values < low) | (values > high) | ~values.isfinite()).reshape(-1).nonzero()
        if len(bad):
            raise PullbackError(
                f"start is {values.reshape(-1)[bad[0, 0]]:g} W; the power is bounded to {low:g} to {high:g} W"
            )
        # a start on a bound begins a little inside it, where the gradient is not zero
        share = ((values - low) / (high - low)).clamp(0.01, 0.99)
        return torch.atanh(2.0 * share - 1.0).expand(count).clone().to(dtype)


class NetworkPower(Power):
    """Power as a network of time: inputs [1, s, s²] with s from −1/2 to 1/2 over the steps, two hidden layers of tanh.

    The start is random, from the seed.
    """

    inputs: Tensor

    def __init__(
        self,
        steps: int,
        bounds: Bounds,
        *,
        seed: int = 0,
        hidden: int = HIDDEN,
        spread: tuple[float, float, float] = SPREAD,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(steps, bounds)
        generator = torch.Generator().manual_seed(seed)
        sizes = (3, hidden, hidden, 1)
        self.weights, self.biases = torch.nn.ParameterList(), torch.nn.ParameterList()
        for fan_in, fan_out, width in zip(sizes, sizes[1:], spread):
            weight = torch.randn(fan_out, fan_in, generator=generator, dtype=torch.float64)
            bias = torch.rand(fan_out, generator=generator, dtype=torch.float64) - 0.5
            self.weights.append(torch.nn.Parameter((width * (2.0 / fan_in) ** 0.5 * weight).to(dtype)))
            self.biases.append(torch.nn.Parameter(bias.to(dtype)))
        s = torch.arange(steps, dtype=dtype) / steps - 0.5
        self.register_buffer("inputs", torch.stack([torch.ones_like(s), s, s * s], -1), persistent=False)

    def forward(self) -> Tensor:
        """Return the power [W] in each step, (steps,)."""
        x = self.inputs
        for weight, bias in zip(self.weights[:-1], self.biases[:-1]):
            x = torch.tanh(x @ weight.T + bias)
        return self.bounded((x @ self.weights[-1].T + self.biases[-1])[:, 0])


class KnotPower(Power):
    """Power as straight lines between knots, evenly spaced from the first step to the last.

    start: powers [W] of the knots, (knots,) or one number; None: half way between the bounds.
    """

    place: Tensor

    def __init__(
        self,
        steps: int,
        bounds: Bounds,
        knots: int,
        *,
        start: float | Tensor | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(steps, bounds)
        if knots < 2:
            raise PullbackError(f"knots is {knots}; a straight line needs two")
        self.knots = torch.nn.Parameter(self.unbounded(start, knots, dtype))
        place = torch.arange(steps, dtype=torch.float64) * ((knots - 1) / max(steps - 1, 1))
        self.register_buffer("place", place, persistent=False)

    def forward(self) -> Tensor:
        """Return the power [W] in each step, (steps,)."""
        values = self.bounded(self.knots)
        before = self.place.floor().clamp(max=len(values) - 2)
        share, before = (self.place - before).to(values), before.long()
        return ((1.0 - share) * values[before] + share * values[before + 1]).clamp(*self.bounds)


class FreePower(Power):
    """Power that is free in every step; start: powers [W], (steps,) or one number; None: half way."""

    def __init__(
        self, steps: int, bounds: Bounds, *, start: float | Tensor | None = None, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__(steps, bounds)
        self.values = torch.nn.Parameter(self.unbounded(start, steps, dtype))

    def forward(self) -> Tensor:
        """Return the power [W] in each step, (steps,)."""
        return self.bounded(self.values)
