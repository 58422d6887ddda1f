"""A fuzz of settings: scenes of the kinds that tasks use, under every setting: `python -m checks.fuzz_settings`.

Drawn are solver, cone or pyramid, gradient, warm start, float32 or float64, dt, substeps, damping, integrator,
schedule, number of worlds and room for contacts. Laws: nothing is infinite without a flag; no energy from nothing;
momentum is kept; penetration is bounded; gradients do not depend on the schedule; a world is the same alone and in a
batch; no contact is dropped in silence; and every error is a PullbackError, for odd arguments as well
(`fuzz_arguments.py`).

Options: `--settings` and `--calls` how many, `--seed` of the first; `--only 93` looks at the settings of these seeds.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.progress import track

import pullback as pb
from checks import fuzz_arguments
from checks.fuzz_checks import ROOM, Findings, check_flags, is_same
from checks.random_worlds import Drawing, RandomWorld
from checks.reliability_worlds import AGREE, energy_gain, schedule_errors
from pullback.rigid.state import CONTACT_OVERFLOW, NAN
from pullback.rigid.world.items import Placed

Tensor = torch.Tensor
STEPS = 40
GAIN = 0.01
"""Share of the energy in play that a passive world may gain."""
DEPTH = 2e-3
"""Penetration [m] allowed besides the way of a step."""
MOMENTUM = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Relative error of momentum that contact between free bodies may leave."""


@dataclass
class Options:
    """A fuzz of settings."""

    settings: int = 1500
    """How many simulations to draw."""
    calls: int = 1500
    """How many calls with odd arguments."""
    seed: int = 0
    """Of the first; the others follow."""
    only: tuple[int, ...] = ()
    """Seeds to look at instead, without calls."""


# -- scenes ----------------------------------------------------------------------------------------------------------


def boxes(world: pb.World, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Add boxes that lie on the ground, one on two others."""
    h = float(rng.uniform(0.05, 0.2))
    world.add_ground(friction=0.8)
    for name, x, z in (("left", -0.6 * h, 0.5 * h), ("right", 0.6 * h, 0.5 * h), ("top", 0.0, 1.5 * h)):
        world.add_box(name, size=(h, h, h), mass=float(rng.uniform(0.2, 3.0)), position=(x, 0.0, z))


def bodies(world: pb.World, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Add a box, a ball and a capsule that fall on the ground."""
    surface: dict[str, Any] = {
        "friction": float(rng.uniform(0.0, 1.2)),
        "restitution": float(rng.choice((0.0, 0.0, 0.6))),
    }
    world.add_ground(**surface)
    heights = rng.uniform(0.12, 0.4, 3)
    world.add_box("box", size=(0.1, 0.15, 0.2), mass=1.0, position=(0.0, 0.0, float(heights[0])))
    world.add_sphere("ball", radius=0.06, mass=0.5, position=(0.3, 0.0, float(heights[1])))
    world.add_capsule("rod", radius=0.03, length=0.2, mass=0.4, position=(-0.3, 0.0, float(heights[2])))


def hulls(world: pb.World, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Add a cylinder and a mesh that fall on a slope."""
    angle = float(rng.uniform(0.0, 0.3))
    world.add_plane("slope", orientation=(np.sin(angle / 2), 0.0, 0.0, np.cos(angle / 2)), friction=0.7)
    world.add_cylinder("can", radius=0.05, length=0.1, mass=0.4, position=(0.0, 0.0, 0.2))
    points = rng.normal(size=(12, 3)) * 0.06
    world.add_mesh("stone", points, mass=0.6, position=(0.4, 0.0, 0.35))


def space(world: pb.World, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Add free bodies that meet without gravity."""
    world.gravity = (0.0, 0.0, 0.0)
    for k in range(3):
        size = tuple(map(float, rng.uniform(0.1, 0.2, 3)))
        world.add_box(f"b{k}", size=size, mass=float(rng.uniform(0.2, 3.0)), position=(0.21 * k, 0.0, 0.0))


def swing(world: pb.World, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Add a pendulum that nothing drives, of the swing-up tasks."""
    robot = pb.load(f"pendulum{int(rng.integers(1, 4))}", dtype=dtype)
    q = {name: float(rng.uniform(-2, 2)) for name in robot.joint_names}
    world.add(robot, name="arm", actuators={}, q=q)


def arm(world: pb.World, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Add a driven arm above a ball on the ground, as in throwing and pushing."""
    world.add_ground()
    drive = pb.PositionServo(float(rng.uniform(5, 100)), float(rng.uniform(0.1, 3))) if rng.random() < 0.5 else None
    world.add(pb.load("pendulum2", dtype=dtype), name="arm", position=(0.0, 0.0, 0.9), actuators=drive)
    world.add_sphere("ball", radius=0.08, mass=0.3, position=(0.0, 0.3, 0.08))


def dog(world: pb.World, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Add a Laikago that drops on its feet."""
    robot = pb.load("laikago", base="floating", dtype=dtype)
    world.add_ground(friction=0.8)
    world.add(robot, name="dog", position=(0.0, 0.0, 0.5), actuators=pb.PositionServo(150.0, 3.0))


def ant(world: pb.World, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Add an ant on the ground."""
    world.add_ground()
    world.add(pb.load("ant", dtype=dtype), name="ant", position=(0.0, 0.0, 0.6))


def door(world: pb.World, rng: np.random.Generator, dtype: torch.dtype) -> None:
    """Add a leaf on a hinge that a ball runs into."""
    world.add_box("leaf", size=(0.6, 0.04, 1.0), mass=3.0, position=(0.3, 0.0, 0.6))
    world.hinge("leaf", axis=(0.0, 0.0, 1.0), position_a=(-0.3, 0.0, 0.0))
    world.add_ground()
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.45, -0.13, 0.6))


Scene = Callable[[pb.World, np.random.Generator, torch.dtype], None]
PASSIVE: dict[str, Scene] = {
    "boxes": boxes,
    "bodies": bodies,
    "hulls": hulls,
    "space": space,
    "swing": swing,
    "door": door,
}
DRIVEN: dict[str, Scene] = {"arm": arm, "dog": dog, "ant": ant}
SCENES = {**PASSIVE, **DRIVEN}
SPEED = {"boxes": 0.0, "space": 1.5, "door": 0.3}
"""Of random initial velocities [m/s, rad/s]; 0.5 elsewhere."""


# -- drawing ---------------------------------------------------------------------------------------------------------


def draw_solver(drawing: Drawing) -> Any:
    """Return any solver with any settings that go together."""
    chance, choice = drawing.chance, drawing.choice
    kind = choice(("default", "PGS", "PGS", "Exact", "Exact", "Compliant"))
    if kind == "default":
        return pb.PGS()
    if kind == "Compliant":
        return pb.Compliant(
            stiffness=float(drawing.spread_out(1e4, 1e6)),
            damping=float(choice((0.0, 0.5, 2.0))),
            power=float(choice((1.0, 1.5))),
            iterations=choice((5, 20)),
        )
    shared: dict[str, Any] = {
        "friction": choice(("cone", "pyramid")),
        "warm_start": chance(0.3),
        "erp": choice((0.1, 0.1, 0.3)),
        "cfm": choice((1e-6, 1e-6, 1e-4)),
    }
    if kind == "Exact":
        return pb.Exact(iterations=choice((5, 20)), **shared)
    return pb.PGS(iterations=choice((5, 20, 50)), gradient=choice(("implicit", "implicit", "unrolled")), **shared)


def draw(seed: int) -> tuple[RandomWorld, dict[str, Any]]:
    """Return the scene and the settings of a seed, with states and controls."""
    drawing = Drawing(seed, "passive", plain=True)
    rng = drawing.rng
    kind = str(rng.choice(list(SCENES)))
    dtype = drawing.choice((torch.float64, torch.float32))
    options: dict[str, Any] = {
        "dt": float(drawing.spread_out(5e-4, 1e-2)),
        "substeps": drawing.choice((1, 1, 2, 4)),
        "damping": drawing.choice(("explicit", "implicit")),
        "max_contacts": int(rng.integers(1, 6)) if drawing.chance(0.15) else None,
    }
    if kind == "swing" and drawing.chance(0.5):
        options |= {"integrator": drawing.choice(("rk4", "midpoint")), "damping": "explicit"}
        options["without"] = ["contacts", "limits", "friction"]
    if drawing.chance(0.3):
        del options["damping"]
    world = pb.World(contact=draw_solver(drawing))
    SCENES[kind](world, rng, dtype)
    if seed % 3 == 0 and not isinstance(world.contact, pb.Compliant) and "integrator" not in options:
        # not drawn: the worlds of all seeds stay as they are
        options["impacts"] = "split"
    sim = world.compile(dtype=dtype, **options)
    count = int(rng.integers(1, 6))
    state = sim.initial_state(count)
    qd = SPEED.get(kind, 0.5) * torch.from_numpy(rng.normal(size=(count, sim.nv))).to(dtype)
    u = torch.from_numpy(0.3 * rng.normal(size=(STEPS, count, sim.nu))).to(dtype)
    return RandomWorld(seed, kind, world, sim, replace(state, qd=qd), u), options


# -- laws ------------------------------------------------------------------------------------------------------------


def mass_of(item: Placed) -> float:
    """Return the mass [kg] of a robot or a free body."""
    return 0.0 if item.robot is None else sum(link.mass for link in item.robot.model.tree.links)


def momentum(sim: pb.Sim, q: Tensor, qd: Tensor) -> Tensor:
    """Return the linear momentum [kg m/s] (B, 3) of free bodies."""
    total = torch.zeros(len(q), 3, dtype=torch.float64)
    for k, item in enumerate(sim.world.items):
        x, y, z, w = q[:, 7 * k + 3 : 7 * k + 7].double().unbind(1)
        v = qd[:, 6 * k + 3 : 6 * k + 6].double()
        axis = torch.stack([x, y, z], 1)
        across = torch.linalg.cross(axis, v)
        turned = v + 2 * w[:, None] * across + 2 * torch.linalg.cross(axis, across)
        total += mass_of(item) * turned
    return total


def check_space(drawn: RandomWorld, states: pb.Trajectory, findings: Findings) -> None:
    """Check that bodies that only meet each other keep their momentum."""
    before, after = (momentum(drawn.sim, states.q[t], states.qd[t]) for t in (0, -1))
    speed = states.qd.abs().amax((0, 2)).double()
    mass = sum(map(mass_of, drawn.world.items))
    off = ((after - before).abs().amax(1) / (mass * speed + 1e-9)).numpy()
    name = "settings: momentum of bodies that meet"
    findings.check(f"{name}, {str(drawn.sim.dtype)[6:]}", off, MOMENTUM[drawn.sim.dtype], drawn.describe())


def _deepest(sim: pb.Sim, state: pb.State) -> np.ndarray:
    """Return the depth [m] of the deepest contact of each world (B,), 0 where there is none."""
    found = sim.contacts(pb.State(state.q, state.qd, state.impulses))
    return np.array([-min([0.0, *(c.gap for c in contacts)]) for contacts in found])


def check_depth(drawn: RandomWorld, states: pb.Trajectory, findings: Findings, good: np.ndarray) -> None:
    """Check that nothing is deeper in another than it was at the start, a step's way or a spring gives.

    Bodies that start deep are pushed out at a limited speed, and may not be out by the end.
    """
    sim, contact = drawn.sim, drawn.world.contact
    at_start, deepest = (_deepest(sim, states[t]) for t in (0, -1))
    speed = states.qd.abs().amax((0, 2)).double().numpy()
    allowed = DEPTH + at_start + speed * sim.dt / sim.substeps
    if isinstance(contact, pb.Compliant):
        heavy = sum(map(mass_of, drawn.world.items))
        allowed = allowed + (speed + 1.0) * np.sqrt(heavy / contact.stiffest())
    what = "settings: penetration over what a step or a spring allows"
    findings.check(what, (deepest / allowed)[good], 1.0, drawn.describe())


def check_alone(drawn: RandomWorld, states: pb.Trajectory, findings: Findings) -> None:
    """Check that the last world has the same bits when it is alone."""
    k = drawn.worlds - 1
    alone = drawn.sim.rollout(drawn.state[k], drawn.controls[:, k : k + 1])
    same = is_same(alone.q[:, 0], states.q[:, k]) and is_same(alone.qd[:, 0], states.qd[:, k])
    findings.check_true("settings: other bits alone than in a batch", same, drawn.describe())


def check_dropped(drawn: RandomWorld, states: pb.Trajectory, options: dict[str, Any], findings: Findings) -> None:
    """Check that contacts beyond the room there is show in the status, and that the default room is enough."""
    over = ((states.status.code & CONTACT_OVERFLOW) > 0).numpy()
    if options["max_contacts"] is None:
        findings.check("settings: contacts beyond the default room", over, 0.0, drawn.describe())
        return
    roomy = drawn.world.compile(dtype=drawn.sim.dtype, **{**options, "max_contacts": ROOM})
    if drawn.world.contact.warm_start:
        return
    count = np.array([len(contacts) for contacts in roomy.contacts(pb.State(drawn.state.q, drawn.state.qd))])
    silent = (count > options["max_contacts"]) & ~over
    findings.check("settings: contacts dropped in silence", silent, 0.0, drawn.describe())


def examine(seed: int, findings: Findings) -> None:
    """Draw the settings of a seed and check all laws."""
    try:
        drawn, options = draw(seed)
    except pb.PullbackError as error:
        # a start with more contacts than the room that was asked for is refused
        findings.check_true("settings: a start that is refused", "max_contacts" in str(error), f"seed {seed}: {error}")
        return
    sim, where = drawn.sim, f"{drawn.describe()}, {options}"
    findings.count(f"simulations, {drawn.kind}")
    findings.count(f"simulations with {type(drawn.world.contact).__name__}")
    findings.count(f"simulations in {str(sim.dtype)[6:]}")
    findings.count("simulations with split steps", "impacts" in options)
    try:
        states = sim.rollout(drawn.state, drawn.controls)
    except pb.PullbackError as error:
        # more contacts than the room that was asked for may be an error
        said = options["max_contacts"] is not None and "contacts" in str(error)
        findings.check_true("settings: a rollout that raises", said, f"{where}: {error}")
        return
    check_flags(drawn, states, findings)
    check_alone(drawn, states, findings)
    check_dropped(drawn, states, options, findings)
    code = states.status.code.numpy()
    good = (code & (NAN | CONTACT_OVERFLOW)) == 0
    findings.check("settings: not finite", (code & NAN) > 0, 0.0, where)
    if drawn.kind in PASSIVE:
        # being pushed out of an overlap at the start lifts bodies
        apart = good & (_deepest(sim, states[0]) < DEPTH)
        findings.count("passive worlds that start with an overlap", (~apart & good).sum())
        gain = energy_gain(sim, states)[apart]
        findings.check(f"settings: energy gained, {str(sim.dtype)[6:]}", gain, GAIN, where)
    if drawn.kind == "space" and good.all():
        check_space(drawn, states, findings)
    if good.all() and "integrator" not in options:
        check_depth(drawn, states, findings, good)
    errors, refused = schedule_errors(drawn)
    findings.count("simulations whose gradient was refused", refused > 0)
    what = f"settings: gradients of schedules differ, {str(sim.dtype)[6:]}"
    findings.check(what, errors[good & ~np.isnan(errors)], AGREE[sim.dtype], where)


def fuzz(seeds: Iterable[int], findings: Findings) -> None:
    """Check the settings of all seeds; an exception is a finding like any other."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in seeds:
            try:
                examine(seed, findings)
                findings.check_true("settings: crash", True, "")
            except Exception as error:
                last = traceback.format_exc(limit=-1).splitlines()[1].strip()
                findings.check_true("settings: crash", False, f"seed {seed}: {type(error).__name__}: {error}; {last}")


def fuzz_calls(seeds: Iterable[int], findings: Findings) -> None:
    """Make the calls with odd arguments of all seeds."""
    fuzz_arguments.load_kernels()
    for seed in seeds:
        fuzz_arguments.examine(seed, findings)


def main(options: Options) -> int:
    """Run and show what was found."""
    torch.set_num_threads(1)
    console, findings = Console(), Findings()
    first = options.seed
    fuzz(track(options.only or range(first, first + options.settings), "settings", console=console), findings)
    if not options.only:
        fuzz_calls(track(range(first, first + options.calls), "calls", console=console), findings)
    findings.show(console)
    return int(bool(findings.broken))


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
