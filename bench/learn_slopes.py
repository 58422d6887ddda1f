"""How good the slopes are that an actor follows, at a checkpoint of `pullback run table-4`.

`python -m bench.learn_slopes FILE --links 3 --seeds 2 [--width 256] [--batch 256] [--temperature 1]`: for stored states
and actions, ∂Q/∂a and Q as the critic has them and through h steps of the simulation with the target critics after
them (h = 1 is policy enhancement, at the current policy's next actions), against the truth: the mean over many rollouts
of the current policy to the end of the episode, where no critic is asked.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from pullback.core.search_loop import Checkpoint
from pullback.learn import SAC, Env, make
from pullback.rigid.state import State
from pullback.tasks.common.threads import simulation_threads
from pullback.tasks.table_4 import Options, search

Tensor = torch.Tensor

HORIZONS = (1, 2, 4, 8, 16, 32)
RECENT = 3000
"""Newest transitions of which some are taken."""


def load_run(file: Path, given: argparse.Namespace) -> SAC:
    """Return a run of policy enhancement as it was saved."""
    options = Options(seeds=given.seeds, width=given.width, batch=given.batch, temperature=given.temperature)
    env, trial = (make("swing-up", given.seeds, links=given.links, variant=given.variant) for _ in range(2))
    run = search(env, trial, "ours", options, given.links)
    Checkpoint(run, file, run.settings).resume()
    return run


def states_of(observation: Tensor, links: int, episode: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return joint angles, rates and steps of observations of `swing-up`."""
    rates, points = observation[..., :links], observation[..., links:-1].unflatten(-1, (links + 1, 3))
    along = points[..., 1:, :] - points[..., :-1, :]
    direction = torch.atan2(along[..., 2], along[..., 1])
    angles = torch.cat([direction[..., :1], direction.diff(dim=-1)], -1)
    return angles, rates, (observation[..., -1] * episode).round().long()


def roll_out(run: SAC, model: Env, rows: dict[str, Tensor], links: int, horizon: int) -> tuple[Tensor, Tensor]:
    """Return ∂Q/∂a (S, K, nu) and Q (S, K): the stored action, the policy until `horizon`, then the target critics."""
    observation, shape = rows["observation"], rows["observation"].shape[:2]
    q, qd, steps = (x.flatten(0, 1) for x in states_of(observation, links, model.episode))
    model.reset()
    model.state, model.steps = State(q, qd, model.state.impulses), steps
    model.detach()
    temperature = run.log_temperature.detach().exp()[:, None]
    first = rows["action"].clone().requires_grad_()
    action, last, total = first, observation, observation.new_zeros(shape)
    bonus, running = observation.new_zeros(shape), observation.new_ones(shape, dtype=torch.bool)
    for _ in range(horizon):
        step = model.step(action.flatten(0, 1))
        total = torch.where(running, total + step.reward.view(shape) + bonus, total)
        last = torch.where(running[..., None], step.info["final_observation"].view(*shape, -1), last)
        running = running & ~step.terminated.view(shape)
        action, density = run.policy.sample(last, run.noise(*first.shape))
        bonus = -temperature * density
    after = run.targets(last, action).amin(0) + bonus
    value = torch.where(running, total + after, total)
    (slope,) = torch.autograd.grad(value.sum(), first)
    return slope, value.detach()


def describe(name: str, slope: Tensor, value: Tensor, true_slope: Tensor, true_value: Tensor) -> str:
    """Return a line: how far slopes (N, nu) and values (N,) of one seed are from the true ones."""
    cosine = torch.nn.functional.cosine_similarity(slope, true_slope, -1).quantile(slope.new_tensor([0.25, 0.5, 0.75]))
    length = slope.norm(dim=-1).median() / true_slope.norm(dim=-1).median()
    error = value - true_value
    low, middle, high = cosine.tolist()
    return (
        f"  {name:18} cosine {middle:5.2f} ({low:5.2f} to {high:5.2f}), length {length:4.2f}, value off by "
        f"{error.mean():6.2f} in the mean, {error.std():5.2f} deviation"
    )


def compare(run: SAC, links: int, states: int, rollouts: int) -> None:
    """Print all lines."""
    count, seeds = run.replay.count, run.config.seeds
    picked = torch.randint(max(0, count - RECENT), count, (states,), generator=run.random)
    stored = {name: run.replay.all()[name][:, picked] for name in ("observation", "action")}
    many = {name: x.repeat_interleave(rollouts, 1) for name, x in stored.items()}
    given = {"links": links, "variant": run.env.options["variant"], "dtype": run.env.dtype}
    model = make("swing-up", seeds * states * rollouts, **given)

    def mean(horizon: int) -> tuple[Tensor, Tensor]:
        slope, value = roll_out(run, model, many, links, horizon)
        return slope.unflatten(1, (states, rollouts)).mean(2), value.unflatten(1, (states, rollouts)).mean(2)

    truth = mean(model.episode)
    action = stored["action"].clone().requires_grad_()
    value = run.critics(stored["observation"], action).amin(0)
    found = {"critic": (torch.autograd.grad(value.sum(), action)[0], value.detach())}
    found |= {f"{h} step{'s' if h > 1 else ''}": mean(h) for h in HORIZONS}
    found["rest, other noise"] = mean(model.episode)
    temperature = run.log_temperature.detach().exp()
    for k in range(seeds):
        print(
            f"seed {run.config.seed + k}, {run.steps} actions, temperature {temperature[k]:.3f}, true values "
            f"{truth[1][k].mean():.2f} in the mean, {truth[1][k].std():.2f} deviation"
        )
        for name, (slope, value) in found.items():
            print(describe(name, slope[k], value[k], truth[0][k], truth[1][k]), flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--links", type=int, default=3)
    parser.add_argument("--variant", default="released")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--states", type=int, default=64)
    parser.add_argument("--rollouts", type=int, default=32)
    given = parser.parse_args()
    with simulation_threads():
        run = load_run(given.file, given)
        compare(run, given.links, given.states, given.rollouts)


if __name__ == "__main__":
    main()
