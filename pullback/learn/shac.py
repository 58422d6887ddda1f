"""Short-horizon actor-critic (SHAC): a policy trained by gradients through the simulation.

Xu et al., "Accelerated policy learning with parallel differentiable simulation", ICLR 2022. In each iteration the
policy acts for H steps in B worlds. The return of a world is the sum of its discounted rewards and the value of the
state after them, at the horizon or where an episode was cut short; its gradient passes back through all steps to the
policy. The value is that of a target network, a slow copy of a critic fitted to the TD(λ) returns of the same steps:

    loss    = - mean over worlds and steps of  Σ γ^t r_t + γ^T V(s_T)
    G_t     = r_t + γ ((1 - λ) V(s_t+1) + λ G_t+1),    and  r_t + γ V(s_t+1)  at the end of an episode or of the horizon

With `critic=False` there is no value: back-propagation through time, over the horizon.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pullback.core.errors import GradientError, PullbackError, refuse_unknown_options
from pullback.core.search_loop import Checkpoint, SearchLoop
from pullback.learn.env import Env
from pullback.learn.networks import Critic, Policy

Tensor = torch.Tensor

RECENT = 100
"""Finished episodes whose mean return is reported."""


@dataclass(frozen=True)
class Config:
    """Settings of SHAC; the defaults are those published for the ant."""

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
    critic_passes: int = 16
    """Passes of the critic over the steps of an iteration."""
    critic_batches: int = 4
    """Batches that a pass is split into."""
    target_mixing: float = 0.2
    """What stays of the target network when the critic is mixed into it."""
    log_std: float = -1.0
    """Logarithm of the first standard deviation of actions, before tanh."""
    critic: bool = True
    """Without: no value after the last step, plain back-propagation through time."""
    seed: int = 0
    """Seed of the networks and of the actions' noise."""

    @staticmethod
    def of(env: Env, **changes: Any) -> Config:
        """Return the settings that suit an environment, with changes."""
        refuse_unknown_options("shac.Config", changes, [field.name for field in fields(Config)])
        return Config(**{**env.shac, **changes})

    def __post_init__(self) -> None:
        least = {"iterations": 1, "horizon": 1, "critic_passes": 1, "critic_batches": 1, "actor_rate": 0.0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise PullbackError(f"{name} is {getattr(self, name)}; give at least {bound}")
        for name in ("discount", "trace", "target_mixing"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise PullbackError(f"{name} is {getattr(self, name)}; give a number from 0 to 1")


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
    """Mean squared error of the critic in its last pass."""
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


@dataclass
class Window:
    """The steps of one iteration, (H, B, ...) each."""

    loss: Tensor
    """(B,), with the graph."""
    actions: list[Tensor]
    """H times (B, nu), with the graph."""
    observations: Tensor
    seen: Tensor
    """The observations, normalised."""
    rewards: Tensor
    reward_graph: Tensor
    """Sum of all rewards, with the graph."""
    values: Tensor
    """Of the state after each step; 0 after a failure."""
    ends: Tensor
    """Whether an episode ended with the step."""


class SHAC:
    """A training run: `iterate()` once, or `train` for all iterations with progress, Ctrl-C and checkpoints."""

    def __init__(self, env: Env, config: Config | None = None) -> None:
        self.env = env
        self.config = config = config or Config.of(env)
        sizes, dtype, device = (env.observation_size, env.action_size), env.dtype, env.sim.device
        self.policy = Policy(
            *sizes, config.actor_hidden, log_std=config.log_std, seed=config.seed, dtype=dtype
        ).to(device)  # fmt: skip
        self.critic, self.target = (
            Critic(sizes[0], config.critic_hidden, seed=config.seed + 1, dtype=dtype).to(device) for _ in range(2)
        )
        self.target.requires_grad_(False)
        self.random = torch.Generator(device).manual_seed(config.seed)
        self.actor_optimizer = torch.optim.Adam(self.policy.parameters(), config.actor_rate, config.betas, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), config.critic_rate, config.betas, fused=True)
        self.done = 0
        self.history: list[Report] = []
        self._finished: deque[tuple[float, float]] = deque(maxlen=RECENT)
        self._seconds = 0.0

    ended = ""
    """Nothing but the number of iterations ends a run."""

    # -- one iteration ---------------------------------------------------------------------------------------------

    def iterate(self) -> None:
        """Act, improve the policy, fit the critic."""
        begun = time.perf_counter()
        self._set_rates()
        window = self._act()
        if self.done == 0:
            self._refuse_no_gradient(window)
        norm, by_action, lost = self._improve_policy(window)
        error = self._fit_critic(window) if self.config.critic else 0.0
        assert self.policy.normalizer is not None
        self.policy.normalizer.update(window.observations.flatten(0, 1))
        self.done += 1
        self._seconds += time.perf_counter() - begun
        self.history.append(self._report(window, error, norm, by_action, lost))

    def _set_rates(self) -> None:
        config, left = self.config, 1.0 - self.done / self.config.iterations
        for optimizer, first in (
            (self.actor_optimizer, config.actor_rate),
            (self.critic_optimizer, config.critic_rate),
        ):
            for group in optimizer.param_groups:
                group["lr"] = config.last_rate + (first - config.last_rate) * max(0.0, left)

    def _act(self) -> Window:
        """Let the policy act for the horizon; return the loss of each world and what the critic learns from."""
        env, config = self.env, self.config
        observation = env.detach()
        discount = torch.ones_like(env.returns)
        gained, loss, total = (torch.zeros_like(discount) for _ in range(3))
        actions, observations, seen, rewards, values, ends, returns, lengths = ([] for _ in range(8))
        for t in range(config.horizon):
            observations.append(observation.detach())
            seen.append(self.policy.normalize(observation).detach())
            action = self.policy.sample(observation, self.random)
            observation, reward, terminated, truncated, info = env.step(action)
            over = terminated | truncated
            value = self._value(info["final_observation"], terminated)
            gained = gained + discount * reward
            discount = config.discount * discount
            # a world's return is complete where its episode ends and at the horizon
            complete = over if t < config.horizon - 1 else torch.ones_like(over)
            loss = loss - torch.where(complete, gained + discount * value, torch.zeros_like(gained))
            gained = torch.where(over, torch.zeros_like(gained), gained)
            discount = torch.where(over, torch.ones_like(discount), discount)
            total = total + reward
            actions.append(action)
            rewards.append(reward.detach())
            values.append(value.detach())
            ends.append(over)
            lengths.append(info["episode_length"])
            returns.append(info["episode_return"])
        # looked at once, at the end: looking makes a GPU wait
        over = torch.stack(ends)
        finished = torch.stack(returns)[over].tolist(), torch.stack(lengths)[over].tolist()
        self._finished.extend((float(gained), float(length)) for gained, length in zip(*finished))
        return Window(
            loss=loss / config.horizon,
            actions=actions,
            observations=torch.stack(observations),
            seen=torch.stack(seen),
            rewards=torch.stack(rewards),
            reward_graph=total.sum(),
            values=torch.stack(values),
            ends=over,
        )

    def _value(self, observation: Tensor, terminated: Tensor) -> Tensor:
        """Return what the target network expects of the steps to come (B,); nothing after a failure."""
        if not self.config.critic:
            return torch.zeros_like(self.env.returns)
        value = self.target(self.policy.normalize(observation))
        return torch.where(terminated, torch.zeros_like(value), value)

    # -- the policy ------------------------------------------------------------------------------------------------

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
                f"the reward of {self.env.name} does not depend on the actions: in {self.config.horizon} steps of "
                f"{self.env.worlds} worlds its gradient is zero. Compute it by torch from the state and the action, "
                f"without detach, item, numpy or comparisons, or choose a longer horizon"
            )

    def _improve_policy(self, window: Window) -> tuple[float, Tensor, float]:
        """Take one step of Adam; return the gradient's length, that by actions (H, B, nu), and the share left out."""
        parameters = [p for p in self.policy.parameters() if p.requires_grad]
        good = window.loss.detach().isfinite()
        nothing = torch.zeros(len(window.actions), *window.actions[0].shape, device=good.device)
        while bool(good.any()):
            loss = torch.where(good, window.loss, torch.zeros_like(window.loss)).sum() / len(good)
            try:
                slopes = torch.autograd.grad(loss, [*parameters, *window.actions], retain_graph=True)
            except GradientError as error:
                # on a CPU the simulation names the worlds whose gradient is not finite
                bad = torch.zeros_like(good)
                bad[[world for world in error.worlds if world < len(good)]] = True
            else:
                by_action = torch.stack(slopes[len(parameters) :])
                bad = ~by_action.isfinite().all(2).all(0)
                if all(bool(slope.isfinite().all()) for slope in slopes[: len(parameters)]):
                    for parameter, slope in zip(parameters, slopes):
                        parameter.grad = slope
                    norm = torch.nn.utils.clip_grad_norm_(parameters, self.config.gradient_norm)
                    self.actor_optimizer.step()
                    return float(norm), by_action, 1.0 - good.float().mean().item()
            if not bool((bad & good).any()):
                break
            good = good & ~bad
        # no gradient of any use: the policy stays as it is
        return float("nan"), nothing, 1.0

    # -- the critic ------------------------------------------------------------------------------------------------

    def _fit_critic(self, window: Window) -> float:
        """Fit the critic to TD(λ) returns and mix it into the target network; return its error in the last pass."""
        config = self.config
        seen = window.seen.flatten(0, 1)
        targets = td_returns(window.rewards, window.values, window.ends, config.discount, config.trace).flatten()
        usable = targets.isfinite()
        seen, targets = seen[usable], targets[usable]
        error = 0.0
        for _ in range(config.critic_passes):
            order = torch.randperm(len(seen), device=seen.device, generator=self.random)
            losses = []
            for batch in order.chunk(config.critic_batches):
                loss = (self.critic(seen[batch]) - targets[batch]).square().mean()
                self.critic_optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.critic.parameters(), config.gradient_norm)
                self.critic_optimizer.step()
                losses.append(loss.detach())
            error = float(torch.stack(losses).mean()) if losses else float("nan")
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters()):
                slow.lerp_(fast, 1.0 - config.target_mixing)
        return error

    # -- what is reported and saved --------------------------------------------------------------------------------

    def _report(self, window: Window, error: float, norm: float, by_action: Tensor, lost: float) -> Report:
        own = by_action * len(window.loss)
        steep = (own.square().sum((0, 2)).sqrt() > self.config.gradient_norm).float().mean().item()
        finished = torch.tensor(list(self._finished), dtype=torch.float64).reshape(-1, 2)
        gained, length = (finished.mean(0) if len(finished) else torch.full((2,), torch.nan)).tolist()
        return Report(
            self.done * self.config.horizon * self.env.worlds, self._seconds, gained, length,
            window.rewards.mean().item(), error, norm, own.norm(dim=2).mean(1).tolist(), steep, lost,
            int(self.env.broken),
        )  # fmt: skip

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
        return {**self.env.settings, **asdict(self.config)}

    def state(self) -> dict[str, Any]:
        """Return everything that later iterations depend on."""
        return {
            "done": self.done,
            "policy": self.policy.state_dict(),
            "critic": self.critic.state_dict(),
            "target": self.target.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
            "random": self.random.get_state(),
            "env": self.env.save_state(),
            "finished": [list(pair) for pair in self._finished],
            "history": [asdict(report) for report in self.history],
            "seconds": self._seconds,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name in ("policy", "critic", "target", "actor_optimizer", "critic_optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.random.set_state(state["random"])
        self.env.load_state(state["env"])
        self.done, self._seconds = state["done"], state["seconds"]
        self.history = [Report(**report) for report in state["history"]]
        self._finished = deque(((a, b) for a, b in state["finished"]), maxlen=RECENT)


def train(
    env: Env,
    config: Config | None = None,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    console: Console | None = None,
) -> SHAC:
    """Train a policy; Ctrl-C ends after the current iteration, `resume` goes on from the checkpoint, bit for bit."""
    run = SHAC(env, config)
    file = None
    if checkpoint is not None:
        file = Checkpoint(run, Path(checkpoint), run.settings)
        if resume:
            file.resume()
    elif resume:
        raise PullbackError("resume without a checkpoint; say which file to go on from: checkpoint=...")
    label = f"{'SHAC' if run.config.critic else 'BPTT'} on {env.name}"
    SearchLoop(run.config.iterations, label, progress, console, save_every=30.0).run(run, file)
    return run


def td_returns(rewards: Tensor, values: Tensor, ends: Tensor, discount: float, trace: float) -> Tensor:
    """Return the TD(λ) returns (H, B) of rewards, values of the states after each step, and ends of episodes."""
    result = torch.empty_like(rewards)
    # beyond the horizon there is the value alone
    later = values[-1]
    for t in reversed(range(len(rewards))):
        mixed = (1.0 - trace) * values[t] + trace * later
        later = result[t] = rewards[t] + discount * torch.where(ends[t], values[t], mixed)
    return result
