"""An ensemble of probabilistic networks that predicts transitions, as in MBPO (Janner et al., 2019).

Of each seed seven networks map observation and action to a normal distribution of the reward and of the change of the
observation. All networks of all seeds train together, one batched matrix product a layer; each keeps the weights with
which it predicted best what was held out, and the five best networks of a seed are its elites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pullback.core.errors import PullbackError
from pullback.learn.recorded import Recorded, adam, descend, fused
from pullback.learn.replay import Rows
from pullback.learn.seeded import Perceptrons, generators

Tensor = torch.Tensor

DECAY = (2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4)
"""Weight decay of the layers, as published for five; of fewer layers the last counts from the end."""
BOUND_WEIGHT = 0.01
"""Of the bounds of the log-variance in the loss."""
GAIN = 0.01
"""By what share an error must fall for its weights to be kept."""
FAR = 100.0
"""Standard deviations of what was trained on, beyond which a predicted observation is not believed."""
LEAST_STD = 1e-6
"""Entries that change less than this are not scaled."""


@dataclass(frozen=True)
class EnsembleConfig:
    """Settings of the ensemble; the defaults are the published ones."""

    members: int = 7
    """Networks of a seed."""
    elites: int = 5
    """Those of them that predict."""
    hidden: tuple[int, ...] = (200, 200, 200, 200)
    """Units of the hidden layers."""
    rate: float = 1e-3
    """Learning rate (Adam)."""
    batch: int = 256
    """Transitions of an update, of each network."""
    held_out: float = 0.2
    """Share of the transitions that are not trained on, to find the best networks."""
    most_held_out: int = 5000
    patience: int = 5
    """Passes without a better network after which training ends."""
    most_passes: int = 1000
    """After which it ends in any case."""


class Ensemble:
    """Models of the transitions of S seeds."""

    def __init__(
        self,
        seeds: int,
        sizes: tuple[int, int],
        config: EnsembleConfig,
        seed: int = 0,
        device: Any = "cpu",
        *,
        compiled: bool = False,
    ) -> None:
        self.seeds, self.config = seeds, config
        device = torch.device(device)
        inputs, outputs = sum(sizes), 1 + sizes[0]
        self.count = seeds * config.members
        randoms = generators(7919 * (seed + 1), self.count)
        layers = [inputs, *config.hidden, 2 * outputs]
        self.network = Perceptrons(randoms, layers, activation=nn.functional.silu).to(device)
        self.most = torch.full((self.count, 1, outputs), 0.5, device=device, requires_grad=True)
        self.least = torch.full((self.count, 1, outputs), -10.0, device=device, requires_grad=True)
        self.optimizer = adam(self.parameters(), config.rate)
        self._loss, self._predicted = (
            fused(work, device, compiled=compiled) for work in (self.loss, self.distribution)
        )  # fmt: skip
        self.improve = Recorded(self._update, device)
        self.mean = torch.zeros(seeds, 1, inputs, device=device)
        self.std = torch.ones(seeds, 1, inputs, device=device)
        self.elites = torch.arange(config.elites, device=device).repeat(seeds, 1)
        """Members (S, elites) that predicted best, of each seed."""

    def parameters(self) -> list[Tensor]:
        """Return all that is trained, each with the networks first."""
        return [*self.network.parameters(), self.most, self.least]

    def distribution(self, x: Tensor, members: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance (N, B, 1 + n), softly between learned bounds, of standardised inputs."""
        mean, spread = self.network(x, members).chunk(2, -1)
        most, least = (self.most, self.least) if members is None else (self.most[members], self.least[members])
        spread = most - nn.functional.softplus(most - spread)
        return mean, least + nn.functional.softplus(spread - least)

    # -- training --------------------------------------------------------------------------------------------------

    def fit(self, rows: Rows, random: torch.Generator, copies: int = 1) -> tuple[float, int]:
        """Train on transitions (S, N, ...) until what is held out is predicted no better; return error and passes.

        Rows come in groups of `copies`, a true transition and extra samples around it. Whole groups are held out, of
        which the true one is predicted: rows around it that are trained on would give it away. A pass takes as many
        updates as there are groups for.
        """
        config = self.config
        inputs = torch.cat([rows["observation"], rows["action"]], -1)
        targets = torch.cat([rows["reward"][..., None], rows["next"] - rows["observation"]], -1)
        groups = rows["reward"].shape[1] // copies
        if groups < 2:
            raise PullbackError(
                f"a model is fitted to {groups} transition(s), of which some are held out; take more random_steps first"
            )
        self.mean, std = inputs.mean(1, keepdim=True), inputs.std(1, keepdim=True)
        self.std = torch.where(std < LEAST_STD, torch.ones_like(std), std)
        pairs = torch.cat([(inputs - self.mean) / self.std, targets], -1)
        order = copies * torch.rand(self.seeds, groups, device=inputs.device, generator=random).argsort(1)
        held = max(1, min(int(config.held_out * groups), config.most_held_out))
        test = order[:, :held]
        train = (order[:, held:, None] + torch.arange(copies, device=inputs.device)).flatten(1)
        tested = self._pick(pairs, test.repeat_interleave(config.members, 0))
        # of each network its own draw, with replacement
        drawn = torch.randint(train.shape[1], (self.count, train.shape[1]), device=inputs.device, generator=random)
        bootstrap = train.repeat_interleave(config.members, 0).gather(1, drawn)
        best = torch.full((self.count,), torch.inf, device=inputs.device)
        kept = [p.detach().clone() for p in self.parameters()]
        waited, passes = 0, 0
        while waited <= config.patience and passes < config.most_passes:
            shuffle = torch.rand(bootstrap.shape, device=inputs.device, generator=random).argsort(1)[:, : groups - held]
            for batch in bootstrap.gather(1, shuffle).split(config.batch, 1):
                given = self._pick(pairs, batch)
                # the last one is smaller
                if batch.shape[1] == config.batch:
                    self.improve(given)
                else:
                    self._update(given)
            error = self._error(tested)
            better = (best - error) > GAIN * best.where(best.isfinite(), error.abs())
            best = torch.where(better, error, best)
            for saved, now in zip(kept, self.parameters()):
                saved.copy_(torch.where(better.view(-1, *[1] * (now.ndim - 1)), now.detach(), saved))
            passes += 1
            waited = 0 if bool(better.any()) else waited + 1
        with torch.no_grad():
            for saved, now in zip(kept, self.parameters()):
                now.copy_(saved)
        by_seed = best.view(self.seeds, config.members)
        self.elites = by_seed.argsort(1)[:, : config.elites]
        return by_seed.gather(1, self.elites).mean().item(), passes

    def _pick(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return rows (K, B) of values (S, N, m) for the networks, those of the first seed first."""
        own = torch.arange(self.count, device=x.device)[:, None] // self.config.members
        return x[own, rows]

    def loss(self, pairs: Tensor) -> Tensor:
        """Return the sum of all networks' losses for pairs (N, B, inputs and targets): likelihood, decay, bounds."""
        x, goal = pairs.split([self.mean.shape[-1], self.most.shape[-1]], -1)
        mean, spread = self.distribution(x)
        likelihood = ((mean - goal).square() * (-spread).exp() + spread).mean((1, 2)).sum()
        bounds = BOUND_WEIGHT * (self.most.sum() - self.least.sum())
        decays: Sequence[float] = DECAY[-len(self.network.weights) :]
        weights = sum(0.5 * d * w.square().sum() for d, w in zip(decays, self.network.weights))
        return likelihood + bounds + weights

    def _update(self, pairs: Tensor) -> None:
        """Take one step of Adam."""
        # shapes that come once are not compiled for
        loss = self._loss if pairs.shape[1] == self.config.batch else self.loss
        descend(self.optimizer, self.parameters(), loss(pairs))

    @torch.no_grad()
    def _error(self, pairs: Tensor) -> Tensor:
        """Return the mean squared error (N,) of each network."""
        x, goal = pairs.split([self.mean.shape[-1], self.most.shape[-1]], -1)
        return (self.distribution(x)[0] - goal).square().mean((1, 2))

    # -- prediction ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def predict(self, observation: Tensor, action: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random rewards (S, B) and next observations (S, B, n); each row by a random elite of its seed.

        B is a multiple of the number of elites: rows are dealt out among them, and each computes its own only.
        """
        seeds, rows = observation.shape[:2]
        elites, members = self.config.elites, self.config.members
        deal = torch.rand(seeds, rows, device=observation.device, generator=random).argsort(1)[..., None]
        x = (torch.cat([observation, action], -1) - self.mean) / self.std
        x = x.gather(1, deal.expand_as(x)).view(seeds * elites, rows // elites, -1)
        first = members * torch.arange(seeds, device=x.device)[:, None]
        mean, spread = self._predicted(x, (first + self.elites).flatten())
        noise = torch.randn(mean.shape, dtype=mean.dtype, device=mean.device, generator=random)
        drawn = (mean + (0.5 * spread).exp() * noise).view(seeds, rows, -1)
        found = torch.empty_like(drawn).scatter_(1, deal.expand_as(drawn), drawn)
        return found[..., 0], observation + found[..., 1:]

    def believes(self, reward: Tensor, after: Tensor) -> Tensor:
        """Return where (S, B) predictions are finite, and not far outside of the observations that were trained on."""
        mean, std = (x[..., : after.shape[-1]] for x in (self.mean, self.std))
        # a comparison with NaN is false
        return reward.isfinite() & ((after - mean).abs() < FAR * std).all(-1)

    # -- saving ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything later predictions and training depend on."""
        return {
            "parameters": [p.detach() for p in self.parameters()], "optimizer": self.optimizer.state_dict(),
            "mean": self.mean, "std": self.std, "elites": self.elites,
        }  # fmt: skip

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        with torch.no_grad():
            for now, saved in zip(self.parameters(), state["parameters"], strict=True):
                now.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])
        self.improve.forget()
        for name in ("mean", "std", "elites"):
            setattr(self, name, state[name].to(getattr(self, name).device))
