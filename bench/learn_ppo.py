"""PPO of rsl_rl on the environments of `pullback.learn`, against the clock: beside `bench.learn_gpu`, by its options.

    python -m bench.learn_ppo --env ant --worlds 4096 --seconds 240 --seed 0 --out out/ant_ppo_0

It writes `curve.json` as `bench.learn_gpu` does, and `ppo.pt`, from which the same command goes on. The clock counts
iterations only.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import torch
from rsl_rl.runners import OnPolicyRunner

from bench.learn_gpu import BEGUN, GOALS, PRINT_EVERY, TEST_SEED, compile_kernels, device_name, pairs, parser
from pullback.learn import Step, evaluate, make
from pullback.learn.rsl_env import GROUP, RslEnv, ppo_settings
from pullback.learn.short_horizon import RECENT

Tensor = torch.Tensor


class Episodes:
    """Returns of the episodes that ended, read once an iteration."""

    def __init__(self) -> None:
        self.pending: list[tuple[Tensor, Tensor, Tensor]] = []
        self.last: deque[float] = deque(maxlen=RECENT)

    def __call__(self, step: Step) -> None:
        """Note a step."""
        self.pending.append((step.info["episode_return"], step.terminated | step.truncated, step.reward))

    def read(self) -> tuple[float, float]:
        """Return the mean return of the last episodes, and the mean reward of the steps since the last reading."""
        returns, ends, rewards = (torch.stack(parts) for parts in zip(*self.pending))
        self.pending.clear()
        self.last.extend(returns[ends].tolist())
        return sum(self.last) / len(self.last) if self.last else float("nan"), float(rewards.mean())


def act(runner: Any, env: RslEnv) -> Any:
    """Return the policy's action without noise, of observations."""
    policy = runner.get_inference_policy(device=env.device)
    with torch.no_grad():
        like = env.get_observations()
    return lambda observation: policy(like.clone().set(GROUP, observation)).clamp(-1.0, 1.0)


def main(given: Sequence[str] | None = None) -> None:
    """Train, print, write."""
    args = parser().parse_args(given)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    print(f"compiled in {compile_kernels(args):.1f} s on {device_name(torch.device(args.device))}", flush=True)
    env, trial = (
        make(args.env, args.worlds, seed=seed, device=args.device, **pairs(args.option))
        for seed in (args.seed, args.seed + TEST_SEED)
    )
    wrapped, settings = RslEnv(env), ppo_settings(seed=args.seed, **pairs(args.set))
    with redirect_stdout(StringIO()):
        runner = OnPolicyRunner(wrapped, settings, log_dir=None, device=str(wrapped.device))
    episodes = wrapped.watch = Episodes()
    seconds, curve, tries, file, saved = 0.0, [], [], args.out / "curve.json", args.out / "ppo.pt"
    if saved.exists():
        runner.load(str(saved))
        before = json.loads(file.read_text())
        curve, tries, seconds = before["curve"], before["tries"], before["curve"][-1]["seconds"]
        print(f"resumed at {seconds:.1f} s; episodes begin anew", flush=True)
    end, printed, tried = seconds + args.seconds, -PRINT_EVERY, seconds
    steps = curve[-1]["steps"] if curve else 0

    def attempt() -> None:
        found = evaluate(trial, act(runner, wrapped), args.seed + TEST_SEED).mean().item()
        tries.append({"seconds": seconds, "steps": steps, "return": found})
        print(f"{seconds:7.1f} s  without noise {found:.1f}", flush=True)

    while seconds < end and time.perf_counter() - BEGUN < args.wall:
        begun = time.perf_counter()
        with redirect_stdout(StringIO()):
            runner.learn(1)
        gained, reward = episodes.read()
        seconds += time.perf_counter() - begun
        steps += args.worlds * settings["num_steps_per_env"]
        curve.append({"seconds": seconds, "steps": steps, "step_reward": reward})
        if gained == gained:
            curve[-1]["episode_return"] = gained
        if seconds - printed >= PRINT_EVERY:
            printed = seconds
            print(f"{seconds:7.1f} s  steps {steps:9d}  return {gained:8.1f}  reward {reward:7.3f}", flush=True)
        if args.evaluate > 0.0 and seconds - tried >= args.evaluate:
            tried = seconds
            attempt()
    attempt()
    runner.save(str(saved))
    about = {"env": args.env, "algorithm": "ppo", "worlds": args.worlds, "seed": args.seed}
    device = device_name(torch.device(args.device))
    file.write_text(json.dumps({**about, "device": device, "tries": tries, "curve": curve}))
    for goal in GOALS.get(args.env, ()):
        first = next((r for r in curve if r.get("episode_return", -1e9) >= goal), None)
        told = "not reached" if first is None else f"{first['seconds']:.1f} s, {first['steps']} steps"
        print(f"return {goal:.0f}: last {RECENT} episodes {told}")


if __name__ == "__main__":
    main()
