"""SAC beside others, in one run: the time of an update, and the return on a standard task.

`python -m bench.learn_sac update`: one update (batch 256, layers of 256 and 256) of ours, against SAC written with
torch's own modules whose losses and gradients are compiled by torch.compile; and ten seeds side by side against one.
`--device cuda` does so on a GPU.

`python -m bench.learn_sac pendulum [--steps N] [--seeds N]`: ours and stable-baselines3 (if it is installed) learn
Gymnasium's Pendulum-v1 with the same settings, ten seeds each. Ours runs a copy of its equations in torch, which is
first compared with Gymnasium's.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from importlib import import_module
from importlib.util import find_spec
from math import pi
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from bench.timing import time_in_turns
from pullback.learn import SAC, Env, SACConfig
from pullback.rigid.state import State
from pullback.rigid.world.actuators import Torque
from pullback.rigid.world.world import World
from pullback.robot.load import load

Tensor = torch.Tensor

CALLS = 12
KINDS = {
    "torch modules, compiled": "default",
    "torch modules, compiled with CUDA graphs": "reduce-overhead",
    "torch modules, eager": "",
}
"""Ways to run the reference: by name, the mode of torch.compile."""
TRIALS = 5
GRAVITY, MASS, LENGTH, DT, TORQUE, FASTEST = 10.0, 1.0, 1.0, 0.05, 2.0, 8.0


class GymPendulum(Env):
    """Gymnasium's Pendulum-v1 in torch: angle from the top and its rate are q and qd."""

    dt = DT
    substeps = 1
    episode = 200

    def build(self) -> World:
        """Return a world with a joint and a motor, whose dynamics are not used."""
        world = World()
        world.add(load("pendulum1"), name="arm", actuators=Torque())
        return world

    def start(self) -> tuple[Tensor, Tensor]:
        """Start anywhere, turning slowly."""
        return self.uniform(-pi, pi, 1), self.uniform(-1.0, 1.0, 1)

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return cosine, sine and rate."""
        return torch.cat([state.q.cos(), state.q.sin(), state.qd], 1)

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return minus the squares of the angle, its rate and the torque, before the step."""
        angle = (before.q + pi).remainder(2 * pi) - pi
        return -(angle.square() + 0.1 * before.qd.square() + 1e-3 * (TORQUE * action).square()).squeeze(1)

    def advance(self, state: State, control: Tensor) -> State:
        """Take the step of Gymnasium's equations."""
        push = 3.0 * GRAVITY / (2.0 * LENGTH) * state.q.sin() + 3.0 / (MASS * LENGTH**2) * TORQUE * control
        rate = (state.qd + push * DT).clamp(-FASTEST, FASTEST)
        return State(state.q + rate * DT, rate, state.impulses)


class Reference:
    """SAC of one seed as it is usually written, with twin critics in one module each; `update` is compiled."""

    def __init__(self, n: int, nu: int, width: int, compiled: str) -> None:
        def layers(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
            )

        self.actor, self.one, self.two = layers(n, 2 * nu), layers(n + nu, 1), layers(n + nu, 1)
        self.slow_one, self.slow_two = copy.deepcopy(self.one), copy.deepcopy(self.two)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.critic_weights = [*self.one.parameters(), *self.two.parameters()]
        self.slow_weights = [*self.slow_one.parameters(), *self.slow_two.parameters()]
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), 3e-4, fused=True)
        self.critic_adam = torch.optim.Adam(self.critic_weights, 3e-4, fused=True)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], 3e-4, fused=True)
        self.nu = nu
        self._critic_loss, self._actor_loss = self.critic_loss, self.actor_loss
        if compiled:
            self._critic_loss = torch.compile(self.critic_loss, mode=compiled)
            self._actor_loss = torch.compile(self.actor_loss, mode=compiled)

    def sample(self, s: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions and their log-density."""
        mean, log_std = self.actor(s).chunk(2, -1)
        log_std = log_std.clamp(-20, 2)
        x = mean + log_std.exp() * noise
        a = x.tanh()
        log_p = -0.5 * noise.square() - log_std - 0.9189385 - torch.log(1 - a.square() + 1e-6)
        return a, log_p.sum(-1, keepdim=True)

    def critic_loss(self, s: Tensor, a: Tensor, r: Tensor, s2: Tensor, end: Tensor, noise: Tensor) -> Tensor:
        """Return the loss of both critics."""
        with torch.no_grad():
            a2, log_p = self.sample(s2, noise)
            x2 = torch.cat([s2, a2], -1)
            least = torch.minimum(self.slow_one(x2), self.slow_two(x2)) - self.log_alpha.exp() * log_p
            goal = r[:, None] + 0.99 * (1 - end[:, None]) * least
        x = torch.cat([s, a], -1)
        return 0.5 * ((self.one(x) - goal).square().mean() + (self.two(x) - goal).square().mean())

    def actor_loss(self, s: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the policy's loss, and the mean log-density."""
        a, log_p = self.sample(s, noise)
        x = torch.cat([s, a], -1)
        loss = (self.log_alpha.exp().detach() * log_p - torch.minimum(self.one(x), self.two(x))).mean()
        return loss, log_p.detach().mean()

    def update(self, batch: dict[str, Tensor]) -> None:
        """Improve critics, policy and temperature."""
        s, a, r, s2, end = (batch[k] for k in ("observation", "action", "reward", "next", "terminated"))
        noise = torch.randn(2, len(s), self.nu, device=s.device)
        loss = self._critic_loss(s, a, r, s2, end, noise[0])
        self._step(self.critic_adam, self.critic_weights, loss)
        loss, log_p = self._actor_loss(s, noise[1])
        self._step(self.actor_adam, list(self.actor.parameters()), loss)
        self._step(self.alpha_adam, [self.log_alpha], -self.log_alpha * (log_p - self.nu))
        with torch.no_grad():
            for slow, fast in zip(self.slow_weights, self.critic_weights):
                slow.lerp_(fast, 5e-3)

    @staticmethod
    def _step(adam: torch.optim.Adam, weights: list[Any], loss: Tensor) -> None:
        for weight, slope in zip(weights, torch.autograd.grad(loss, weights)):
            weight.grad = slope
        adam.step()


def time_updates(device: torch.device) -> dict[str, float]:
    """Return the median time [ms] of an update, all taking turns; on a GPU ours draws its batch in it too."""
    on_gpu = device.type == "cuda"
    calls: dict[str, Any] = {}
    batches: list[dict[str, Tensor]] = []
    for seeds in (1, 10):
        env = GymPendulum(seeds, device=device)
        run = SAC(env, env, SACConfig(seeds=seeds, epochs=1, epoch_steps=10_000))
        random = torch.Generator(device).manual_seed(0)
        run.replay.add(
            {
                name: torch.rand(seeds, 10_000, *shape, generator=random, device=device)
                for name, shape in run.shapes().items()
            }
        )
        batches.append(run.draw())
        name = f"ours, {seeds} seed{'s' if seeds > 1 else ''}"
        calls[name] = run.improve if on_gpu else lambda run=run, batch=batches[-1]: run.update(batch)
    one = {name: x[0].contiguous() for name, x in batches[0].items()}
    with device:
        for name, compiled in KINDS.items():
            if on_gpu or compiled != "reduce-overhead":
                reference = Reference(3, 1, 256, compiled)
                calls[name] = lambda reference=reference: reference.update(one)
    for call in calls.values():
        for _ in range(6):
            call()
    times = time_in_turns(calls, rounds=CALLS * (4 if on_gpu else 1))
    return {name: 1e3 * seconds for name, seconds in times.items()}


def compare_with_gymnasium() -> float:
    """Return the largest difference of observations and rewards from Gymnasium's, over 50 random actions."""
    theirs, ours = gymnasium.make("Pendulum-v1").unwrapped, GymPendulum(1, dtype=torch.float64)
    theirs.reset(seed=0)
    theirs.state = np.array([ours.state.q.item(), ours.state.qd.item()])  # pyright: ignore[reportAttributeAccessIssue]
    worst, random = 0.0, np.random.default_rng(0)
    for _ in range(50):
        action = random.uniform(-1, 1, 1)
        step = ours.step(torch.tensor(action)[None])
        seen, reward = theirs.step(TORQUE * action)[:2]
        worst = max(
            worst, float(abs(seen - step.observation[0].numpy()).max()), abs(float(reward) - step.reward.item())
        )
    return worst


def learn_pendulum(steps: int, width: int, batch: int, seeds: int) -> dict[str, Any]:
    """Return the mean returns of the policies of the mean, of ten episodes, by seed, after each fifth of the steps."""
    settings = {"random_steps": 100, "first_update": 100, "hidden": (width, width), "batch": batch, "rate": 1e-3}
    env, trial = GymPendulum(seeds), GymPendulum(10 * seeds)
    run = SAC(env, trial, SACConfig(seeds=seeds, epochs=TRIALS, epoch_steps=steps // TRIALS, **settings))
    for _ in range(TRIALS):
        run.iterate()
    found = {
        "off from Gymnasium by": compare_with_gymnasium(),
        **_described("ours", [report.returns for report in run.history], run.seconds),
    }
    if find_spec("stable_baselines3") is None:
        return found
    began = time.perf_counter()
    theirs = [_peer_curve(seed, steps, width, batch) for seed in range(seeds)]
    return {**found, **_described("stable-baselines3", np.array(theirs).T.tolist(), time.perf_counter() - began)}


def _peer_curve(seed: int, steps: int, width: int, batch: int) -> list[float]:
    """Return the returns of one seed of stable-baselines3's SAC, after each fifth of the steps."""
    sac: Any = import_module("stable_baselines3").SAC
    evaluate_policy: Any = import_module("stable_baselines3.common.evaluation").evaluate_policy
    peer = sac(
        "MlpPolicy", "Pendulum-v1", learning_rate=1e-3, learning_starts=100, batch_size=batch, seed=seed,
        policy_kwargs={"net_arch": [width, width]},
    )  # fmt: skip
    trial, curve = gymnasium.make("Pendulum-v1"), []
    trial.reset(seed=seed)
    for k in range(TRIALS):
        peer.learn(steps // TRIALS, reset_num_timesteps=k == 0)
        curve.append(float(evaluate_policy(peer, trial, 10)[0]))
    return curve


def _described(name: str, curve: list[list[float]], seconds: float) -> dict[str, Any]:
    """Return curves (a list of seeds for each trial) with the quartiles over seeds of every trial."""
    quartiles = np.percentile(np.array(curve), [25, 50, 75], axis=1).T.round(1).tolist()
    return {name: curve[-1], f"{name}, curve": curve, f"{name}, quartiles": quartiles, f"{name}, seconds": seconds}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["update", "pendulum"])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="of update")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "update":
        times = time_updates(given.device)
        ratios = {
            "ours over compiled": times["ours, 1 seed"] / times["torch modules, compiled"],
            "ten seeds over one": times["ours, 10 seeds"] / times["ours, 1 seed"],
        }
        print(json.dumps({"ms": times, **ratios}, indent=1))
    else:
        print(json.dumps(learn_pendulum(given.steps, given.width, given.batch, given.seeds), indent=1))


if __name__ == "__main__":
    main()
