"""Teach a UR5 to put a bottle into a socket in 0.3 s, on a conveyor too: gradients through the simulation against PPO.

The policy has one hidden layer of 256; it sees joints and their rates, the target's position and velocity and the time,
and gives the targets of the joints' servos every 10 ms, 30 times. The loss is that of Leja et al. (IFAC-PapersOnLine
59(27), 2025): squared joint velocities, distance and orientation at the end, and non-penetration; Adam follows its
gradient through the whole motion. First walls are in the loss alone, then the bottle and the socket touch in the
simulation. The socket is 1.5 mm wider than the bottle on every side. Then the motion is made shorter until too many
targets are missed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pullback.core.errors import PullbackError
from pullback.learn.envs.insert_bottle import InsertBottle
from pullback.learn.episodes import EpisodeConfig, EpisodeReport, train_episodes
from pullback.learn.export import export_onnx
from pullback.learn.learner import Watch
from pullback.learn.networks import Policy, save_policy
from pullback.learn.ppo import PPOConfig, PPOReport, train_ppo
from pullback.rigid.state import State, Status, Trajectory
from pullback.tasks.common.insert_bottle_picture import draw
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import print_files, write_arrays, write_replay
from pullback.tasks.common.threads import simulation_threads

Tensor = torch.Tensor

NEAR, ALIGNED, DEEP = 1e-3, 1.0, 1e-4
"""What counts as inserted: distance [m], angle [degrees], and penetration on the way [m], at most."""
LIMITS = (3.15, 3.15, 3.15, 3.2, 3.2, 3.2)
"""Of the arm's joint velocities [rad/s]."""
WANTED = {"static": 0.95, "moving": 0.90}
"""Which part of the targets is to be reached."""
NOISE = 3e-4
"""Of observed joints in training [rad]; ten times that of their velocities [rad/s]."""
MOVING = 0.7
"""Which part of the sockets moves in training."""
TEST_SEED = 1_000_003
"""Added to the seed for the targets that policies are tried on."""
HIDDEN = (256,)
FREE_SUBSTEPS = 2
"""Substeps without contact: what takes ten is not to feel walls that the bottle does not touch."""
WATCHED, LOOK = 64, 25
"""Targets that success in training is looked at with, half of them moving, and iterations between two looks."""


@dataclass
class Options:
    """How to learn it."""

    iterations: int = 800
    """Iterations with walls in the loss alone."""
    fine_iterations: int = 500
    """Iterations after that with as many substeps as contact takes."""
    contact_iterations: int = 150
    """Iterations after those in which bottle and socket touch."""
    worlds: int = 64
    """Motions in an iteration."""
    targets: int = 200
    """Random targets to try the policy on, at rest, and as many that move."""
    shrink: int = 0
    """Steps by which the motion is made shorter at a time, until too many targets are missed; 0: not at all. The
    page of the docs has 2."""
    shrink_iterations: int = 150
    """Iterations for each shorter motion, with walls in the loss."""
    ppo: float = 0.0
    """Steps for PPO on the same task, as a multiple of ours; 0 leaves it out. """
    resume: bool = False
    """Go on from the checkpoints in the output folder."""
    replay: bool = True
    """Also write replays."""
    seed: int = 0
    """Seed of weights, targets and starts; those it is tried on are others."""
    out: Path = Path("out")
    """Folder for policy, curves, picture and replays."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, cuda:1, ..."""


@dataclass
class Trial:
    """How a policy did on N targets."""

    distance: Tensor
    """From the goal at the end [m], (N,)."""
    angle: Tensor
    """To the goal's orientation at the end [degrees], (N,)."""
    speed: Tensor
    """Against the target at the end [m/s], (N,)."""
    depth: Tensor
    """The deepest penetration on the way [m], (N,)."""
    haste: Tensor
    """The largest fraction of its velocity limit that a joint reached, (N,)."""
    motion: Trajectory
    """All substeps."""

    @property
    def inserted(self) -> Tensor:
        """Which targets were reached (N,)."""
        return is_inserted(self.distance, self.angle, self.depth)

    @property
    def rate(self) -> float:
        """The part of the targets that was reached."""
        return self.inserted.double().mean().item()


@dataclass
class Inserted:
    """What was found."""

    policy: Policy
    history: list[EpisodeReport]
    trials: dict[str, Trial]
    """By name: static, moving, the same with noise, the same by PPO."""
    cpu_seconds: float = 0.0
    """Of all cores, for the training; not known of one that was resumed."""
    shorter: dict[int, dict[str, Trial]] = field(default_factory=dict)
    """By number of steps, the trials of policies for shorter motions."""
    ppo: list[PPOReport] = field(default_factory=list)
    microseconds: dict[str, float] = field(default_factory=dict)
    """Median time of an action on one core."""
    files: dict[str, Path | None] = field(default_factory=dict)


def run(options: Options) -> Inserted:
    """Train, try on other targets, make it shorter, print, and save."""
    check(options)
    console = Console()
    with simulation_threads():
        began = time.process_time()
        policy, history = learn(options, console)
        found = Inserted(policy, history, {}, cpu_seconds=0.0 if options.resume else time.process_time() - began)
        for name, moving in (("static", False), ("moving", True)):
            found.trials[name] = try_policy(options, policy, moving=moving)
            found.trials[f"{name}, noise"] = try_policy(options, policy, moving=moving, noise=NOISE)
        found.microseconds = time_actions(policy, options.out / "insert_bottle.onnx", found.files)
        if options.shrink:
            shrink(options, found, console)
        if options.ppo:
            compare_ppo(options, found, console)
    report(found, console)
    save(options, found, console)
    return found


def check(options: Options) -> None:
    """Raise for invalid options."""
    least = {"iterations": 1, "fine_iterations": 0, "contact_iterations": 0, "worlds": 1, "targets": 1, "shrink": 0}
    check_at_least(options, **least, shrink_iterations=1, ppo=0.0)


def make_env(options: Options, *, worlds: int, seed: int, **changes: Any) -> InsertBottle:
    """Return the environment with the options' device."""
    return InsertBottle(worlds, seed=seed, device=options.device, **changes)


def learn(options: Options, console: Console) -> tuple[Policy, list[EpisodeReport]]:
    """Return a policy trained with walls in the loss, then with contact, and the reports of all iterations."""
    settings: dict[str, Any] = {"worlds": options.worlds, "moving": MOVING, "noise": NOISE, "shaped": False}
    free = make_env(options, seed=options.seed, contacts=False, substeps=FREE_SUBSTEPS, **settings)
    policy = blank_policy(free, options.seed)
    config = EpisodeConfig(options.iterations, rate=1.5e-3, last_rate=1e-4, hidden=HIDDEN, seed=options.seed)
    history = _train(free, config, policy, options, "walls", console)
    if options.fine_iterations:
        fine = make_env(options, seed=options.seed + 1, contacts=False, **settings)
        config = replace(config, iterations=options.fine_iterations, rate=3e-4, last_rate=2e-5)
        history = history + _after(history, _train(fine, config, policy, options, "fine", console))
    if options.contact_iterations:
        real = make_env(options, seed=options.seed + 2, **settings)
        config = replace(config, iterations=options.contact_iterations, rate=2e-5, last_rate=5e-6, outlier=3.0)
        history = history + _after(history, _train(real, config, policy, options, "contact", console))
    return policy, history


def _train(
    env: InsertBottle, config: EpisodeConfig, policy: Policy, options: Options, name: str, console: Console
) -> list[EpisodeReport]:
    """Train a policy further, from its checkpoint if asked for, and return the reports."""
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"insert_bottle_{name}.pt"
    resume = options.resume and path.exists()
    return train_episodes(
        env, config, policy=policy, watch=watch(options), checkpoint=path, resume=resume, console=console
    ).history


def watch(options: Options) -> Watch:
    """Return what looks at success with contact during a training."""
    env = make_env(options, worlds=WATCHED, seed=options.seed + TEST_SEED + 2, moving=0.5)

    @torch.no_grad()
    def score(policy: Policy) -> float:
        observation, depth = env.reset(options.seed + TEST_SEED + 2), torch.zeros_like(env.returns)
        last = env.state
        for _ in range(env.episode):
            last = env.sim.step(env.state, env.control(policy(observation)))
            depth = torch.maximum(depth, env.deepest(last))
            env.state, env.steps = last, env.steps + 1
            observation = env.observe(last, observation)
        distance, angle, _ = env.errors(last)
        return is_inserted(distance, torch.rad2deg(angle), depth).double().mean().item()

    return Watch(score, LOOK)


def is_inserted(distance: Tensor, angle: Tensor, depth: Tensor) -> Tensor:
    """Return which targets (N,) are reached, by distance [m] and angle [degrees] at the end and penetration [m]."""
    return (distance <= NEAR) & (angle <= ALIGNED) & (depth <= DEEP)


def blank_policy(env: InsertBottle, seed: int) -> Policy:
    """Return a policy that knows what numbers to expect, and nothing else."""
    policy = Policy(env.observation_size, env.action_size, HIDDEN, seed=seed, dtype=env.dtype).to(env.device)
    assert policy.normalizer is not None
    policy.normalizer.update(env.typical())
    return policy


def _after(before: list[EpisodeReport], more: list[EpisodeReport]) -> list[EpisodeReport]:
    """Return reports whose steps and seconds go on from others."""
    steps, seconds = before[-1].steps, before[-1].seconds
    return [replace(r, steps=steps + r.steps, seconds=seconds + r.seconds) for r in more]


# -- trying ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def try_policy(options: Options, policy: Policy, *, moving: bool, steps: int = 30, noise: float = 0.0) -> Trial:
    """Return how a policy does on random targets, looked at in every substep."""
    seed = options.seed + TEST_SEED + int(moving)
    env = make_env(options, worlds=options.targets, seed=seed, moving=moving, steps=steps, noise=noise)
    # the same motion step by step: what touches between two actions is seen as well
    fine = env.world.compile(dt=env.dt / env.substeps, dtype=env.dtype, device=env.device)
    observation, states = env.reset(seed), [env.state]
    limits = env.home.new_tensor(LIMITS)
    depth, haste = torch.zeros_like(env.returns), torch.zeros_like(env.returns)
    for _ in range(steps):
        controls = env.control(policy(observation).clamp(-1.0, 1.0))
        for _ in range(env.substeps):
            states.append(fine.step(states[-1], controls))
            depth = torch.maximum(depth, env.deepest(states[-1]))
            haste = torch.maximum(haste, (states[-1].qd[:, :6].abs() / limits).amax(1))
        env.state, env.steps = states[-1], env.steps + 1
        observation = env.observe(states[-1], controls)
    distance, angle, speed = env.errors(states[-1])
    return Trial(distance, torch.rad2deg(angle), speed, depth, haste, _trajectory(states))


def _trajectory(states: list[State]) -> Trajectory:
    q, qd = torch.stack([s.q for s in states]), torch.stack([s.qd for s in states])
    return Trajectory(q, qd, Status.fine(q.shape[1], 1), torch.arange(len(states)))


def time_actions(policy: Policy, path: Path, files: dict[str, Path | None], calls: int = 2000) -> dict[str, float]:
    """Return the median time [µs] of one action on one core, by torch and by onnxruntime where it is installed."""
    plain = Policy(policy.sizes[0], policy.sizes[-1], policy.sizes[1:-1])
    plain.load_state_dict({name: x.cpu() for name, x in policy.state_dict().items()})
    observation = torch.zeros(1, policy.sizes[0])
    with torch.inference_mode():
        found = {"torch": _median(lambda: plain(observation), calls)}
    try:
        export_onnx(plain, path)
    except PullbackError:
        return found
    import onnxruntime

    files["onnx"] = path
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    given = {"observation": observation.numpy()}
    found["onnxruntime"] = _median(lambda: session.run(["action"], given), calls)
    return found


def _median(act: Any, calls: int) -> float:
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return 1e6 * float(np.median(times))


# -- shorter motions, and PPO ----------------------------------------------------------------------------------------


def shrink(options: Options, found: Inserted, console: Console) -> None:
    """Train for shorter and shorter motions until too many targets are missed."""
    policy, steps = found.policy, 30 - options.shrink
    settings: dict[str, Any] = {"worlds": options.worlds, "moving": MOVING, "noise": NOISE, "shaped": False}
    while steps > 0:
        env = make_env(options, steps=steps, seed=options.seed + steps, contacts=False, **settings)
        again = Policy(*_ends(policy), HIDDEN, dtype=env.dtype).to(env.device)
        again.load_state_dict(policy.state_dict())
        config = EpisodeConfig(options.shrink_iterations, rate=3e-4, last_rate=2e-5, hidden=HIDDEN)
        policy = train_episodes(env, config, policy=again, console=console).policy
        trials = {name: try_policy(options, policy, moving=name == "moving", steps=steps) for name in WANTED}
        found.shorter[steps] = trials
        if not holds(trials):
            return
        steps -= options.shrink


def holds(trials: dict[str, Trial]) -> bool:
    """Return whether enough targets are reached, within the joints' velocity limits."""
    slow = all(bool(trials[name].haste.quantile(0.95) <= 1.0) for name in WANTED)
    return slow and all(trials[name].rate >= wanted for name, wanted in WANTED.items())


def _ends(policy: Policy) -> tuple[int, int]:
    return policy.sizes[0], policy.sizes[-1]


def compare_ppo(options: Options, found: Inserted, console: Console) -> None:
    """Train the same network by PPO with a multiple of the steps, and try it."""
    env = make_env(options, worlds=8 * options.worlds, seed=options.seed, moving=MOVING, noise=NOISE)
    iterations = max(1, round(options.ppo * found.history[-1].steps / (env.worlds * env.episode)))
    config = PPOConfig(iterations, horizon=env.episode, gamma=1.0, seed=options.seed)
    policy = blank_policy(env, options.seed)
    file = options.out / "insert_bottle_ppo.pt"
    search = train_ppo(
        env, config, policy=policy, watch=watch(options), checkpoint=file, resume=options.resume and file.exists(),
        console=console,
    )  # fmt: skip
    found.ppo = search.history
    for name in WANTED:
        found.trials[f"{name}, PPO"] = try_policy(options, search.policy, moving=name == "moving")


# -- the report ------------------------------------------------------------------------------------------------------


def report(found: Inserted, console: Console) -> None:
    """Print how many targets are reached, and how exactly."""
    table = Table(title="a bottle into a socket", title_justify="left")
    for header in (
        "targets",
        "steps",
        "inserted",
        "distance: median, 95 %",
        "angle: 95 %",
        "penetration",
        "joint speed",
    ):
        table.add_column(header, justify="left" if header == "targets" else "right")
    rows = [(name, 30, trial) for name, trial in found.trials.items()]
    rows += [(name, steps, trial) for steps, trials in found.shorter.items() for name, trial in trials.items()]
    for name, steps, trial in rows:
        millimetres = [1e3 * trial.distance.quantile(x).item() for x in (0.5, 0.95)]
        table.add_row(
            name, f"{steps}", f"{100 * trial.rate:.1f} %", f"{millimetres[0]:.2f}, {millimetres[1]:.2f} mm",
            f"{trial.angle.quantile(0.95).item():.2f}°", f"{1e3 * trial.depth.max().item():.4f} mm",
            f"{100 * trial.haste.max().item():.0f} %",
        )  # fmt: skip
    console.print(table)
    last = found.history[-1]
    processors = f" ({found.cpu_seconds:.0f} s of processors)" if found.cpu_seconds else ""
    console.print(f"trained with {last.steps:,} steps of 10 ms in {last.seconds:.0f} s{processors}")
    if found.ppo:
        console.print(f"PPO had {found.ppo[-1].steps:,} steps, in {found.ppo[-1].seconds:.0f} s")
        best = max(r.score for r in found.ppo if r.score == r.score)
        first = next((f"{r.steps:,}" for r in found.history if r.score > best), "no number of")
        console.print(
            f"its best in training: {100 * best:.0f} % of {WATCHED} targets; the gradient passed it after {first} steps"
        )
    kept = [steps for steps, trials in found.shorter.items() if holds(trials)]
    if found.shorter:
        console.print(f"the shortest motion that still holds: {10 * min([30, *kept])} ms")
    actions = ", ".join(f"{name} {value:.0f} µs" for name, value in found.microseconds.items())
    console.print(f"an action on one core: {actions}")


def save(options: Options, found: Inserted, console: Console) -> None:
    """Write policy, curves, picture and replays."""
    files, out = found.files, options.out
    out.mkdir(parents=True, exist_ok=True)
    files["policy"] = save_policy(found.policy, out / "insert_bottle.pt")
    arrays: dict[str, Any] = {
        "steps": [r.steps for r in found.history], "loss": [r.loss for r in found.history],
        "score": [r.score for r in found.history], "ppo_score": [r.score for r in found.ppo],
        "ppo_steps": [r.steps for r in found.ppo], "ppo_reward": [r.reward for r in found.ppo],
    }  # fmt: skip
    for name, trial in found.trials.items():
        key = name.replace(", ", "_").lower()
        arrays |= {f"{key}_distance": trial.distance, f"{key}_angle": trial.angle, f"{key}_depth": trial.depth}
    files["curves"] = write_arrays(out / "insert_bottle.npz", **arrays)
    files["picture"] = draw(found, out / "insert_bottle.png")
    if options.replay:
        env = make_env(options, worlds=1, seed=options.seed, moving=True)
        fine = env.world.compile(dt=env.dt / env.substeps, dtype=env.dtype, device=env.device)
        for name in WANTED:
            motion = found.trials[name].motion
            one = Trajectory(motion.q[:, :1], motion.qd[:, :1], Status.fine(1, 1), motion.steps)
            path, title = out / f"insert_bottle_{name}.html", f"a bottle into a socket, {name}, 0.3 s"
            files[f"replay, {name}"] = write_replay(
                fine, one, path, console, title=title, forces=False, fps=400.0
            )  # fmt: skip
    print_files(console, **files)
