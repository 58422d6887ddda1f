"""PPO of rsl_rl on the environments of `pullback.learn`, against the clock: beside `bench.learn_gpu`, by its options.

    python -m bench.learn_ppo --env ant --worlds 4096 --seconds 240 --seed 0 --out out/ant_ppo_0

It writes `curve.json` as `bench.learn_gpu` does, and `ppo.pt`, from which the same command goes on: every minute and at
the end. The clock counts iterations only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

import torch

from bench import learn_gpu
from bench.learn_gpu import BEGUN, GOALS, PRINT_EVERY, TEST_SEED, compile_kernels, device_name, pairs, parser
from pullback.learn import evaluate, make
from pullback.learn.rsl_ppo import RslPPO, RslReport
from pullback.learn.short_horizon import RECENT


def main(given: Sequence[str] | None = None) -> None:
    """Train, print, write."""
    args = parser().parse_args(given)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.device == "cpu":
        torch.set_num_threads(1)
    print(f"compiled in {compile_kernels(args):.1f} s on {device_name(torch.device(args.device))}", flush=True)
    env, trial = (
        make(args.env, worlds, seed=seed, device=args.device, **pairs(args.option))
        for worlds, seed in ((args.worlds, args.seed), (args.tries, args.seed + TEST_SEED))
    )
    run, tries, cpu = RslPPO(env, seed=args.seed, **pairs(args.set)), [], []
    file, saved = args.out / "curve.json", args.out / "ppo.pt"
    if saved.exists():
        before = json.loads(file.read_text())
        cpu = [row.pop("cpu_seconds") for row in before["curve"]]
        run.load(saved, [RslReport(**{"episode_return": float("nan"), **row}) for row in before["curve"]])
        tries = before["tries"]
        print(f"resumed at {run.history[-1].seconds:.1f} s; episodes begin anew", flush=True)
    last = run.history[-1].seconds if run.history else 0.0
    spent = cpu[-1] if cpu else 0.0
    end = args.seconds + (last if args.clock == "wall" else spent)
    printed, tried = -PRINT_EVERY, last

    def attempt() -> None:
        found = evaluate(trial, run.act, args.seed + TEST_SEED).mean().item()
        tries.append({"seconds": run.history[-1].seconds, "steps": run.history[-1].steps, "return": found})
        print(f"{last:7.1f} s  without noise {found:.1f}", flush=True)

    def save() -> None:
        run.save(saved)
        about = {"env": args.env, "algorithm": "ppo", "worlds": args.worlds, "seed": args.seed}
        # NaN, which JSON lacks, is left out
        curve = [
            {name: x for name, x in {**asdict(report), "cpu_seconds": spent}.items() if x == x}
            for report, spent in zip(run.history, cpu)
        ]
        device = device_name(torch.device(args.device))
        file.write_text(json.dumps({**about, "device": device, "tries": tries, "curve": curve}))

    written = time.perf_counter()
    while (last if args.clock == "wall" else spent) < end and time.perf_counter() - BEGUN < args.wall:
        begun = time.process_time()
        run.iterate()
        report = run.history[-1]
        last, spent = report.seconds, spent + time.process_time() - begun
        cpu.append(spent)
        if last - printed >= PRINT_EVERY:
            printed = last
            numbers = f"return {report.episode_return:8.1f}  reward {report.step_reward:7.3f}"
            print(f"{last:7.1f} s  steps {report.steps:9d}  {numbers}  cpu {spent:.1f} s", flush=True)
        if args.evaluate > 0.0 and last - tried >= args.evaluate:
            tried = last
            attempt()
        if time.perf_counter() - written > learn_gpu.SAVE_EVERY:
            save()
            written = time.perf_counter()
        if report.episode_return >= args.until:
            break
    attempt()
    save()
    for goal in GOALS.get(args.env, ()):
        first, spent = next(((r, s) for r, s in zip(run.history, cpu) if r.episode_return >= goal), (None, 0.0))
        told = "not reached" if first is None else f"{first.seconds:.1f} s ({spent:.1f} s of CPU), {first.steps} steps"
        print(f"return {goal:.0f}: last {RECENT} episodes {told}")


if __name__ == "__main__":
    main()
