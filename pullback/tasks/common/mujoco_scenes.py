"""Motions that another engine, MuJoCo, makes of known numbers, and the worlds in which these are to be found again.

MuJoCo computes contact by its own model, soft, with elliptic cones, in steps of a quarter of a millisecond, and hands
over one sample every `SAMPLE` seconds.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pullback.control.identify.unknowns import Unknown
from pullback.control.identify.windows import Recording
from pullback.core.errors import PullbackError
from pullback.description.assets.rows import X, Y, box, joint, link, sphere
from pullback.description.tree import Tree
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.world.world import World
from pullback.robot.export import export_urdf
from pullback.robot.load import load

Tensor = torch.Tensor

SAMPLE = 0.01
FINE = 2.5e-4
"""MuJoCo's time step [s]."""
HARD, SOFT = 0.002, 0.01
"""Time constants [s] of MuJoCo's contact; a ball hops on a harder ground when its friction sets in."""
SLED = (0.2, 0.2, 0.06)
FOOT = 0.015
FEET = ((0.08, 0.0), (-0.08, 0.08), (-0.08, -0.08))
"""Positions of the sled's feet [m]; three of them have unique contact forces."""
BALL = 0.1
FINGER = 0.03
CART_MASS, FINGER_MASS = 0.2, 0.3
SPRINGS = Compliant(damping=20.0)
"""Soft contact, like MuJoCo's: forces of rigid corners would not be unique."""
ARM_LINKS = tuple(range(2, 8))
ARM_JOINTS = tuple(range(1, 8))


@dataclass
class Scene:
    """Recorded motion, the true parameters, and the simulation to identify."""

    sim: Sim
    recordings: list[Recording]
    unknowns: list[Unknown]
    true: dict[str, float]
    """The true value of each number, by its entry: `mass of block`."""
    windows: tuple[int, ...]
    """Samples of a window that suit this motion, of one search after the other."""
    noisy_windows: tuple[int, ...]
    """The same where measurements are noisy: longer ones average more, and need a start that is close."""


def make_scene(name: str, *, seed: int = 0, seconds: float | None = None) -> Scene:
    """Return one of the scenes "push", "arm" and "roll", with `seconds` of each motion."""
    mujoco = import_mujoco()
    return SCENES[name](mujoco, np.random.default_rng(seed), seconds)


def import_mujoco() -> Any:
    """Return the package mujoco; raise with how to install it."""
    try:
        import mujoco
    except ImportError as error:
        text = 'this task takes its data from MuJoCo, which is not installed; pip install "pullback[mjcf]"'
        raise PullbackError(text) from error
    return mujoco


def with_noise(recordings: Sequence[Recording], noise: float, generator: torch.Generator) -> list[Recording]:
    """Add noise to the measurements, relative to the standard deviation of each in a recording."""

    def noisy(x: Tensor) -> Tensor:
        return x + noise * x.std(0) * torch.randn(x.shape, dtype=x.dtype, generator=generator)

    found = []
    for each in recordings:
        assert each.qd is not None
        found.append(Recording(noisy(each.q), noisy(each.qd), each.controls, each.dt))
    return found


def record(
    mujoco: Any, model: Any, data: Any, steps: int, control: Callable[[float], np.ndarray], look: Callable[[], Any]
) -> Recording:
    """Simulate `steps` samples with MuJoCo, with controls held over each, and return the state at every sample."""
    states, controls = [look()], []
    for step in range(steps):
        data.ctrl[:] = control(step * SAMPLE)
        controls.append(data.ctrl.copy())
        for _ in range(round(SAMPLE / model.opt.timestep)):
            mujoco.mj_step(model, data)
        states.append(look())
    q, qd = (torch.from_numpy(np.stack(x)) for x in zip(*states))
    return Recording(q, qd, torch.from_numpy(np.stack(controls)).reshape(steps, -1), SAMPLE)


def free_body(data: Any, q: int = 0, v: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return place and velocity of a free body in our order: xyz, xyzw; angular, then linear in the body's axes."""
    w, x, y, z = data.qpos[q + 3 : q + 7]
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    place = np.concatenate([data.qpos[q : q + 3], [x, y, z, w]])
    return place, np.concatenate([data.qvel[v + 3 : v + 6], rotation.T @ data.qvel[v : v + 3]])


def contact_xml(friction: float, hardness: float, bodies: str, rest: str = "") -> str:
    """Return MJCF of bodies on a plane, all with one friction coefficient."""
    return (
        f'<mujoco><option timestep="{FINE}" cone="elliptic" impratio="10" tolerance="1e-12" iterations="200"/>'
        f'<default><geom friction="{friction} 0 0" condim="3" solref="{hardness} 1" solimp="0.95 0.99 0.001"/>'
        f'</default><worldbody><geom type="plane" size="0 0 1"/>{bodies}</worldbody>{rest}</mujoco>'
    )


def _compile(world: World) -> Sim:
    """Return the simulation of a world in which nothing bounces, with a step that would swallow it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*swallows its bounces")
        return world.compile(dt=SAMPLE, substeps=5, dtype=torch.float64)


# -- a finger pushes a sled ---------------------------------------------------------------------------------------


def push(mujoco: Any, random: np.random.Generator, seconds: float | None) -> Scene:
    """Return a sled on three feet, pushed along the ground by a smooth finger with a known force."""
    mass, friction = 1.5, 0.35
    x, y, z = (edge / 2 for edge in SLED)
    feet = "".join(f'<geom type="sphere" size="{FOOT}" pos="{a} {b} {-z}" mass="0"/>' for a, b in FEET)
    bodies = (
        f'<body pos="0 0 {z + FOOT}"><freejoint/>'
        f'<geom name="sled" type="box" size="{x} {y} {z}" mass="{mass}" contype="0" conaffinity="0"/>{feet}</body>'
        f'<body pos="{-x - FINGER} 0 {z + FOOT}"><joint name="x" type="slide" axis="1 0 0"/>'
        f'<inertial pos="0 0 0" mass="{CART_MASS}" diaginertia="1e-4 1e-4 1e-4"/>'
        f'<body><joint name="y" type="slide" axis="0 1 0"/><geom name="finger" type="sphere" size="{FINGER}" '
        f'mass="{FINGER_MASS}" contype="0" conaffinity="0"/></body></body>'
    )
    rest = f'<contact><pair geom1="sled" geom2="finger" condim="1" solref="{HARD} 1"/></contact>'
    rest += '<actuator><motor joint="x"/><motor joint="y"/></actuator>'
    model = mujoco.MjModel.from_xml_string(contact_xml(friction, HARD, bodies, rest))
    recordings = []
    for offset in (-0.03, -0.01, 0.015, 0.035):
        data = mujoco.MjData(model)
        data.qpos[8] = offset
        pace, rate = random.uniform(0.25, 0.4), 2.0 * np.pi * random.uniform(1.5, 2.5)

        def force(t: float, data: Any = data, at: tuple[float, ...] = (offset, pace, rate)) -> np.ndarray:
            offset, pace, rate = at
            target = np.array([pace * (t - np.sin(rate * t) / rate), offset])
            speed = np.array([pace * (1.0 - np.cos(rate * t)), 0.0])
            return 200.0 * (target - data.qpos[7:9]) + 15.0 * (speed - data.qvel[6:8])

        def look(data: Any = data) -> tuple[np.ndarray, np.ndarray]:
            place, speed = free_body(data)
            return np.concatenate([place, data.qpos[7:9]]), np.concatenate([speed, data.qvel[6:8]])

        recordings.append(record(mujoco, model, data, round((seconds or 0.8) / SAMPLE), force, look))
    sim = _compile(_pushed_sled(mass=0.8, friction=0.6))
    unknowns = [Unknown("sled/body", "mass", start=0.8, solid=True), Unknown("sled", "friction", start=0.6)]
    return Scene(sim, recordings, unknowns, {"mass of sled/body": mass, "friction of sled": friction}, (20,), (20,))


def _pushed_sled(*, mass: float, friction: float) -> World:
    """Return the world of a sled and a finger."""
    x, y, z = SLED
    moments = (mass * (y * y + z * z) / 12, mass * (x * x + z * z) / 12, mass * (x * x + y * y) / 12)
    shapes = [box(SLED), *(sphere(FOOT, (a, b, -z / 2)) for a, b in FEET)]
    body = Tree("sled", [link("body", mass, (0, 0, 0), moments, *shapes)], [], source="sled")
    r = 0.4 * FINGER_MASS * FINGER**2
    links = [
        link("base"),
        link("cart", CART_MASS, (0, 0, 0), (1e-4, 1e-4, 1e-4)),
        link("finger", FINGER_MASS, (0, 0, 0), (r, r, r), sphere(FINGER, (0, 0, 0))),
    ]
    slides = [
        joint("x", "prismatic", "base", "cart", (0, 0, 0), axis=X),
        joint("y", "prismatic", "cart", "finger", (0, 0, 0), axis=Y),
    ]
    world = World(contact=SPRINGS)
    world.add_ground()
    world.add(load(body, base="floating"), name="sled", position=(0.0, 0.0, z / 2 + FOOT), friction=friction)
    pusher = load(Tree("pusher", links, slides, source="pusher"), base="fixed")
    world.add(pusher, name="pusher", position=(-x / 2 - FINGER, 0.0, z / 2 + FOOT), friction=0.0)
    return world


# -- a ball that slides, then rolls -----------------------------------------------------------------------------------


def roll(mujoco: Any, random: np.random.Generator, seconds: float | None) -> Scene:
    """Return a ball thrown along the ground with a spin that does not fit."""
    friction, mass = 0.2, 1.0
    recordings = []
    for _ in range(4):
        body = f'<body pos="0 0 {BALL}"><freejoint/><geom type="sphere" size="{BALL}" mass="{mass}"/></body>'
        model = mujoco.MjModel.from_xml_string(contact_xml(friction, SOFT, body))
        data = mujoco.MjData(model)
        data.qvel[:2] = random.uniform(-1.0, 1.0, 2)
        data.qvel[3:6] = random.uniform(-12.0, 12.0, 3)

        def look(data: Any = data) -> tuple[np.ndarray, np.ndarray]:
            return free_body(data)

        recordings.append(record(mujoco, model, data, round((seconds or 0.6) / SAMPLE), lambda t: np.zeros(0), look))
    world = World(contact=SPRINGS)
    world.add_ground()
    world.add_sphere("ball", radius=BALL, mass=mass, position=(0.0, 0.0, BALL))
    sim = _compile(world)
    unknowns = [Unknown("ball", "friction", start=0.5), Unknown("ball", "size", start=0.9 * BALL)]
    return Scene(sim, recordings, unknowns, {"friction of ball": friction, "size of ball": BALL}, (10,), (20,))


# -- an arm that waves ------------------------------------------------------------------------------------------------


def arm(mujoco: Any, random: np.random.Generator, seconds: float | None) -> Scene:
    """Return the iiwa with other masses and dampers than its description, moved by torques that follow sines."""
    truth = load("iiwa7", dtype=torch.float64)
    true: dict[str, float] = {}
    unknowns = []
    chosen = [(k, "mass", (0.7, 1.5)) for k in ARM_LINKS] + [(k, "joint_damping", (0.5, 2.0)) for k in ARM_JOINTS]
    for k, parameter, factors in chosen:
        name = f"iiwa_link_{k}"
        described = float(truth.get_link_param(name, parameter))
        unknowns.append(Unknown(f"arm/{name}", parameter, start=described))
        true[unknowns[-1].name] = described * random.uniform(*factors)
        truth.set_link_param(name, parameter, true[unknowns[-1].name])
    model = mujoco_arm(mujoco, truth)
    wanted = mujoco.MjData(model)
    recordings = []
    for _ in range(4):
        data = mujoco.MjData(model)
        middle, way = random.uniform(-0.8, 0.8, 7), random.uniform(0.3, 0.7, 7)
        rate, phase = random.uniform(2.0, 6.0, 7), random.uniform(0.0, 2.0 * np.pi, 7)
        data.qpos[:] = middle + way * np.sin(phase)
        data.qvel[:] = way * rate * np.cos(phase)

        def torque(t: float, data: Any = data, at: tuple[np.ndarray, ...] = (middle, way, rate, phase)) -> np.ndarray:
            middle, way, rate, phase = at
            angle = rate * t + phase
            behind = middle + way * np.sin(angle) - data.qpos, way * rate * np.cos(angle) - data.qvel
            wanted.qpos[:], wanted.qvel[:] = data.qpos, data.qvel
            wanted.qacc[:] = -way * rate**2 * np.sin(angle) + 60.0 * behind[0] + 12.0 * behind[1]
            mujoco.mj_inverse(model, wanted)
            return wanted.qfrc_inverse.copy()

        def look(data: Any = data) -> tuple[np.ndarray, np.ndarray]:
            return data.qpos.copy(), data.qvel.copy()

        recordings.append(record(mujoco, model, data, round((seconds or 2.0) / SAMPLE), torque, look))
    world = World()
    world.add(load("iiwa7", dtype=torch.float64), name="arm")
    sim = world.compile(
        dt=SAMPLE, substeps=2, dtype=torch.float64, integrator="rk4", without=["contacts", "limits", "friction"]
    )
    return Scene(sim, recordings, unknowns, true, (20,), (20, 50))


def mujoco_arm(mujoco: Any, truth: Any) -> Any:
    """Return the arm as MuJoCo reads its URDF, driven by torques, without joint limits and collisions."""
    with tempfile.TemporaryDirectory() as folder:
        spec = mujoco.MjSpec.from_file(str(export_urdf(truth, Path(folder) / "arm.urdf")))
    for each in spec.joints:
        spec.add_actuator(trntype=mujoco.mjtTrn.mjTRN_JOINT, target=each.name)
    model = spec.compile()
    model.opt.timestep, model.opt.integrator = FINE, mujoco.mjtIntegrator.mjINT_RK4
    model.opt.disableflags = mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    model.dof_frictionloss[:] = 0.0
    return model


SCENES: dict[str, Callable[[Any, np.random.Generator, float | None], Scene]] = {"push": push, "roll": roll, "arm": arm}
