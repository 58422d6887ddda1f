"""What extra samples are worth to a learned model: models of `pullback run figure-5` fitted with and without them.

`python -m bench.learn_models [--env ant-walk] [--steps 50] [--seeds 3] [--radii 0.01 0.1 0.3 1] [--policy FILE]`: in 40
worlds of each seed so many steps are taken, under random actions or those of the policies in a checkpoint, of all its
seeds; an ensemble is fitted to them alone, then with nine extra samples of each, for every radius of their actions. All
are tried on other worlds' transitions, none of them extra.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from pullback.core.state_file import read_state
from pullback.learn import EnsembleConfig, Extra, make, step_with_jacobian
from pullback.learn.enhance import with_extra_samples
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
"""Entries that change less than this are left out of the errors."""


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
    scaled, size = ((x * weight[..., None]).flatten(2).norm(dim=2) for x in (found - true, true))
    off = (scaled / size).median(1).values
    return [values.median().item() for values in (error, surprise, off)]


def compare(name: str, seeds: int, steps: int, radii: list[float], policy: SeededPolicy | None) -> None:
    """Print a line for each radius."""
    rows, others = (collect(name, seeds, seed, count, policy) for seed, count in ((1, steps), (2, max(25, steps // 4))))
    sizes = rows["observation"].shape[-1], rows["action"].shape[-1]
    print(f"{name}, {rows['reward'].shape[1]:,} transitions of each of {seeds} seeds, medians over seeds")
    print(
        row_of("radius", "passes", "error of the mean / variance", "minus log-likelihood", "error of slopes by actions")
    )
    print(row_of(*["---"] * 5), flush=True)
    for radius in [0.0, *radii]:
        given, copies, label = rows, 1, "no extra samples"
        if radius:
            given = with_extra_samples(rows, Extra(COUNT, radius), torch.Generator().manual_seed(0))
            copies, label = 1 + COUNT, f"{radius:g}"
        model = Ensemble(seeds, sizes, EnsembleConfig(), 0)
        _, passes = model.fit(given, torch.Generator().manual_seed(0), copies)
        print(row_of(label, f"{passes}", *(f"{x:.3f}" for x in try_model(model, others))), flush=True)


def row_of(*entries: str) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(entries)} |"


def load_policy(file: Path) -> SeededPolicy:
    """Return the policies of all seeds in a checkpoint of `pullback run figure-5`."""
    state = read_state(file)["state"]["policy"]
    weights = [x for name, x in state.items() if "weights" in name]
    policy = SeededPolicy(generators(0, len(weights[0])), [*(x.shape[1] for x in weights), weights[-1].shape[2] // 2])
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
    policy = None if given.policy is None else load_policy(given.policy)
    seeds = given.seeds if policy is None else len(policy.network.weights[0])
    with simulation_threads():
        compare(given.env, seeds, given.steps, given.radii, policy)


if __name__ == "__main__":
    main()
