"""Soft actor-critic with automatic temperature (Haarnoja et al., 2018), many seeds side by side.

An iteration is an epoch: in each of its steps the policies act, what happened is stored, and networks are updated from
stored transitions; then the policies are tried. The simulator's Jacobian enters in two places, both optional: extra
samples in the buffer, and the gradient of the actor's loss (`enhance.py`).
"""

from __future__ import annotations

import math
import time
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Literal

import torch
from rich.console import Console

from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.core.ranks import ranks
from pullback.core.search_loop import Checkpoint, SearchLoop
from pullback.learn.enhance import Extra, action_slope, relevance, step_with_jacobian, with_extra_samples
from pullback.learn.env import Env
from pullback.learn.evaluate import evaluate
from pullback.learn.recorded import Recorded, adam, descend, fused
from pullback.learn.replay import Replay, Rows
from pullback.learn.seeded import First, SeededPolicy, TwinCritics, generators

Tensor = torch.Tensor

TRIAL_SEED = 1_000_003
"""Added to the seed for the starts that policies are tried on."""


@dataclass(frozen=True)
class SACConfig:
    """Settings of SAC; the defaults are the published ones."""

    algorithm: ClassVar[str] = "sac"

    seeds: int = 1
    """Seeds that are trained side by side; the worlds of the environment are shared out among them."""
    seed: int = 0
    """The first of the seeds."""
    epochs: int = 100
    """Iterations."""
    epoch_steps: int = 1000
    """Actions of an epoch, in each world."""
    trial_every: int = 1
    """Epochs between two trials of the policies, each of whole episodes; after the last epoch there is always one."""
    random_steps: int = 5000
    """First actions that are drawn uniformly; there are no updates before."""
    first_update: int = 1000
    """Actions before the first update, in each world."""
    updates: int = 1
    """Updates of the networks after each action."""
    batch: int = 256
    """Transitions of an update, of each seed."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers, of policies and critics."""
    first_weights: First = "torch"
    """How weights of policies and critics are drawn at first: "torch", as torch does, or "glorot", as Keras does."""
    rate: float = 3e-4
    """Learning rate of policies, critics and temperatures (Adam)."""
    discount: float = 0.99
    """What a reward is worth a step later, γ."""
    mixing: float = 5e-3
    """Share of a critic that goes into its target network with each update, τ."""
    target_entropy: float | None = None
    """To which the temperature brings the entropy of actions; None: minus the number of action entries."""
    temperature: float = 1.0
    """What the entropy weighs at the start, α."""
    capacity: int = 1_000_000
    """Most transitions that are kept, of each seed."""
    extra: Extra | None = None
    """Sample enhancement: extra samples of each transition; None: none."""
    actor: Literal["critic", "simulation", "weighted"] = "critic"
    """Where the actor's gradient comes from. "critic": ∂Q/∂a. "simulation": policy enhancement,
    ∂r/∂a + γ (∂s'/∂a)ᵀ ∂V/∂s' at the stored action. "weighted": the same, with the weight exp(-‖a - a₀‖)."""

    compiled: bool = False
    """On a GPU, let torch.compile make few kernels of an update's many: a minute at first, then half the time."""

    def __post_init__(self) -> None:
        for name in ("seeds", "epochs", "epoch_steps", "trial_every", "batch", "capacity"):
            if getattr(self, name) < 1:
                raise PullbackError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.actor not in ("critic", "simulation", "weighted"):
            raise PullbackError(f'actor is {self.actor!r}; choose "critic", "simulation" or "weighted"')
        if self.first_weights not in ("torch", "glorot"):
            raise PullbackError(f'first_weights is {self.first_weights!r}; choose "torch" or "glorot"')
        if not self.temperature > 0.0:
            raise PullbackError(f"temperature is {self.temperature}; give a number above 0")
        if not 0.0 <= self.discount <= 1.0 or not 0.0 < self.mixing <= 1.0:
            raise PullbackError(f"discount is {self.discount}, mixing {self.mixing}; give numbers from 0 to 1")
        if self.extra is not None and self.actor != "critic":
            raise PullbackError("extra samples have no Jacobian of their own: choose extra or policy enhancement")


@dataclass(frozen=True)
class SACReport:
    """What an epoch did; lists have a number for each seed."""

    steps: int
    """Actions taken so far, of each seed."""
    seconds: float
    """Wall-clock so far, of all seeds together."""
    returns: list[float]
    """Mean return of the policies of the mean, on starts they are not trained on; NaN in an epoch without a trial."""
    temperature: list[float]
    critic_loss: list[float]
    """Mean squared error in the last update; NaN before the first."""
    lost: int
    """Transitions so far whose Jacobian was not finite: they are kept without one."""
    extra: dict[str, float] = field(default_factory=dict)
    """What an algorithm on top reports: the model's error, the length of its rollouts."""


class SAC:
    """A training run of several seeds; a search of `core/search_loop.py`.

    `env` has a multiple of `config.seeds` worlds, those of the first seed first, and `trial` likewise, in which the
    policies are tried, one episode a world. Networks and buffers are on `device`, by default that of `env`: few worlds
    are stepped faster on a CPU, whatever the networks are on.
    """

    Config: ClassVar[type[SACConfig]] = SACConfig
    ended = ""
    """Nothing but the number of epochs ends a run."""

    def __init__(self, env: Env, trial: Env, config: SACConfig, device: torch.device | str | None = None) -> None:
        if ranks().many:
            raise PullbackError("SAC and MBPO run in one process: train seeds side by side, or start them by a sweep")
        for name, given in (("env", env), ("trial", trial)):
            if given.worlds % config.seeds:
                raise PullbackError(
                    f"{name} has {given.worlds} worlds for {config.seeds} seeds; give a multiple of the seeds"
                )
        self.env, self.trial, self.config = env, trial, config
        device = self.device = find_device(device) or env.device
        seeds, n, nu = config.seeds, env.observation_size, env.action_size
        randoms = generators(config.seed, seeds)
        kind: Any = (env.dtype, config.first_weights)
        self.policy = SeededPolicy(randoms, [n, *config.hidden, nu], *kind).to(device)
        self.critics, self.targets = (
            TwinCritics(randoms, [n + nu, *config.hidden], *kind).to(device) for _ in range(2)
        )  # fmt: skip
        self.targets.load_state_dict(self.critics.state_dict())
        self.log_temperature = torch.full(
            (seeds,), config.temperature, dtype=env.dtype, device=device
        ).log().requires_grad_()  # fmt: skip
        rate = config.rate
        self.actor_optimizer = adam(list(self.policy.parameters()), rate)
        self.critic_optimizer = adam(list(self.critics.parameters()), rate)
        self.temperature_optimizer = adam([self.log_temperature], rate)
        self.target_entropy = -float(nu) if config.target_entropy is None else config.target_entropy
        self.random = torch.Generator(device).manual_seed(config.seed)
        self.replay = Replay(seeds, self._room(), self.shapes(), env.dtype, device)
        self.done, self.steps, self.lost, self.seconds = 0, 0, 0, 0.0
        self.history: list[SACReport] = []
        self.critic_loss = torch.full((seeds,), torch.nan, dtype=env.dtype, device=device)
        self._value, self._errors, self._losses = (
            fused(work, device, compiled=config.compiled) for work in (self.value, self.errors, self.losses)
        )
        self.improve = Recorded(lambda: self.update(self.draw()), device, self.random)
        self._observation = env.reset(config.seed)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return what is stored of a transition, and its shape."""
        n, nu = self.env.observation_size, self.env.action_size
        shapes = {"observation": (n,), "action": (nu,), "reward": (), "next": (n,), "terminated": ()}
        if self.config.actor != "critic":
            shapes |= {"next_by_action": (n, nu), "reward_by_action": (nu,)}
        return shapes

    def _room(self) -> int:
        """Return the transitions of a seed that there will ever be, or as many as are kept."""
        config = self.config
        group = 1 + (config.extra.count if config.extra else 0)
        ever = config.epochs * config.epoch_steps * (self.env.worlds // config.seeds)
        # a transition and those around it stay together
        return group * min(max(1, config.capacity // group), ever)

    # -- an epoch --------------------------------------------------------------------------------------------------

    def iterate(self) -> None:
        """Act and update for an epoch, then try the policies if it is time."""
        began, config = time.perf_counter(), self.config
        for _ in range(config.epoch_steps):
            self.replay.add(self._act())
            self.steps += 1
            if self.steps >= max(config.random_steps, config.first_update):
                self.prepare()
                for _ in range(config.updates):
                    self.improve()
        self.done += 1
        returns = [float("nan")] * config.seeds
        if self.done % config.trial_every == 0 or self.done == config.epochs:
            returns = self._try()
        self.seconds += time.perf_counter() - began
        report = SACReport(
            self.steps * (self.env.worlds // config.seeds), self.seconds, returns,
            self.log_temperature.detach().exp().tolist(), self.critic_loss.tolist(), self.lost, self.extras(),
        )  # fmt: skip
        self.history.append(report)

    def try_last(self) -> None:
        """Try the policies of the last epoch if that had no trial: a run that was stopped has a last return too."""
        if self.history and all(map(math.isnan, self.history[-1].returns)):
            self.history[-1] = replace(self.history[-1], returns=self._try())

    def _try(self) -> list[float]:
        """Return the mean return of each seed's policy of the mean, which acts where trials are stepped."""
        policy = deepcopy(self.policy).to(self.trial.device)

        def act(observation: Tensor) -> Tensor:
            return policy(self._by_seed(observation)).flatten(0, 1)

        returns = evaluate(self.trial, act, self.config.seed + TRIAL_SEED + self.done)
        return self._by_seed(returns).mean(1).tolist()

    def prepare(self) -> None:
        """Do what comes before the updates of a step; nothing here."""

    def draw(self) -> Rows:
        """Return the transitions of an update."""
        return self.replay.sample(self.config.batch, self.random)

    def extras(self) -> dict[str, float]:
        """Return what else to report."""
        return {}

    def act(self, observation: Tensor) -> Tensor:
        """Return the actions of the mean (B, nu) for observations (B, n) of all seeds' worlds."""
        return self.policy(self._by_seed(observation.to(self.device))).flatten(0, 1).to(observation.device)

    def _by_seed(self, x: Tensor) -> Tensor:
        """Return values of all worlds (B, ...) by seed (S, B / S, ...)."""
        return x.reshape(self.config.seeds, -1, *x.shape[1:])

    def noise(self, *shape: int) -> Tensor:
        """Return standard normal numbers."""
        return torch.randn(*shape, dtype=self.env.dtype, device=self.device, generator=self.random)

    @torch.no_grad()
    def _act(self) -> Rows:
        """Take a step in all worlds; return its transitions, and the extra ones."""
        env, config, seen = self.env, self.config, self._observation.to(self.device)
        if self.steps < config.random_steps:
            drawn = torch.rand(env.worlds, env.action_size, dtype=env.dtype, device=self.device, generator=self.random)
            action = 2.0 * drawn - 1.0
        else:
            by_seed = self._by_seed(seen)
            action = self.policy.sample(by_seed, self.noise(*by_seed.shape[:2], env.action_size))[0].flatten(0, 1)
        slopes: dict[str, Tensor] = {}
        if config.extra is None and config.actor == "critic":
            step = env.step(action.to(env.device))
        else:
            step, jacobian = step_with_jacobian(env, action.to(env.device))
            slopes = {"next_by_action": jacobian.next, "reward_by_action": jacobian.reward}
            self.lost += int((~jacobian.good).sum())
        self._observation = step.observation
        plain = {
            "observation": seen, "action": action.clamp(-1.0, 1.0), "reward": step.reward,
            "next": step.info["final_observation"], "terminated": step.terminated.to(env.dtype),
        }  # fmt: skip
        rows = {name: self._by_seed(x.to(self.device)) for name, x in {**plain, **slopes}.items()}
        return rows if config.extra is None else with_extra_samples(rows, config.extra, self.random)

    # -- an update -------------------------------------------------------------------------------------------------

    def update(self, batch: Rows) -> None:
        """Improve critics, then policies and temperatures, by one step of Adam each."""
        temperature = self.log_temperature.detach().exp()[:, None]
        noise = self.noise(2, *batch["action"].shape)
        enhances = self.config.actor != "critic"
        # what s' is worth is a goal for critics, and its slope by s' is what policy enhancement needs
        after = batch["next"].detach().requires_grad_(enhances)
        with torch.set_grad_enabled(enhances):
            later = self._value(after, temperature, noise[0])
        errors = self._errors(batch, later.detach())
        descend(self.critic_optimizer, list(self.critics.parameters()), 0.5 * errors.sum())
        self.critic_loss.copy_(errors.detach().mean(0))
        slope = None
        if enhances:
            (by_next,) = torch.autograd.grad(later.sum(), after)
            slope = action_slope(batch, by_next, self.config.discount)
        loss, density = self._losses(batch, temperature, noise[1], slope)
        descend(self.actor_optimizer, list(self.policy.parameters()), loss)
        # of the loss minus log α (mean log-density + goal), by log α
        self.log_temperature.grad = -(density.detach() + self.target_entropy)
        self.temperature_optimizer.step()
        with torch.no_grad():
            slow: list[Tensor] = list(self.targets.parameters())
            fast: list[Tensor] = list(self.critics.parameters())
            torch._foreach_lerp_(slow, fast, self.config.mixing)  # pyright: ignore[reportPrivateImportUsage]

    def value(self, observation: Tensor, temperature: Tensor, noise: Tensor) -> Tensor:
        """Return the soft value (S, B) of observations, by the target networks."""
        action, density = self.policy.sample(observation, noise, frozen=True)
        return self.targets(observation, action, frozen=True).amin(0) - temperature * density

    def errors(self, batch: Rows, later: Tensor) -> Tensor:
        """Return the mean squared errors of critics (2, S) from the reward and what s' is worth, `later` (S, B)."""
        goal = batch["reward"] + self.config.discount * (1.0 - batch["terminated"]) * later
        return (self.critics(batch["observation"], batch["action"]) - goal).square().mean(2)

    def losses(self, batch: Rows, temperature: Tensor, noise: Tensor, slope: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the sum of the policies' losses, and the mean log-density of their actions (S,).

        `slope` (S, B, nu) takes the place of ∂Q/∂a.
        """
        action, density = self.policy.sample(batch["observation"], noise)
        if slope is None:
            gain = self.critics(batch["observation"], action, frozen=True).amin(0)
        else:
            gain = (slope * action).sum(-1)
            if self.config.actor == "weighted":
                gain = gain * relevance(action.detach(), batch["action"])
        return (temperature * density - gain).mean(1).sum(), density.mean(1)

    # -- what is reported and saved --------------------------------------------------------------------------------

    def summary(self) -> str:
        """Return the text beside the progress bar."""
        returns = self._last_trial()
        return f"return {median(returns):.3g} ({min(returns):.3g} to {max(returns):.3g})" if returns else ""

    @property
    def score(self) -> float:
        """Minus the median return of the seeds in the last trial, which sweeps compare; NaN before the first."""
        returns = self._last_trial()
        return -median(returns) if returns else float("nan")

    def _last_trial(self) -> list[float]:
        tried = [report.returns for report in self.history if not all(map(math.isnan, report.returns))]
        return tried[-1] if tried else []

    @property
    def settings(self) -> dict[str, Any]:
        """What a checkpoint must agree in; a run may be continued for more epochs."""
        free = ("epochs", "trial_every", "capacity", "compiled")
        given = {name: value for name, value in asdict(self.config).items() if name not in free}
        return {**self.env.settings, "algorithm": type(self).__name__, **given}

    PARTS: ClassVar = (
        "policy", "critics", "targets", "actor_optimizer", "critic_optimizer", "temperature_optimizer",
    )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """Return everything that later epochs depend on."""
        return {
            **{name: getattr(self, name).state_dict() for name in self.PARTS},
            "log_temperature": self.log_temperature.detach(), "replay": self.replay.state(),
            "random": self.random.get_state(), "env": self.env.save_state(), "critic_loss": self.critic_loss,
            "numbers": [self.done, self.steps, self.lost, self.seconds],
            "history": [asdict(report) for report in self.history],
        }  # fmt: skip

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name in self.PARTS:
            getattr(self, name).load_state_dict(state[name])
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])
        self.replay.load_state(state["replay"])
        self.random.set_state(state["random"])
        self.env.load_state(state["env"])
        self._observation = self.env.detach()
        self.improve.forget()
        self.critic_loss.copy_(state["critic_loss"])
        self.done, self.steps, self.lost, self.seconds = state["numbers"]
        self.history = [SACReport(**report) for report in state["history"]]


def train_seeds(
    run: SAC,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    label: str | None = None,
    progress: bool = True,
    console: Console | None = None,
) -> SAC:
    """Train until the epochs are used up; Ctrl-C ends after the current one, `resume` goes on from the checkpoint.

    A checkpoint is written every two minutes. To resume, one that is not there yet is no error: the run begins.
    """
    file = None
    if checkpoint is not None:
        file = Checkpoint(run, Path(checkpoint), run.settings)
        file.begin(resume=resume and file.exists())
    elif resume:
        raise PullbackError("resume without a checkpoint; say which file to go on from: checkpoint=...")
    label = label or f"{type(run).__name__} on {run.env.name}"
    SearchLoop(run.config.epochs, label, progress, console, save_every=120.0).run(run, file)
    run.try_last()
    return run
