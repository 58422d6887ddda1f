"""Passive random worlds, tumbling, piles and schedules at default settings: parts of `checks/reliability.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import pullback as pb
from checks.random_worlds import RandomWorld, draw
from checks.reliability_figures import SMALL, Part
from pullback.rigid.state import CONTACT_OVERFLOW, NAN, NOT_CONVERGED

Array = np.ndarray
Tensor = torch.Tensor

COPIES = 16
STEPS = 100
HUGE = 1e15
FLOOR = 0.01
"""Height [m] by which the weight of a world is lifted in the least energy that gains are compared with."""
BANDS = {"dt to 10 ms": (1e-3, 10e-3), "dt from 10 to 50 ms": (10e-3, 50e-3)}
ALLOWED = {"dt to 10 ms": 0.0, "dt from 10 to 50 ms": 1e-3}
SCHEDULES = {"every": pb.Every(1), "tenth": pb.Every(10), "binomial": pb.Binomial(4)}
AGREE = {torch.float64: 1e-12, torch.float32: 1e-4}


# -- passive worlds --------------------------------------------------------------------------------------------------


@dataclass
class Gains:
    """How many worlds there were, and those that gained energy."""

    worlds: int = 0
    overlapping: int = 0
    refused: int = 0
    not_finite: int = 0
    small: int = 0
    large: int = 0
    silent: int = 0
    worst: list[tuple[float, str]] = field(default_factory=list)


def energy_gain(sim: pb.Sim, states: pb.Trajectory) -> Array:
    """Return by which share of the energy in play each world (B,) ended above its start; inf: not finite.

    In play are the initial kinetic energy, what potential energy varies by, and a centimetre of the weight. The end is
    the mean of the last tenth of the steps: joints' energy swings about its mean by an error of first order in dt.
    """
    kinetic, potential = energies(sim, states)
    total = kinetic + potential
    in_play = kinetic[0] + potential.max(0) - potential.min(0) + FLOOR * weight(sim)
    gain = (total[-max(1, len(total) // 10) :].mean(0) - total[0]) / np.maximum(in_play, 1e-9)
    return np.where(np.isfinite(gain), gain, np.inf)


def energies(sim: pb.Sim, states: pb.Trajectory) -> tuple[Array, Array]:
    """Return kinetic and potential energies [J] of all states (T + 1, B); inf where a state is huge or not finite."""
    T, B = states.q.shape[:2]
    q, qd = states.q.reshape(T * B, -1), states.qd.reshape(T * B, -1)
    # energies beyond what numbers can be are as good as infinite
    good = ((q.abs() < HUGE).all(1) & (qd.abs() < HUGE).all(1))[:, None]
    at_rest = sim.world.initial_q(dtype=sim.dtype)
    impulses = None if states.impulses is None else torch.zeros_like(states.impulses).reshape(T * B, -1)
    with torch.no_grad():
        found = sim.energies(pb.State(torch.where(good, q, at_rest), torch.where(good, qd, 0.0), impulses))
    kinetic, potential = (torch.where(good[:, 0], x, torch.inf).reshape(T, B).double().numpy() for x in found)
    return kinetic, potential


def weight(sim: pb.Sim) -> float:
    """Return the weight [N] of everything that moves."""
    robots = [item.robot for item in sim.world.items if item.robot is not None]
    mass = sum(link.mass for robot in robots for link in robot.model.tree.links)
    gravity = torch.as_tensor(sim.world.gravity).detach().double().reshape(-1, 3)
    return float(mass * gravity.norm(dim=1).max())


def passive(seed: int, dt: float, gains: Gains) -> None:
    """Let the passive world of a seed go for a while at default settings, and note what it gained."""
    drawn = draw(seed, kind="passive", worlds=COPIES, steps=STEPS)
    world = drawn.world
    world.contact = pb.PGS()
    where = f"seed {seed}, dt {1e3 * dt:.3g} ms"
    try:
        sim = world.compile(dt=dt, dtype=torch.float64)
        start = pb.State(drawn.state.q.double(), drawn.state.qd.double())
        apart = np.array([min([0.0, *(c.gap for c in found)]) > -1e-3 for found in sim.contacts(start)])
        states = sim.rollout(start, STEPS)
    except pb.PullbackError as error:
        gains.refused += COPIES
        gains.worst.append((0.0, f"{where}: refused: {str(error)[:120]}"))
        return
    finite = (states.q.isfinite().all(-1) & states.qd.isfinite().all(-1)).all(0).numpy()
    # values that differ between worlds, for all states side by side
    drawn.spread(torch.arange(COPIES).repeat(STEPS + 1))
    gain, code = energy_gain(sim, states), states.status.code.numpy()
    gains.worlds += int(apart.sum())
    gains.overlapping += int((~apart).sum())
    gains.not_finite += int((apart & ~finite).sum())
    grown = apart & (gain > 0.01)
    gains.small += int(grown.sum())
    gains.large += int((apart & (gain > 0.5)).sum())
    gains.silent += int((grown & (code == 0)).sum())
    for k in np.flatnonzero(grown):
        gains.worst.append((float(gain[k]), f"{where}, world {k}: gains {gain[k]:.2g}, status {code[k]}"))


def measure_passive(*, every: int, progress: Any) -> Part:
    """Return how many passive worlds gain energy, for each range of time steps."""
    part = Part()
    count = 650 // every
    for name, (low, high) in BANDS.items():
        gains, rng = Gains(), np.random.default_rng(17)
        for seed in progress(range(count), f"passive, {name}"):
            passive(seed, float(np.exp(rng.uniform(np.log(low), np.log(high)))), gains)
        allowed, n = ALLOWED[name], max(gains.worlds, 1)
        title = f"passive worlds, {name}"
        part.add(
            f"{title}: gain over 1 % energy",
            f"at most {allowed:.1%}" if allowed else "none",
            f"{gains.small} of {gains.worlds} ({gains.small / n:.2%}); over 50 %: {gains.large / n:.2%}",
            gains.small <= allowed * n,
        )
        silent = f"{gains.silent} of {gains.worlds}"
        part.add(f"{title}: gain over 1 % with status 0", "none", silent, gains.silent == 0)
        part.add(f"{title}: not finite", "none", f"{gains.not_finite} of {gains.worlds}", gains.not_finite == 0)
        part.notes.append(f"{title}: {gains.overlapping} overlap at the start, left out; {gains.refused} refused")
        part.notes += [text for _, text in sorted(gains.worst, key=lambda row: -row[0])[:5]]
    return part


def measure_tumbling(*, every: int, progress: Any) -> Part:
    """Return how far the energy of free boxes that tumble at 100 rad/s strays over ten seconds."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add_box("box", size=(0.1, 0.2, 0.3), mass=1.0)
    sim = world.compile(dt=0.01, dtype=torch.float64)
    state = sim.initial_state(COPIES)
    generator = torch.Generator().manual_seed(0)
    spin = torch.randn(COPIES, 3, dtype=torch.float64, generator=generator)
    qd = state.qd.clone()
    qd[:, :3] = 100.0 * spin / spin.norm(dim=1, keepdim=True)
    steps = 1000 if every < SMALL else 100
    states = sim.rollout(pb.State(state.q, qd), steps)
    kinetic = energies(sim, states)[0]
    ratio = kinetic / kinetic[0]
    worst = float(np.where(np.isnan(ratio), np.inf, np.abs(ratio - 1)).max())
    part = Part()
    title = f"boxes tumbling at 100 rad/s, dt 10 ms, {steps * 0.01:g} s: energy"
    found = "not finite" if np.isinf(worst) else f"{worst:.1e} off" if worst < 1 else f"× {1 + worst:.3g}"
    part.add(title, "within 1 %", found, worst <= 0.01)
    return part


# -- piles -----------------------------------------------------------------------------------------------------------


def pile(kind: str) -> pb.World:
    """Return cubes or bricks that lie on each other, side by side without gaps."""
    world, h = pb.World(), 0.1
    if kind != "bin":
        world.add_ground()
    if kind == "wall":
        for row in range(4):
            for k in range(4):
                x = 2 * h * k + (h if row % 2 else 0.0)
                world.add_box(f"b{row}{k}", size=(2 * h, h, h), mass=1.0, position=(x, 0.0, h * (row + 0.5)))
        return world
    side, layers = 3, 3 if kind == "cubes" else 1
    for z in range(layers):
        for x in range(side):
            for y in range(side):
                place = (h * (x - 1), h * (y - 1), h * (z + 0.5))
                world.add_box(f"c{x}{y}{z}", size=(h, h, h), mass=1.0, position=place)
    if kind == "bin":
        far, thick = 1.5 * h, 0.02
        world.add_box("floor", size=(4 * h, 4 * h, thick), static=True, position=(0.0, 0.0, -thick / 2))
        for k, (x, y) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1))):
            size = (thick, 2 * far + 2 * thick, h) if x else (2 * far + 2 * thick, thick, h)
            at = ((far + thick / 2) * x, (far + thick / 2) * y, h / 2)
            world.add_box(f"wall{k}", size=size, static=True, position=at)
    return world


def measure_piles(*, every: int, progress: Any) -> Part:
    """Return how far the bodies of piles move in a second."""
    part = Part()
    names = {"cubes": "3 × 3 × 3 cubes", "wall": "wall of 4 × 4 bricks", "bin": "9 cubes in a bin"}
    steps = 500 if every < SMALL else 20
    for kind, name in progress(list(names.items()), "piles"):
        try:
            sim = pile(kind).compile(dt=2e-3, dtype=torch.float64)
            start = sim.initial_state()
            states = sim.rollout(start, steps, checkpoint=steps)
            moved = (states.q[-1] - start.q).reshape(-1, 7)[:, :3].norm(dim=1).max()
            found = f"{1e3 * float(moved):.2g} mm, {describe_status(states.status)}"
            held = bool(moved <= 1e-4) and not int(states.status.code[0]) & CONTACT_OVERFLOW
        except pb.PullbackError as error:
            found, held = f"refused: {str(error)[:100]}", False
        part.add(f"{name}, dt 2 ms, {2e-3 * steps:g} s: moved", "0.1 mm", found, held)
    return part


def describe_status(status: pb.Status) -> str:
    """Return the flags of the first world in words."""
    code = int(status.code[0])
    flags = {NAN: "not finite", CONTACT_OVERFLOW: "too many contacts", NOT_CONVERGED: "steps unconverged"}
    return ", ".join(text for flag, text in flags.items() if code & flag) or "status 0"


# -- schedules -------------------------------------------------------------------------------------------------------


def schedule_errors(drawn: RandomWorld) -> tuple[Array, int]:
    """Return how far gradients under other schedules are off, for each world of its largest entry (B,), and refusals.

    Worlds that are not finite are left out: NaN.
    """
    sim = drawn.sim
    generator = torch.Generator().manual_seed(drawn.seed)
    weights = torch.randn(sim.nq + sim.nv, dtype=sim.dtype, generator=generator)
    found: list[Tensor] = []
    for schedule in SCHEDULES.values():
        qd = drawn.state.qd.clone().requires_grad_()
        controls = drawn.controls.clone().requires_grad_()
        states = sim.rollout(pb.State(drawn.state.q, qd, drawn.state.impulses), controls, checkpoint=schedule)
        good = states.q[-1].isfinite().all(1) & states.qd[-1].isfinite().all(1)
        rows = (torch.cat([states.q[-1], states.qd[-1]], 1) * weights).sum(1)
        try:
            g = torch.autograd.grad(rows[good].sum(), [qd, controls] if sim.nu else [qd])
        except pb.PullbackError:
            return np.full(drawn.worlds, np.nan), drawn.worlds
        g = torch.cat([x.reshape(-1, drawn.worlds, x.shape[-1]).transpose(0, 1).flatten(1) for x in g], 1)
        found.append(torch.where(good[:, None], g, torch.nan))
    size = found[0].abs().amax(1).clamp(min=1e-30)
    off = torch.stack([(g - found[0]).abs().amax(1) / size for g in found[1:]]).amax(0)
    return off.double().numpy(), 0


def measure_schedules(*, every: int, progress: Any) -> Part:
    """Return how many random worlds have gradients that depend on the schedule."""
    part = Part()
    off: dict[torch.dtype, list[Array]] = {dtype: [] for dtype in AGREE}
    raised, worst = 0, []
    for seed in progress(range(650 // every), "schedules"):
        drawn = draw(seed, worlds=COPIES, steps=24)
        try:
            errors, refused = schedule_errors(drawn)
        except pb.PullbackError as error:
            part.notes.append(f"seed {seed}: {str(error)[:120]}")
            raised += COPIES
            continue
        raised += refused
        off[drawn.sim.dtype].append(errors[~np.isnan(errors)])
        if np.nanmax(errors, initial=0.0) > AGREE[drawn.sim.dtype]:
            worst.append((float(np.nanmax(errors)), drawn.describe()[:200]))
    for dtype, bound in AGREE.items():
        errors = np.concatenate([np.zeros(0), *off[dtype]])
        many = int((errors > bound).sum())
        part.add(
            f"random worlds, {str(dtype).removeprefix('torch.')}: gradients of Every(1), Every(10), Binomial agree",
            f"{bound:g}",
            f"{many} of {len(errors)} differ by more, worst {errors.max(initial=0.0):.1e}",
            many == 0,
        )
    part.notes.append(f"schedules: {raised} worlds raised an error")
    part.notes += [f"{error:.1e}: {text}" for error, text in sorted(worst, key=lambda row: -row[0])[:5]]
    return part
