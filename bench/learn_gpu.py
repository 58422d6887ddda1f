"""Train a policy against the clock, in pieces that resume: curves for docs/learning.md.

    python -m bench.learn_gpu --env ant --algorithm shac --worlds 256 --seconds 240 --seed 0 --out out/ant_shac_0

Kernels are compiled first, and that is timed by itself; so are the parts of an iteration. Then it trains for
`--seconds`, prints a line every ten, and writes `curve.json`, `run.pt` and `policy.pt` to `--out`; the same command
again goes on from there. The clock counts iterations only: compiling, checkpoints and tries without noise
(`--evaluate`) are not in it. Beside other jobs `--clock cpu` counts the process's CPU time.
Options of the environment and settings of the algorithm: `--option contact=rigid --set horizon=8`.
"""

from __future__ import annotations

import argparse
import json
import time
from ast import literal_eval
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

import torch

import pullback as pb
from pullback.core import launch
from pullback.core.search_loop import Checkpoint
from pullback.learn import Env, ShortHorizon, evaluate, find_algorithm, make, save_policy

PRINT_EVERY = 10.0
"""Seconds between two lines."""
SAVE_EVERY = 60.0
"""Seconds between two checkpoints."""
GOALS = {"ant": (6000.0, 7650.0), "hopper": (4500.0,)}
"""Returns whose time is printed."""
BEGUN = time.perf_counter()
"""When this process was started."""
TEST_SEED = 1_000_003
"""Added to the seed for the starts that a policy is tried on."""


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(prog="python -m bench.learn_gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env", default="ant")
    parser.add_argument("--algorithm", default="shac", help="shac, ahac or sapo")
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=240.0, help="of training, in this piece; 0: time an iteration")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="what --seconds counts")
    parser.add_argument("--until", type=float, default=1e9, help="mean return of the last episodes that ends it")
    parser.add_argument("--wall", type=float, default=1e9, help="seconds after which this piece ends, all counted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=None, help="of the simulation, on a CPU")
    parser.add_argument("--evaluate", type=float, default=30.0, help="seconds of training between tries without noise")
    parser.add_argument("--tries", type=int, default=64, help="worlds of such a try")
    parser.add_argument("--block", type=int, default=None, help="threads a block on a GPU, to compare")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the environment")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the algorithm")
    return parser


def pairs(given: Sequence[str]) -> dict[str, Any]:
    """Return NAME=VALUE as a dict; values are Python's literals, or text."""
    found: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            found[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


class PartTimes:
    """Seconds of the parts of an iteration, by events on a GPU."""

    def __init__(self, run: ShortHorizon) -> None:
        self.run, self.on_gpu = run, run.env.device.type == "cuda"
        self.marks: list[tuple[str, Any]] = []
        run.mark = self.mark

    def mark(self, part: str) -> None:
        """Note that a part is over."""
        if not self.on_gpu:
            self.marks.append((part, time.perf_counter()))
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append((part, event))

    def measure(self, iterations: int) -> dict[str, float]:
        """Return the median seconds of each part over some iterations, and of a whole one by the clock."""
        found: dict[str, list[float]] = {}
        for _ in range(iterations):
            self.marks.clear()
            begun = time.perf_counter()
            self.mark("begin")
            self.run.iterate()
            if self.on_gpu:
                torch.cuda.synchronize()
            for (_, a), (part, b) in zip(self.marks, self.marks[1:]):
                spent = 1e-3 * a.elapsed_time(b) if self.on_gpu else b - a
                found.setdefault(part, []).append(spent)
            found.setdefault("all", []).append(time.perf_counter() - begun)
        return {part: median(spent) for part, spent in found.items()}


def compile_kernels(args: argparse.Namespace) -> float:
    """Step a small environment there and back, which compiles all kernels of the large one; return the seconds."""
    begun = time.perf_counter()
    env = make(args.env, 2, device=args.device, **pairs(args.option))
    action = torch.zeros(2, env.action_size, dtype=env.dtype, device=env.device, requires_grad=True)
    for _ in range(2):
        reward = env.step(action).reward
    reward.sum().backward()
    if env.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def line(run: ShortHorizon) -> str:
    """Return the last iteration in words."""
    last = run.history[-1]
    extra = "".join(f" {name} {value:.3g}" for name, value in last.extra.items())
    return (
        f"{last.seconds:7.1f} s  it {run.done:5d}  steps {last.steps:9d}  return {last.episode_return:8.1f}  "
        f"length {last.episode_length:6.1f}  reward {last.step_reward:7.3f}  |gradient| {last.gradient_norm:8.3g}  "
        f"steep {last.steep:.2f} lost {last.lost:.3f} broken {last.broken}{extra}"
    )


class Session:
    """One piece of a training: what is written, and when."""

    def __init__(self, run: ShortHorizon, trial: Env, args: argparse.Namespace) -> None:
        self.run, self.trial, self.args = run, trial, args
        self.tries: list[dict[str, float]] = []
        self.cpu: list[float] = []
        """CPU time [s] of all iterations so far, after each."""
        self.checkpoint = Checkpoint(run, args.out / "run.pt", run.settings)
        self.curve = args.out / "curve.json"
        if self.checkpoint.path.exists():
            self.checkpoint.resume()
            before = json.loads(self.curve.read_text())
            self.tries, self.cpu = before["tries"], [row["cpu_seconds"] for row in before["curve"]]
            print(f"resumed at {run.seconds:.1f} s, iteration {run.done}", flush=True)

    def train(self) -> None:
        """Train for the seconds of this piece."""
        run, args = self.run, self.args
        end = self.clock() + args.seconds
        # clocks of wall time: checkpoints are not in the training's own
        printed, saved = -PRINT_EVERY, time.perf_counter()
        tried = self.tries[-1]["seconds"] if self.tries else 0.0
        while self.clock() < end and run.done < run.config.iterations and time.perf_counter() - BEGUN < args.wall:
            if run.history and run.history[-1].episode_return >= args.until:
                break
            begun = time.process_time()
            run.iterate()
            self.cpu.append((self.cpu[-1] if self.cpu else 0.0) + time.process_time() - begun)
            if run.seconds - printed >= PRINT_EVERY:
                printed = run.seconds
                print(f"{line(run)}  cpu {self.cpu[-1]:.1f} s", flush=True)
            if args.evaluate > 0.0 and run.seconds - tried >= args.evaluate:
                tried = run.seconds
                self.evaluate()
            if time.perf_counter() - saved > SAVE_EVERY:
                self.save()
                saved = time.perf_counter()
        print(line(run), flush=True)
        self.evaluate()
        self.save()

    def clock(self) -> float:
        """Return the seconds of training so far."""
        return self.run.seconds if self.args.clock == "wall" else self.cpu[-1] if self.cpu else 0.0

    def evaluate(self) -> None:
        """Try the policy without noise on starts of its own."""
        begun, last = time.perf_counter(), self.run.history[-1]
        found = evaluate(self.trial, self.run.policy, self.args.seed + TEST_SEED).double()
        values = torch.stack([found.mean(), found.std() if len(found) > 1 else 0.0 * found.mean()]).tolist()
        self.tries.append({"seconds": last.seconds, "steps": last.steps, "return": values[0], "deviation": values[1]})
        spent = time.perf_counter() - begun
        print(f"{last.seconds:7.1f} s  without noise {values[0]:.1f} ± {values[1]:.1f} ({spent:.1f} s)", flush=True)

    def save(self) -> None:
        """Write checkpoint, policy and curve."""
        self.checkpoint.save()
        save_policy(self.run.policy, self.args.out / "policy.pt")
        history = [
            {**numbers, "iteration": k, "cpu_seconds": spent}
            for k, (numbers, spent) in enumerate(zip(rows(self.run), self.cpu), 1)
        ]
        about = {"env": self.args.env, "algorithm": self.args.algorithm, "worlds": self.args.worlds}
        about |= {"seed": self.args.seed, "device": device_name(self.run.env.device), "settings": self.settings()}
        self.curve.write_text(json.dumps({**about, "tries": self.tries, "curve": history}))

    def settings(self) -> dict[str, str]:
        """Return the settings as text."""
        return {name: repr(value) for name, value in self.run.settings.items()}


def rows(run: ShortHorizon) -> list[dict[str, Any]]:
    """Return the curve: each iteration's numbers; NaN, which JSON lacks, is left out."""
    found = []
    for report in run.history:
        numbers = {**vars(report), **report.extra}
        del numbers["extra"], numbers["gradient_by_step"]
        found.append({name: value for name, value in numbers.items() if isfinite(value)})
    return found


def device_name(device: torch.device) -> str:
    """Return what the machine calls its device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def report_goals(session: Session) -> None:
    """Print when the goals were first reached: by the mean of the last episodes, and by a try without noise."""
    args, history = session.args, session.run.history
    for goal in GOALS.get(args.env, ()):
        mean, spent = next(((r, cpu) for r, cpu in zip(history, session.cpu) if r.episode_return >= goal), (None, 0.0))
        single = next((r for r in session.tries if r["return"] >= goal), None)
        first = "not reached" if mean is None else f"{mean.seconds:.1f} s ({spent:.1f} s of CPU), {mean.steps} steps"
        other = "not reached" if single is None else f"{single['seconds']:.1f} s, {single['steps']} steps"
        print(f"return {goal:.0f}: last 100 episodes {first}; without noise {other}")
    best = max((r.episode_return for r in history if isfinite(r.episode_return)), default=float("nan"))
    tried = max((r["return"] for r in session.tries), default=float("nan"))
    print(f"seed {args.seed}: best return of the last 100 episodes {best:.1f}, without noise {tried:.1f}")


def main(given: Sequence[str] | None = None) -> None:
    """Train, print, write."""
    args = parser().parse_args(given)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.device == "cpu":
        torch.set_num_threads(1)
        if args.threads is not None:
            pb.set_num_threads(args.threads)
    if args.block is not None:
        launch.threads_a_block = lambda worlds, most: min(most, args.block)
    print(f"compiled in {compile_kernels(args):.1f} s on {device_name(torch.device(args.device))}", flush=True)
    env, trial = (
        make(args.env, worlds, seed=seed, device=args.device, **pairs(args.option))
        for worlds, seed in ((args.worlds, args.seed), (args.tries, args.seed + TEST_SEED))
    )
    algorithm = find_algorithm(args.algorithm)
    config = algorithm.Config.of(env, seed=args.seed, **pairs(args.set))
    # an iteration or two of another run, so that what is timed is not the first
    warm = algorithm(env, config)
    warm.iterate()
    times = PartTimes(warm).measure(5)
    steps = warm.horizon * env.worlds
    split = ", ".join(f"{part} {1e3 * spent:.1f} ms" for part, spent in times.items())
    print(f"an iteration of {steps} steps: {split}; {steps / times['all']:.0f} steps/s", flush=True)
    if not args.seconds:
        return
    env.reset(args.seed)
    env.broken.zero_()
    session = Session(algorithm(env, config), trial, args)
    session.train()
    report_goals(session)


if __name__ == "__main__":
    main()
