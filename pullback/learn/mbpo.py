"""Model-based policy optimisation (Janner et al., 2019): SAC, most of whose transitions a learned model predicts.

Every few steps the ensemble of each seed (`ensemble.py`) is fitted to what was stored, and short rollouts of the policy
in it, from stored states, fill a second buffer; updates draw one transition in twenty from the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from pullback.core.errors import PullbackError
from pullback.learn.ensemble import Ensemble, EnsembleConfig
from pullback.learn.env import Env
from pullback.learn.replay import Replay, Rows
from pullback.learn.sac import SAC, SACConfig

Tensor = torch.Tensor

KEPT = 2**31
"""Bytes of predicted transitions up to which a checkpoint has them; of more a resumed run makes new ones."""


@dataclass(frozen=True)
class MBPOConfig(SACConfig):
    """Settings of MBPO; the defaults are those published for the ant."""

    algorithm: ClassVar[str] = "mbpo"

    updates: int = 20
    """Updates of the networks after each action."""
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    """Settings of the model."""
    fit_every: int = 250
    """Actions after which the model is fitted again and rollouts are made."""
    fit_growth: float = 0.0
    """Share by which the actions taken must have grown since the last fit; rollouts are made all the same."""
    rollouts: int = 100_000
    """Rollouts that are made then, of each seed; a multiple of the elites."""
    lengths: tuple[int, int, int, int] = (20, 100, 1, 25)
    """Epochs between which the length of rollouts grows, and from which to which length."""
    retain: int = 1
    """Epochs for which the transitions of rollouts are kept."""
    real: float = 0.05
    """Share of an update's transitions that are true ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rollouts < 1 or self.rollouts % self.ensemble.elites:
            raise PullbackError(f"rollouts is {self.rollouts}; give a multiple of the {self.ensemble.elites} elites")
        if self.fit_growth < 0.0:
            raise PullbackError(f"fit_growth is {self.fit_growth}; give 0 or more")
        if self.actor != "critic":
            raise PullbackError("transitions of a learned model have no Jacobian: policy enhancement is of SAC alone")
        if not 0.0 <= self.real <= 1.0:
            raise PullbackError(f"real is {self.real}; give a number from 0 to 1")

    def length(self, epoch: int) -> int:
        """Return how long rollouts are in an epoch, counted from 1."""
        first, last, short, long = self.lengths
        share = min(max((epoch - first) / max(1, last - first), 0.0), 1.0)
        return int(short + share * (long - short))


class MBPO(SAC):
    """A training run of several seeds, each with a model of its own.

    The environment has a method `ends_at(observation)`: whether an episode ends there, which the model does not learn.
    """

    Config: ClassVar[type[SACConfig]] = MBPOConfig

    def __init__(self, env: Env, trial: Env, config: MBPOConfig, device: torch.device | str | None = None) -> None:
        ends: Any = getattr(env, "ends_at", None)
        if ends is None:
            raise PullbackError(
                f"{env.name} has no method ends_at(observation): MBPO asks it whether an observation ends an episode"
            )
        super().__init__(env, trial, config, device)
        self.ends_at, self.config = ends, config
        sizes = env.observation_size, env.action_size
        self.ensemble = Ensemble(
            config.seeds, sizes, config.ensemble, config.seed, self.device, compiled=config.compiled
        )
        self.predicted = self._pool(1)
        self.model_error, self.passes, self.fitted = float("nan"), 0, 0

    def _pool(self, length: int) -> Replay:
        """Return room for what rollouts of a length predict in the epochs for which it is kept."""
        config: Any = self.config
        each = -(-config.epoch_steps // config.fit_every) * config.rollouts
        return Replay(config.seeds, config.retain * each * length, self.shapes(), self.env.dtype, self.device)

    def prepare(self) -> None:
        """Fit the model, if there is enough that is new, and roll out in it, every `fit_every` steps."""
        config = self.config
        if self.predicted.count and self.steps % config.fit_every:
            return
        length = config.length(self.done + 1)
        room = self._pool(length)
        if room.capacity != self.predicted.capacity:
            self.predicted = self.predicted.resized(room.capacity) if self.predicted.count else room
            self.improve.forget()
        if self.steps >= (1.0 + config.fit_growth) * self.fitted:
            copies = 1 + (config.extra.count if config.extra else 0)
            self.model_error, self.passes = self.ensemble.fit(self.replay.all(), self.random, copies)
            self.fitted = self.steps
        self._roll_out(length)

    @torch.no_grad()
    def _roll_out(self, length: int) -> None:
        """Let the policies act in the models from stored states; what ended begins again at another stored state.

        A prediction that is not believed is replaced by a stored transition: squares of its errors would grow until
        they overflow.
        """
        config = self.config
        observation = self.replay.sample(config.rollouts, self.random)["observation"]
        for _ in range(length):
            action = self.policy.sample(observation, self.noise(*observation.shape[:2], self.env.action_size))[0]
            reward, after = self.ensemble.predict(observation, action, self.random)
            ended, believed = self.ends_at(after), self.ensemble.believes(reward, after)
            predicted = {
                "observation": observation, "action": action, "reward": reward, "next": after,
                "terminated": ended.to(reward),
            }  # fmt: skip
            stored = self.replay.sample(config.rollouts, self.random)
            self.predicted.add(
                {
                    name: torch.where(believed[..., None] if x.ndim > 2 else believed, x, stored[name])
                    for name, x in predicted.items()
                }
            )
            goes_on = (believed & ~ended)[..., None]
            observation = torch.where(goes_on, after, stored["observation"])

    def draw(self) -> Rows:
        """Return transitions of which a share is true."""
        true = int(self.config.real * self.config.batch)
        parts = [self.predicted.sample(self.config.batch - true, self.random)]
        if true:
            parts.append(self.replay.sample(true, self.random))
        return {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}

    def extras(self) -> dict[str, float]:
        """Return the model's error on what was held out, its passes, and the length of rollouts."""
        return {
            "model_error": self.model_error, "model_passes": float(self.passes),
            "rollout_length": float(self.config.length(self.done)),
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        """Return everything that later epochs depend on."""
        kept = self.predicted.packed[:, : self.predicted.count].nbytes <= KEPT
        own = {"ensemble": self.ensemble.state(), "predicted": self.predicted.state() if kept else None}
        return {**super().state(), **own, "model": [self.model_error, self.passes, self.fitted]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        super().load_state(state)
        self.ensemble.load_state(state["ensemble"])
        predicted = state["predicted"]
        if predicted is None:
            # which `prepare` fills
            self.predicted = self._pool(self.config.length(self.done + 1))
        else:
            kind = self.env.dtype, self.device
            self.predicted = Replay(self.config.seeds, predicted["capacity"], self.shapes(), *kind)
            self.predicted.load_state(predicted)
        self.model_error, self.passes, self.fitted = state["model"]
