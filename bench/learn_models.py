"""What extra samples are worth to a learned model: models of `pullback run figure-5` fitted with and without them.

`python -m bench.learn_models [--env ant-walk] [--steps 50] [--seeds 3] [--radii 0.01 0.1 0.3 1] [--policy FILE]`: in 40
worlds of each seed so many steps are taken, under random actions or those of the policies in a checkpoint; an ensemble
is fitted to them alone, then with nine extra samples of each, for every radius of their actions. All are tried on other
worlds' transitions, none of them extra.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from pullback.learn import EnsembleConfig, Extra, extra_samples, make, step_with_jacobian
from pullback.learn.ensemble import Ensemble
from pullback.learn.replay import Rows
from pullback.learn.seeded import SeededPolicy, generators
from pullback.tasks.common.threads import simulation_threads

Tensor = torch.Tensor

WORLDS = 40
COUNT = 9
SMOOTHING = 0.8
"""Share of an action's noise that stays in the next one."""
SLOPES_OF = 100
"""Transitions of which slopes are compared."""
LEAST_STD = 1e-5
PLAIN = ("observation", "action", "reward", "next")


def collect(name: str, seeds: int, seed: int, steps: int, policy: SeededPolicy | None) -> Rows:
    """Return transitions (S, N, ...) with their Jacobians."""
    env = make(name, seeds * WORLDS, seed=seed)
    random = torch.Generator().manual_seed(seed)
    observation, noise = env.reset(seed), torch.zeros(seeds, WORLDS, env.action_size)
    # some worlds move little, some much
    scale = torch.linspace(0.1, 1.0, WORLDS)[:, None]
    found: list[Rows] = []
    for _ in range(steps):
        noise = SMOOTHING * noise + (1 - SMOOTHING**2) ** 0.5 * torch.randn(noise.shape, generator=random)
        before = observation.view(seeds, WORLDS, -1)
        with torch.no_grad():
            action = (scale * noise).clamp(-1.0, 1.0) if policy is None else policy.sample(before, noise)[0]
        step, jacobian = step_with_jacobian(env, action.flatten(0, 1))
        rows = {
            "observation": observation, "action": action.flatten(0, 1), "reward": step.reward,
            "next": step.info["final_observation"], "terminated": step.terminated.to(env.dtype),
            "next_by_action": jacobian.next, "reward_by_action": jacobian.reward,
        }  # fmt: skip
        found.append({key: x.view(seeds, WORLDS, *x.shape[1:]) for key, x in rows.items()})
        observation = step.observation
    return {key: torch.cat([rows[key] for rows in found], 1) for key in found[0]}


def with_extra(rows: Rows, radius: float) -> tuple[Rows, int]:
    """Return transitions, each followed by its extra samples, and how many rows one has become."""
    if not radius:
        return {name: rows[name] for name in PLAIN}, 1
    around = extra_samples(rows, Extra(COUNT, radius), torch.Generator().manual_seed(0))
    together = {
        name: torch.cat([rows[name][:, :, None], around[name].unflatten(1, (-1, COUNT))], 2).flatten(1, 2)
        for name in PLAIN
    }
    return together, 1 + COUNT


def try_model(model: Ensemble, rows: Rows) -> list[float]:
    """Return medians over seeds: squared error of the mean, minus log-likelihood, error of the slopes by actions."""
    seeds, elites, members = model.seeds, model.config.elites, model.config.members
    picked = (model.elites + members * torch.arange(seeds)[:, None]).flatten()

    def predict(x: Tensor) -> tuple[Tensor, Tensor]:
        scaled = ((x - model.mean) / model.std).repeat_interleave(elites, 0)
        mean, spread = model.distribution(scaled, picked)
        return mean.unflatten(0, (seeds, elites)), spread.unflatten(0, (seeds, elites))

    x = torch.cat([rows["observation"], rows["action"]], -1)
    goal = torch.cat([rows["reward"][..., None], rows["next"] - rows["observation"]], -1)
    # entries that always change by the same, as time does, say nothing
    std = goal.std(1, keepdim=True)
    weight = torch.where(std > LEAST_STD, 1.0 / std, torch.zeros_like(std))
    with torch.no_grad():
        mean, spread = predict(x)
    error = ((mean.mean(1) - goal) * weight).square().mean(1).sum(1) / (weight > 0).sum((1, 2))
    surprise = 0.5 * ((mean - goal[:, None]).square() * (-spread).exp() + spread).mean((1, 2, 3))
    few = slice(None, None, max(1, x.shape[1] // SLOPES_OF))
    some = x[:, few].clone().requires_grad_()
    total = predict(some)[0].mean(1).sum((0, 1))
    n = rows["action"].shape[-1]
    found = torch.stack([torch.autograd.grad(one, some, retain_graph=True)[0][..., -n:] for one in total], 2)
    true = torch.cat([rows["reward_by_action"][:, few, None], rows["next_by_action"][:, few]], 2)
    off = ((found - true) * weight[..., None]).flatten(2).norm(dim=2) / (true * weight[..., None]).flatten(2).norm(
        dim=2
    )
    return [values.median().item() for values in (error, surprise, off.median(1).values)]


def compare(name: str, seeds: int, steps: int, radii: list[float], policy: SeededPolicy | None) -> None:
    """Print a line for each radius."""
    rows, others = (collect(name, seeds, seed, count, policy) for seed, count in ((1, steps), (2, max(25, steps // 4))))
    sizes = rows["observation"].shape[-1], rows["action"].shape[-1]
    print(f"{name}, {rows['reward'].shape[1]:,} transitions of each of {seeds} seeds, medians over seeds")
    show: Callable[..., None] = lambda *x: print("| " + " | ".join(x) + " |", flush=True)  # noqa: E731
    show("radius", "passes", "error of the mean / variance", "minus log-likelihood", "error of slopes by actions")
    show(*["---"] * 5)
    for radius in [0.0, *radii]:
        given, copies = with_extra(rows, radius)
        model = Ensemble(seeds, sizes, EnsembleConfig(), 0)
        _, passes = model.fit(given, torch.Generator().manual_seed(0), copies)
        show(
            f"{radius:g}" if radius else "no extra samples",
            f"{passes}",
            *(f"{x:.3f}" for x in try_model(model, others)),
        )


def load_policy(file: Path, seeds: int) -> SeededPolicy:
    """Return the policies of a checkpoint of `pullback run figure-5`, of as many seeds."""
    state = torch.load(file, map_location="cpu", weights_only=True)["state"]["policy"]
    sizes = [x.shape[1] for name, x in state.items() if "weights" in name]
    last = [x.shape[2] for name, x in state.items() if "weights" in name][-1]
    policy = SeededPolicy(generators(0, seeds), [*sizes, last // 2])
    policy.load_state_dict(state)
    return policy


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="ant-walk")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--radii", type=float, nargs="+", default=[0.01, 0.1, 0.3, 1.0])
    parser.add_argument("--policy", type=Path)
    given = parser.parse_args()
    policy = None if given.policy is None else load_policy(given.policy, given.seeds)
    with simulation_threads():
        compare(given.env, given.seeds, given.steps, given.radii, policy)


if __name__ == "__main__":
    main()
