"""Settings that short-horizon algorithms share; the defaults are those published of SHAC for the ant."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from typing_extensions import Self

from pullback.core.errors import PullbackError, refuse_unknown_options
from pullback.learn.env import Env


@dataclass(frozen=True)
class Config:
    """Settings of SHAC; the defaults are those published for the ant."""

    algorithm: ClassVar[str] = "shac"
    own: ClassVar[tuple[str, ...]] = ()
    """Settings for which what an environment asks of SHAC does not count."""

    iterations: int = 2000
    """Iterations in all; learning rates fall linearly to `last_rate` by then."""
    horizon: int = 32
    """Steps of an iteration, through which gradients pass."""
    discount: float = 0.99
    """What a reward is worth a step later, γ."""
    trace: float = 0.95
    """λ of the critic's TD(λ) returns: 0 looks one step ahead, 1 to the end of the horizon."""
    actor_hidden: tuple[int, ...] = (128, 64, 32)
    """Units of the policy's hidden layers."""
    critic_hidden: tuple[int, ...] = (64, 64)
    """Units of the critic's hidden layers."""
    actor_rate: float = 2e-3
    """Learning rate of the policy (Adam)."""
    critic_rate: float = 2e-3
    """Learning rate of the critic (Adam)."""
    last_rate: float = 1e-5
    """What both have fallen to in the last iteration."""
    betas: tuple[float, float] = (0.7, 0.95)
    """Decay of Adam's averages."""
    gradient_norm: float = 1.0
    """Length to which gradients are clipped."""
    critics: int = 1
    """Critics, each with weights of its own."""
    critic_passes: int = 16
    """Passes of the critics over the steps of an iteration, at most."""
    critic_batches: int = 4
    """Batches that a pass is split into."""
    critic_tolerance: float = 0.0
    """Passes end when the error of the last five changes by less than this on average; 0: they do not."""
    target_mixing: float | None = 0.2
    """What stays of the target network when the critic is mixed into it; None: there is no target network."""
    log_std: float = -1.0
    """Logarithm of the first standard deviation of actions, before tanh."""
    critic: bool = True
    """Without: no value after the last step, plain back-propagation through time."""
    seed: int = 0
    """Seed of the networks and of the actions' noise."""

    @classmethod
    def of(cls, env: Env, **changes: Any) -> Self:
        """Return the settings that suit an environment, with changes."""
        refuse_unknown_options(f"{cls.algorithm}.Config", changes, [field.name for field in fields(cls)])
        asked = {name: value for name, value in env.suggested().items() if name not in cls.own}
        return cls(**{**asked, **changes})

    def __post_init__(self) -> None:
        least = {
            "iterations": 1, "horizon": 1, "critics": 1, "critic_passes": 1, "critic_batches": 1, "actor_rate": 0.0,
        }  # fmt: skip
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise PullbackError(f"{name} is {getattr(self, name)}; give at least {bound}")
        for name in ("discount", "trace", "target_mixing"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise PullbackError(f"{name} is {value}; give a number from 0 to 1")
