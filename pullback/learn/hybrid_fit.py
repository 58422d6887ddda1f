"""Fit models to recorded motions through rollouts, and measure how well they predict.

A model has `begin`, `step`, `remember` and `sim`: a `Hybrid`, or `NetworkModel`, a network without physics to compare
with. Windows of the recording are simulated from their measured start, and the squared error of all states in them is
back-propagated through the rollout.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi

import torch
from rich.console import Console
from torch import nn

from pullback.core.errors import PullbackError
from pullback.core.search_loop import SearchLoop
from pullback.learn.hybrid import Hybrid, Residual, rollout
from pullback.learn.residuals import Scaler, layers
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory

Tensor = torch.Tensor


@dataclass(frozen=True)
class Motions:
    """N recorded motions of T steps: q (T + 1, N, nq), qd (T + 1, N, nv), controls u (T, N, nu), a sample each `dt`."""

    q: Tensor
    qd: Tensor
    u: Tensor

    def __post_init__(self) -> None:
        """Raise for shapes that do not belong together, and for what is not finite."""
        steps, motions = self.u.shape[:2]
        if self.q.shape[:2] != (steps + 1, motions) or self.qd.shape[:2] != (steps + 1, motions):
            raise PullbackError(
                f"q is {tuple(self.q.shape)}, qd {tuple(self.qd.shape)} and u {tuple(self.u.shape)}; expected "
                f"(T + 1, N, nq), (T + 1, N, nv) and (T, N, nu)"
            )
        for name, x in (("q", self.q), ("qd", self.qd), ("u", self.u)):
            if not bool(x.isfinite().all()):
                raise PullbackError(f"{name} of the recording is not finite everywhere; leave such motions out")

    def __len__(self) -> int:
        """Return the number of motions."""
        return self.u.shape[1]

    def __getitem__(self, motions: slice | Tensor) -> Motions:
        """Return some of the motions."""
        return Motions(self.q[:, motions], self.qd[:, motions], self.u[:, motions])

    @property
    def steps(self) -> int:
        """The number of steps T."""
        return self.u.shape[0]

    def at(self, t: int) -> State:
        """Return the measured states before step t."""
        return State(self.q[t], self.qd[t])

    def window(self, start: Tensor, motion: Tensor, length: int) -> Motions:
        """Return windows of `length` steps from steps `start` (B,) of motions (B,) on."""
        places = start + torch.arange(length + 1)[:, None]
        return Motions(self.q[places, motion], self.qd[places, motion], self.u[places[:-1], motion])


class NetworkModel(nn.Module):
    """A network alone: the change of velocity in a step from state, control and the last commands.

    Coordinates follow by semi-implicit Euler on their manifold, so that the network has less to learn. `hidden_q` are
    coordinates that the motion does not depend on, such as where a robot is on the floor.
    """

    def __init__(
        self, sim: Sim, hidden: tuple[int, ...] = (128, 128), *, past: int = 0, hidden_q: tuple[int, ...] = (),
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sim, self.past = sim, past
        self._seen = [k for k in range(sim.nq) if k not in hidden_q]
        inputs = len(self._seen) + sim.nv + sim.nu * (1 + past)
        self.scaler = Scaler(inputs, sim.dtype)
        self.network = layers(inputs, hidden, sim.nv, seed=seed, dtype=sim.dtype)
        self.change = Scaler(sim.nv, sim.dtype)
        self.to(sim.device)

    def begin(self, state: State) -> Tensor:
        """Return the last commands, of which nothing is known."""
        return state.q.new_zeros(len(state.q), self.past * self.sim.nu)

    def remember(self, state: State, u: Tensor, memory: Tensor) -> Tensor:
        """Return the last commands after one more."""
        return torch.cat([u, memory], 1)[:, : memory.shape[1]]

    def look(self, state: State, u: Tensor, memory: Tensor) -> Tensor:
        """Return what the network sees (B, n)."""
        return torch.cat([state.q[:, self._seen], state.qd, u, memory], 1)

    def step(self, state: State, u: Tensor, memory: Tensor) -> tuple[State, Tensor]:
        """Return the state after a step, and the last commands then."""
        found = self.network(self.scaler(self.look(state, u, memory)))
        qd = state.qd + self.change.mean + self.change.deviation * found
        after = State(self.sim.manifold.retract(state.q, self.sim.dt * qd), qd)
        return after, self.remember(state, u, memory)


Model = Hybrid | NetworkModel


@dataclass(frozen=True)
class FitConfig:
    """How to fit a model to motions."""

    iterations: int = 300
    """Steps of Adam."""
    window: int = 20
    """Steps that a window has at the end of the search; windows grow from a quarter of it."""
    warm: int = 0
    """Measured steps before each window, in which models only remember."""
    batch: int = 32
    """Windows in an iteration."""
    rate: float = 5e-3
    """Adam's learning rate at the start; it falls to a hundredth along half a cosine."""
    longest_gradient: float = 0.1
    """Gradients are clipped to this length."""
    seed: int = 0


class Fit:
    """A search for the weights of a model; `fit` runs it."""

    def __init__(self, model: Model, motions: Motions, config: FitConfig) -> None:
        needed = config.window + config.warm
        if config.window < 1 or config.warm < 0 or motions.steps < needed:
            raise PullbackError(
                f"windows have {config.window} steps after {config.warm} to remember, the motions {motions.steps}; "
                f"give at least one step, and motions that are as long as both"
            )
        self.model, self.motions, self.config = model, motions, config
        self.losses: list[float] = []
        self.random = torch.Generator().manual_seed(config.seed)
        weights = [x for x in model.parameters() if x.requires_grad]
        if not weights:
            raise PullbackError("the model has no weights that could learn; give Hybrid a residual with parameters")
        self.adam = torch.optim.Adam(weights, lr=config.rate)
        self._weights = weights
        prepare(model, motions)
        # errors count against how far states move within a window
        moved = [
            model.sim.difference(motions.at(t), motions.at(t + config.window))
            for t in range(0, motions.steps - config.window + 1, max(1, config.window // 2))
        ]
        size = torch.cat(moved).square().mean(0).sqrt()
        nv = model.sim.nv
        # entries that hardly move get the common size, not a tiny one
        least = torch.cat([0.1 * size[:nv].mean().expand(nv), 0.1 * size[nv:].mean().expand(nv)])
        self.size = torch.maximum(size, least).clamp(min=1e-12)

    @property
    def done(self) -> int:
        """Number of finished iterations."""
        return len(self.losses)

    @property
    def ended(self) -> str:
        """Never by itself."""
        return ""

    def summary(self) -> str:
        """Return the text beside the progress bar."""
        return f"error {self.losses[-1] ** 0.5:.3g}" if self.losses else ""

    def iterate(self) -> None:
        """Simulate a batch of windows, and improve the weights."""
        config = self.config
        share = self.done / max(1, config.iterations - 1)
        for group in self.adam.param_groups:
            group["lr"] = config.rate * (0.01 + 0.495 * (1.0 + cos(pi * share)))
        # short windows first: errors have not grown yet
        length = max(1, round(config.window * min(1.0, 0.25 + 1.5 * share)))
        last = self.motions.steps - length - config.warm
        start = torch.randint(last + 1, (config.batch,), generator=self.random)
        motion = torch.randint(len(self.motions), (config.batch,), generator=self.random)
        data = self.motions.window(start, motion, length + config.warm)
        found = predict(self.model, data, config.warm)
        wanted = Trajectory(data.q[config.warm :], data.qd[config.warm :], found.status, found.steps)
        errors = (self.model.sim.difference(wanted, found)[1:] / self.size).square().mean((0, 2))
        kept = errors.isfinite()
        if not bool(kept.any()):
            raise PullbackError("no window stayed finite; take a smaller rate, or shorter windows")
        # one window that went astray must not decide
        loss = errors[kept].clamp(max=100.0 * float(errors[kept].median().detach()) + 1e-12).mean()
        if not loss.requires_grad:
            raise PullbackError(
                "what the model predicts does not depend on its weights; compute the correction by torch from them, "
                "without detach, item, numpy or no_grad"
            )
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        length_ = nn.utils.clip_grad_norm_(self._weights, config.longest_gradient)
        if bool(length_.isfinite()):
            self.adam.step()
        self.losses.append(loss.item())


def fit(
    model: Model,
    motions: Motions,
    config: FitConfig | None = None,
    *,
    progress: bool = True,
    console: Console | None = None,
) -> list[float]:
    """Fit the weights of a model to motions; return the loss of each iteration. Ctrl-C ends it with what there is."""
    search = Fit(model, motions, config or FitConfig())
    SearchLoop(search.config.iterations, "fitting", progress, console).run(search)
    return search.losses


def predict(model: Model, motions: Motions, warm: int = 0) -> Trajectory:
    """Return what a model says of motions from step `warm` on; before that it only remembers what was measured."""
    memory = model.begin(motions.at(0))
    for t in range(warm):
        memory = model.remember(motions.at(t), motions.u[t], memory)
    return rollout(model, motions.at(warm), motions.u[warm:], memory)


@torch.no_grad()
def prediction_error(model: Model, motions: Motions, warm: int = 0) -> Tensor:
    """Return the root of the mean squared error of coordinates [rad, m], by step from 0 on, over all motions.

    A motion that is no longer finite counts as one that is off by a hundred.
    """
    found = predict(model, motions, warm)
    error = model.sim.manifold.difference(motions.q[warm:], found.q)
    return error.nan_to_num(100.0, 100.0, -100.0).clamp(-100.0, 100.0).square().mean((1, 2)).sqrt()


@torch.no_grad()
def prepare(model: Model, motions: Motions) -> None:
    """Fit what a model's networks look through to the motions."""
    states = State(motions.q[:-1].flatten(0, 1), motions.qd[:-1].flatten(0, 1))
    u = motions.u.flatten(0, 1)
    if isinstance(model, NetworkModel):
        memory, seen = model.begin(motions.at(0)), []
        for t in range(motions.steps):
            seen.append(model.look(motions.at(t), motions.u[t], memory))
            memory = model.remember(motions.at(t), motions.u[t], memory)
        # the first ones know nothing of the past
        model.scaler.fit(torch.cat(seen[min(model.past, len(seen) - 1) :]))
        model.change.fit((motions.qd[1:] - motions.qd[:-1]).flatten(0, 1))
        return
    if isinstance(model.residual, Residual):
        model.residual.fit_scalers(states, u)
