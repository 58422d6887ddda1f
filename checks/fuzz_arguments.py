"""Odd values for every argument of worlds and simulations: each call works or raises a PullbackError.

Part of `python -m checks.fuzz_settings`. A call is made in a process of its own, within 20 s and 500 MB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pullback as pb
from checks.children import in_a_child
from checks.fuzz_checks import Findings

PATIENCE = 20
MEGABYTES = 500.0

NUMBERS = (
    float("nan"), float("inf"), -float("inf"), -1.0, -1, 0, 0.0, 1e308, 1e-320, 1e30, 0.5, 3, 10**9, 10**30, -(10**9),
    True, 2**31, 2**63, 1j,
)  # fmt: skip
THINGS = (
    None,
    "text",
    "",
    b"bytes",
    [],
    {},
    (),
    object(),
    [1.0, "two", 3.0],
    [[1.0], [2.0, 3.0]],
    print,
    float,
    "cuda",
)
ARRAYS: tuple[Callable[[], Any], ...] = (
    lambda: np.zeros(0),
    lambda: np.zeros((2, 3)),
    lambda: np.full(3, np.nan),
    lambda: np.array(["a", "b", "c"]),
    lambda: np.zeros((3, 3, 3, 3)),
    lambda: torch.zeros(0),
    lambda: torch.zeros(3, dtype=torch.int64),
    lambda: torch.zeros(7, 5),
    lambda: torch.full((1, 3), torch.nan),
    lambda: torch.zeros(3, dtype=torch.complex64),
    lambda: torch.zeros(3, dtype=torch.bool),
    lambda: torch.zeros(1, 1, 1, 1, 1),
    lambda: torch.zeros(3, device="meta"),
    lambda: torch.zeros(2, 3).to_sparse(),
    lambda: torch.ones(3, dtype=torch.float16),
)


def odd(rng: np.random.Generator) -> Any:
    """Return a value that few would give."""
    kind = rng.random()
    if kind < 0.45:
        return NUMBERS[int(rng.integers(len(NUMBERS)))]
    if kind < 0.7:
        return THINGS[int(rng.integers(len(THINGS)))]
    if kind < 0.8:
        return [NUMBERS[int(rng.integers(len(NUMBERS)))] for _ in range(int(rng.integers(1, 5)))]
    return ARRAYS[int(rng.integers(len(ARRAYS)))]()


def a_world(**options: Any) -> pb.World:
    """Return a small world: an arm of two joints, a box and a ground."""
    world = pb.World(**options)
    world.add_ground()
    world.add(pb.load("pendulum2", dtype=torch.float64), name="arm", position=(0.0, 0.0, 3.0))
    world.add_box("box", size=(0.1, 0.1, 0.1), mass=1.0, position=(1.0, 0.0, 0.05))
    return world


def a_sim(**options: Any) -> pb.Sim:
    """Return the simulation of the small world."""
    return a_world().compile(**{"dt": 1e-3, "dtype": torch.float64, **options})


def move(world: pb.World) -> None:
    """Step a world twice and differentiate, whatever it holds."""
    sim = world.compile(dt=1e-3, dtype=torch.float64)
    state = sim.initial_state()
    qd = state.qd.clone().requires_grad_()
    sim.rollout(pb.State(state.q, qd, state.impulses), 2).q[-1].sum().backward()


def call_compile(given: dict[str, Any]) -> None:
    """Compile, and step."""
    sim = a_sim(**given)
    sim.step(sim.initial_state())


def call_solver(solver: Callable[..., Any]) -> Callable[[dict[str, Any]], None]:
    """Return what moves a world whose contact has some settings."""
    return lambda given: move(a_world(contact=solver(**given)))


def call_add(method: str, **needed: Any) -> Callable[[dict[str, Any]], None]:
    """Return what adds a body and moves."""

    def call(given: dict[str, Any]) -> None:
        world = pb.World()
        options = {"name": "body", **needed, **given}
        getattr(world, method)(options.pop("name"), **options)
        world.add_ground(name="floor")
        move(world)

    return call


def call_robot(given: dict[str, Any]) -> None:
    """Add a robot and move."""
    world = pb.World()
    world.add(**{"robot": pb.load("pendulum2", dtype=torch.float64), **given})
    move(world)


def call_actuator(kind: Callable[..., Any]) -> Callable[[dict[str, Any]], None]:
    """Return what drives a robot by an actuator."""

    def call(given: dict[str, Any]) -> None:
        call_robot({"actuators": kind(**given)})

    return call


def call_state(given: dict[str, Any]) -> None:
    """Step from an odd state."""
    sim = a_sim()
    start = sim.initial_state(3)
    sim.step(pb.State(**{"q": start.q, "qd": start.qd, **given}))


def call_step(given: dict[str, Any]) -> None:
    """Step under odd controls."""
    sim = a_sim()
    sim.step(**{"state": sim.initial_state(3), **given})


def call_rollout(given: dict[str, Any]) -> None:
    """Roll out under odd controls and schedules."""
    sim = a_sim()
    sim.rollout(**{"state": sim.initial_state(3), "controls": 3, **given})


def call_linearize(given: dict[str, Any]) -> None:
    """Linearize about odd states."""
    sim = a_sim()
    controls = torch.zeros(3, 1, sim.nu, dtype=torch.float64)
    sim.linearize(**{"states": sim.rollout(sim.initial_state(), controls), "controls": controls, **given})


def call_set_shape(given: dict[str, Any]) -> None:
    """Change a shape, and move."""
    world = a_world()
    world.set_shape(**{"name": "box", **given})
    move(world)


def call_loop(kind: str) -> Callable[[dict[str, Any]], None]:
    """Return what closes a loop and moves."""

    def call(given: dict[str, Any]) -> None:
        world = a_world()
        getattr(world, kind)(**{"a": f"arm/{world.robots['arm'].model.links[-1].name}", "axis": (0, 0, 1), **given})
        move(world)

    return call


BODY = ("mass", "position", "orientation", "friction", "restitution", "static", "group", "mask", "name")
PGS = (
    "iterations", "tolerance", "friction", "gradient", "kinks", "kink_width", "warm_start", "erp", "loop_erp", "cfm",
    "margin", "restitution_threshold",
)  # fmt: skip
COMPLIANT = ("stiffness", "damping", "power", "onset", "slip_speed", "iterations", "tolerance", "margin")
ROBOT = (
    "robot", "name", "position", "orientation", "q", "actuators", "friction", "restitution", "self_collision",
    "collision_links", "missing_meshes", "group", "mask",
)  # fmt: skip
COMPILE = ("dt", "dtype", "device", "substeps", "max_contacts", "damping", "integrator", "without")

CALLS: dict[str, tuple[Callable[[dict[str, Any]], None], tuple[str, ...]]] = {
    "World": (lambda given: move(a_world(**given)), ("gravity", "contact")),
    "World.compile": (call_compile, COMPILE),
    "PGS": (call_solver(pb.PGS), PGS),
    "Exact": (call_solver(pb.Exact), PGS),
    "Compliant": (call_solver(pb.Compliant), COMPLIANT),
    "World.add": (call_robot, ROBOT),
    "World.add_box": (call_add("add_box", size=(0.1, 0.1, 0.1), mass=1.0), ("size", *BODY)),
    "World.add_sphere": (call_add("add_sphere", radius=0.1, mass=1.0), ("radius", *BODY)),
    "World.add_capsule": (call_add("add_capsule", radius=0.1, length=0.1, mass=1.0), ("radius", "length", *BODY)),
    "World.add_plane": (call_add("add_plane"), ("position", "orientation", "friction", "restitution", "name")),
    "World.set_shape": (call_set_shape, ("name", "size", "position", "orientation", "friction", "restitution")),
    "World.connect": (call_loop("connect"), ("a", "b", "position_a", "position_b")),
    "World.hinge": (call_loop("hinge"), ("a", "b", "axis", "position_a")),
    "Torque": (call_actuator(pb.Torque), ("gain", "limit")),
    "PositionServo": (lambda given: call_actuator(pb.PositionServo)({"kp": 1.0, **given}), ("kp", "kd", "limit")),
    "VelocityServo": (lambda given: call_actuator(pb.VelocityServo)({"kd": 1.0, **given}), ("kd", "limit")),
    "State": (call_state, ("q", "qd", "impulses")),
    "Sim.initial_state": (lambda given: discard(a_sim().initial_state(**given)), ("batch",)),
    "Sim.step": (call_step, ("state", "u")),
    "Sim.rollout": (call_rollout, ("state", "controls", "checkpoint", "check")),
    "Sim.linearize": (call_linearize, ("states", "controls")),
    "Every": (lambda given: call_rollout({"checkpoint": pb.Every(**given)}), ("interval",)),
    "Binomial": (lambda given: call_rollout({"checkpoint": pb.Binomial(**given)}), ("slots",)),
    "load": (
        lambda given: discard(pb.load(**{"path_or_name": "pendulum2", **given})),
        ("path_or_name", "base", "dtype", "device"),
    ),
}


def discard(value: object) -> None:
    """Return nothing of it."""


def examine(seed: int, findings: Findings) -> None:
    """Make the call of a seed, with one or two odd arguments."""
    rng = np.random.default_rng([seed, 2026])
    name = list(CALLS)[int(rng.integers(len(CALLS)))]
    call, arguments = CALLS[name]
    count = min(len(arguments), int(rng.choice((1, 1, 2))))
    given = {str(key): odd(rng) for key in rng.choice(arguments, count, replace=False)}
    found = in_a_child(lambda: call(given), PATIENCE)
    outcome = found["outcome"]
    where = f"seed {seed}: {name}({told(given)}): {outcome} {found['text'][:200]!r}"
    findings.count("calls with odd arguments")
    findings.count("calls with odd arguments that were refused", outcome == "refused")
    findings.check_true(
        "odd arguments: neither done nor refused by a PullbackError", outcome in ("read", "refused"), where
    )
    findings.check("odd arguments: memory [MB]", np.array([found["megabytes"]]), MEGABYTES, where)


def told(given: dict[str, Any]) -> str:
    """Return arguments as text."""
    return ", ".join(
        f"{key}={str(value)[:60] if len(repr(value)) > 60 else repr(value)}" for key, value in given.items()
    )


def load_kernels() -> None:
    """Load what the calls need, so that each child finds it loaded."""
    for contact in (pb.PGS(), pb.Exact(), pb.Compliant()):
        move(a_world(contact=contact))
    world = a_world()
    sim = world.compile(dt=1e-3, dtype=torch.float64)
    controls = torch.zeros(3, 1, sim.nu, dtype=torch.float64)
    sim.linearize(sim.rollout(sim.initial_state(), controls), controls)
