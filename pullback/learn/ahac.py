"""Adaptive-horizon actor-critic (AHAC): SHAC whose horizon is as long as contact lets gradients be.

Georgiev et al., "Adaptive horizon actor-critic for policy learning in contact-rich differentiable simulation", ICML
2024. Gradients through stiff contact grow from step to step, so the horizon is a variable of the problem: maximise the
return subject to |∂f(s_t, a_t)| ≤ C in each of its steps, f one step of the simulation. With multipliers φ_t,

    φ_t  <-  φ_t + α (|∂f(s_t, a_t)| - C),        H  <-  H - α Σ φ_t,        within the shortest and the longest.

Published, |∂f| is estimated from contact forces over accelerations, C is 500 and α 5e-4. Here the adjoint itself tells:
the stiffness of a step is the factor by which it lengthens the gradient by the state, which costs nothing, has no unit,
and is the thing that the constraint is about; C and α differ accordingly. As published: two critics, the smaller value
counts, no target network, and passes of the critics until their error settles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from pullback.core.errors import PullbackError
from pullback.core.ranks import ranks
from pullback.learn.config import Config
from pullback.learn.gradients import Slopes
from pullback.learn.short_horizon import ShortHorizon
from pullback.learn.window import Window

MOST = 1e3
"""Factors beyond this count as this."""


@dataclass(frozen=True)
class AHACConfig(Config):
    """Settings of AHAC; the defaults are those published, but for `stiffness` and `horizon_rate`, see above."""

    algorithm: ClassVar[str] = "ahac"
    own: ClassVar[tuple[str, ...]] = ("horizon",)

    horizon: int = 16
    """Steps of the first iteration."""
    shortest: int = 8
    """The least number of steps."""
    longest: int = 64
    """The largest number of steps."""
    stiffness: float = 1.1
    """C: the factor by which a step may lengthen the gradient by the state, in the mean over worlds."""
    horizon_rate: float = 0.05
    """α of multipliers and horizon."""
    actor_hidden: tuple[int, ...] = (400, 200, 100)
    critic_hidden: tuple[int, ...] = (400, 200, 100)
    critics: int = 2
    critic_passes: int = 64
    critic_tolerance: float = 0.2
    target_mixing: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.shortest <= self.horizon <= self.longest:
            raise PullbackError(
                f"shortest is {self.shortest}, horizon {self.horizon}, longest {self.longest}; give 2 or more steps, "
                f"in this order"
            )


class AHAC(ShortHorizon):
    """A run of AHAC."""

    Config: ClassVar[type[Config]] = AHACConfig
    wants_states: ClassVar[bool] = True
    config: AHACConfig

    def __init__(self, env: Any, config: AHACConfig | None = None) -> None:
        super().__init__(env, config)
        self.length = float(self.config.horizon)
        """The horizon, before it is rounded."""
        self.multipliers = torch.zeros(self.config.longest, dtype=torch.float64)

    @property
    def horizon(self) -> int:
        """Steps of the next iteration."""
        return round(self.length)

    def adapt(self, window: Window, slopes: Slopes) -> dict[str, float]:
        """Move multipliers and horizon by how much each step lengthened the gradient."""
        config = self.config
        grown = growth(slopes.by_state)
        if grown is not None:
            steps = len(grown)
            self.multipliers[:steps] += config.horizon_rate * (grown - config.stiffness)
            wanted = self.length - config.horizon_rate * float(self.multipliers[:steps].sum())
            self.length = min(max(wanted, config.shortest), config.longest)
            if wanted != self.length:
                # at the end of its range, what would push it further is forgotten
                self.multipliers.zero_()
        mean = float("nan") if grown is None else float(grown.mean())
        return {"horizon": self.length, "stiffness": mean}

    def state(self) -> dict[str, Any]:
        """Return everything that later iterations depend on."""
        return {**super().state(), "length": self.length, "multipliers": self.multipliers}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        super().load_state(state)
        self.length, self.multipliers = state["length"], state["multipliers"].clone()


def growth(by_state: torch.Tensor | None) -> torch.Tensor | None:
    """Return by how much each step but the first lengthened the gradient by the state, from lengths (H, B), on a CPU.

    The mean over worlds is that of logarithms, so that one world cannot decide; worlds without gradient do not count.
    """
    if by_state is None or len(by_state) < 2:
        return None
    before, after = by_state[:-1], by_state[1:]
    counts = (before > 0.0) & (after > 0.0) & before.isfinite() & after.isfinite()
    ratio = torch.where(counts, before / after, torch.ones_like(before)).clamp(1.0 / MOST, MOST)
    total, number = ranks().sum(torch.stack([ratio.log().sum(1), counts.sum(1).to(ratio)]))
    return (total / number.clamp(min=1)).exp().double().cpu()
