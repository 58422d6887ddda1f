"""What short-horizon algorithms share: an iteration acts for a horizon, improves the policy, and fits the critics.

An algorithm is a subclass, one a file (`shac.py`, `ahac.py`, `sapo.py`): it says how long the horizon is, what a state
is worth, what is added to rewards, and what is adapted after an iteration.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import torch

from pullback.core.errors import GradientError, PullbackError
from pullback.core.ranks import ranks
from pullback.learn.config import Config
from pullback.learn.critics import Critics
from pullback.learn.env import Env
from pullback.learn.gradients import Slopes, clip, order_variances, policy_slopes
from pullback.learn.networks import Policy
from pullback.learn.window import Window, collect

Tensor = torch.Tensor

RECENT = 100
"""Finished episodes whose mean return is reported."""


@dataclass(frozen=True)
class Report:
    """What one iteration did."""

    steps: int
    """Steps of worlds so far."""
    seconds: float
    """Wall-clock so far."""
    episode_return: float
    """Mean return of the last finished episodes, NaN before the first."""
    episode_length: float
    """Their mean length."""
    step_reward: float
    """Mean reward of this iteration's steps."""
    value_loss: float
    """Mean squared error of the critics in their last pass."""
    gradient_norm: float
    """Length of the policy's gradient before it was clipped."""
    gradient_by_step: list[float]
    """Mean length, over worlds, of the gradient by the action of each step of the horizon: growth shows trouble."""
    steep: float
    """Share of worlds whose own gradient by its actions is longer than the clip."""
    lost: float
    """Share of worlds left out because their gradient was not finite."""
    broken: int
    """Worlds that were no longer finite and were reset, so far."""
    first_variance: float = float("nan")
    """Variance over worlds of the gradient by the actions' mean, through the simulation."""
    zeroth_variance: float = float("nan")
    """That of the estimate without the simulation's gradient, REINFORCE's."""
    extra: dict[str, float] = field(default_factory=dict)
    """What the algorithm adapts: AHAC's horizon, SAPO's temperature."""


class ShortHorizon:
    """A training run: `iterate()` once, or `train` for all iterations with progress, Ctrl-C and checkpoints."""

    Config: ClassVar[type[Config]] = Config
    state_std: ClassVar[bool] = False
    """Whether the policy's deviation depends on the state."""
    wants_states: ClassVar[bool] = False
    """Whether gradients by the states between steps are looked at."""

    def __init__(self, env: Env, config: Config | None = None) -> None:
        self.env = env
        self.config = config = config or type(self).Config.of(env)
        if not isinstance(config, type(self).Config):
            raise PullbackError(
                f"{type(self).__name__} takes settings of {type(self).Config.__name__}, got a {type(config).__name__}"
            )
        sizes, dtype, device = (env.observation_size, env.action_size), env.dtype, env.sim.device
        self.policy = Policy(
            *sizes, config.actor_hidden, log_std=config.log_std, state_std=self.state_std, seed=config.seed, dtype=dtype
        ).to(device)  # fmt: skip
        self.critics = Critics(sizes[0], config, env.returns)
        self.random = torch.Generator(device).manual_seed(config.seed)
        self.actor_optimizer = torch.optim.Adam(self.policy.parameters(), config.actor_rate, config.betas, fused=True)
        self.done = 0
        self.steps = 0
        self.history: list[Report] = []
        self.mark: Callable[[str], None] = lambda part: None
        """Called when a part of an iteration is over: "act", "gradient", "critic"."""
        self._finished: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self.seconds = 0.0
        """Of iterations so far."""

    ended = ""
    """Nothing but the number of iterations ends a run."""

    # -- what an algorithm says --------------------------------------------------------------------------------------

    @property
    def horizon(self) -> int:
        """Steps of the next iteration."""
        return self.config.horizon

    def sample(self, observation: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return actions, their noise, and what is added to the reward: nothing."""
        action, noise, _ = self.policy.sample_with_noise(observation, self.random)
        return action, noise, None

    def reduce(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values (B,) of critics (n, B): for the policy's loss, and for the critics' targets."""
        least = values.amin(0)
        return least, least

    def adapt(self, window: Window, slopes: Slopes) -> dict[str, float]:
        """Adapt what else is adapted after the policy; return what to report of it."""
        return {}

    # -- one iteration ---------------------------------------------------------------------------------------------

    def iterate(self) -> None:
        """Act, improve the policy, fit the critics."""
        begun = time.perf_counter()
        self._set_rates()
        window = collect(self.env, self, self.horizon, self.config.discount)
        self.mark("act")
        if self.done == 0:
            self._refuse_no_gradient(window)
        slopes, norm = self._improve_policy(window)
        self.mark("gradient")
        error, returns = self._fit_critics(window)
        variances = self._variances(window, slopes, returns)
        assert self.policy.normalizer is not None
        self.policy.normalizer.update(window.observations.flatten(0, 1))
        self.mark("critic")
        self.done += 1
        self.steps += window.rewards.numel() * ranks().count
        extra = self.adapt(window, slopes)
        report = self._report(window, slopes, [error, norm, *variances])
        self.seconds += time.perf_counter() - begun
        self.history.append(Report(**report, seconds=self.seconds, extra=extra))

    def _set_rates(self) -> None:
        config, left = self.config, 1.0 - self.done / self.config.iterations
        for optimizer, first in (
            (self.actor_optimizer, config.actor_rate),
            (self.critics.optimizer, config.critic_rate),
        ):
            for group in optimizer.param_groups:
                group["lr"] = config.last_rate + (first - config.last_rate) * max(0.0, left)

    def normalize(self, observation: Tensor) -> Tensor:
        """Return observations as networks see them."""
        return self.policy.normalize(observation)

    def value(self, observation: Tensor, terminated: Tensor) -> tuple[Tensor, Tensor]:
        """Return what steps to come are worth (B,), for the policy and for the critics; nothing after a failure."""
        if not self.config.critic:
            nothing = torch.zeros_like(self.env.returns)
            return nothing, nothing
        for_policy, for_critics = self.reduce(self.critics(self.normalize(observation)))
        zero = torch.zeros_like(for_policy)
        return torch.where(terminated, zero, for_policy), torch.where(terminated, zero, for_critics)

    def _refuse_no_gradient(self, window: Window) -> None:
        """Raise if rewards do not depend on actions: no gradient could teach anything."""
        slopes: tuple[Tensor | None, ...] = ()
        if window.reward_graph.requires_grad:
            try:
                slopes = torch.autograd.grad(
                    window.reward_graph, window.actions, retain_graph=True, allow_unused=True
                )  # fmt: skip
            except GradientError:
                # a gradient that is not finite is at least there
                return
        if not any(slope is not None and bool((slope != 0.0).any()) for slope in slopes):
            raise PullbackError(
                f"the reward of {self.env.name} does not depend on the actions: in {self.horizon} steps of "
                f"{self.env.worlds} worlds its gradient is zero. Compute it by torch from the state and the action, "
                f"without detach, item, numpy or comparisons, or choose a longer horizon"
            )

    def _improve_policy(self, window: Window) -> tuple[Slopes, Tensor]:
        """Take one step of Adam; return the derivatives, and the length of the policy's."""
        parameters = [p for p in self.policy.parameters() if p.requires_grad]
        lost = self.env.lost
        lost.zero_()
        slopes = policy_slopes(window, parameters, lost, states=self.wants_states)
        if slopes.parameters is None and not ranks().many:
            # no gradient of any use: the policy stays as it is
            return slopes, window.loss.new_full((), torch.nan)
        for k, parameter in enumerate(parameters):
            parameter.grad = torch.zeros_like(parameter) if slopes.parameters is None else slopes.parameters[k]
        ranks().share_gradients(parameters, window.loss.mean())
        clipped, norm = clip([p.grad for p in parameters if p.grad is not None], self.config.gradient_norm)
        for parameter, slope in zip(parameters, clipped):
            assert parameter.grad is not None
            parameter.grad.copy_(slope)
        self.actor_optimizer.step()
        return slopes, norm

    def _fit_critics(self, window: Window) -> tuple[Tensor, Tensor]:
        if self.config.critic:
            return self.critics.fit(window, self.random)
        return torch.zeros_like(window.loss[0].detach()), window.returns

    def _variances(self, window: Window, slopes: Slopes, returns: Tensor) -> list[Tensor]:
        """Return the variances of the first- and the zeroth-order estimate; NaN without a critic or other worlds."""
        if not self.config.critic or self.env.worlds < 2:
            return [window.loss.new_full((), torch.nan)] * 2
        with torch.no_grad():
            expected, _ = self.reduce(self.critics(window.seen))
            std = self.policy.std(window.seen)
            return list(order_variances(window, slopes.by_action, std, returns - expected))

    # -- what is reported and saved --------------------------------------------------------------------------------

    def _report(self, window: Window, slopes: Slopes, others: list[Tensor]) -> dict[str, Any]:
        """Return the numbers of a report; everything is read back from the device here, at once."""
        own = slopes.by_action * len(window.loss)
        steep = (own.square().sum((0, 2)).sqrt() > self.config.gradient_norm).float().mean()
        single = [window.rewards.mean(), steep, slopes.lost, self.env.broken, *others]
        found = torch.cat([torch.stack([x.double() for x in single]), own.norm(dim=2).mean(1).double()])
        numbers = ranks().mean(found).tolist()
        reward, steep_, lost, broken, error, norm, first, zeroth, *by_step = numbers
        finished = window.returns[window.ends].tolist(), window.lengths[window.ends].tolist()
        for some in ranks().gather(finished):
            self._finished.extend((float(gained), float(length)) for gained, length in zip(*some))
        past = torch.tensor(list(self._finished), dtype=torch.float64).reshape(-1, 2)
        gained, length = (past.mean(0) if len(past) else torch.full((2,), torch.nan)).tolist()
        return {
            "steps": self.steps, "episode_return": gained, "episode_length": length, "step_reward": reward,
            "value_loss": error, "gradient_norm": norm, "gradient_by_step": by_step, "steep": steep_, "lost": lost,
            "broken": round(broken * ranks().count), "first_variance": first, "zeroth_variance": zeroth,
        }  # fmt: skip

    @property
    def score(self) -> float:
        """What sweeps compare: minus the mean return of the last finished episodes."""
        return -self.history[-1].episode_return

    def summary(self) -> str:
        """Return the text beside the progress bar."""
        if not self.history:
            return ""
        last = self.history[-1]
        trouble = f" [yellow]lost {100 * last.lost:.0f} %[/]" if last.lost else ""
        return f"return {last.episode_return:.1f}, reward a step {last.step_reward:.3f}{trouble}"

    @property
    def settings(self) -> dict[str, Any]:
        """What a checkpoint must agree in."""
        return {**self.env.settings, "algorithm": type(self).__name__, **asdict(self.config)}

    def state(self) -> dict[str, Any]:
        """Return everything that later iterations depend on."""
        return {
            "done": self.done,
            "steps": self.steps,
            "policy": self.policy.state_dict(),
            "critics": self.critics.state(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "random": self.random.get_state(),
            "env": self.env.save_state(),
            "finished": [list(pair) for pair in self._finished],
            "history": [asdict(report) for report in self.history],
            "seconds": self.seconds,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name in ("policy", "actor_optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.critics.load_state(state["critics"])
        self.random.set_state(state["random"])
        self.env.load_state(state["env"])
        self.done, self.steps, self.seconds = state["done"], state["steps"], state["seconds"]
        self.history = [Report(**report) for report in state["history"]]
        self._finished = deque(((a, b) for a, b in state["finished"]), maxlen=RECENT)
