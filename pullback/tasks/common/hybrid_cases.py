"""Three machines that are not quite as described, their recorded motions, and what is to learn the rest.

The recordings are made by finer simulations, one of them MuJoCo's, with forces and lags that the models do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, pi
from typing import Any

import numpy as np
import torch
from torch import nn

from pullback.learn.hybrid_fit import FitConfig, Motions, NetworkModel
from pullback.learn.residuals import ActuatorNetwork, JointTorque, LinkForce, Together
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.tasks.common.mujoco_scenes import FINE, import_mujoco, mujoco_arm
from pullback.tasks.leap import LEG, STANDING_HEIGHT

Tensor = torch.Tensor

STEP = 0.01
"""Time [s] between two samples of a recording."""


@dataclass(frozen=True)
class Case:
    """A machine: the simulation that is not quite right, how motions are recorded, and what learns the rest."""

    title: str
    sim: Sim
    record: Callable[[int, int, int], Motions]
    """From steps, number of motions and a seed to motions."""
    residual: Callable[[], nn.Module]
    network: Callable[[], NetworkModel]
    hybrid_fit: FitConfig
    network_fit: FitConfig
    warm: int = 0
    """Measured steps from which models may learn what cannot be seen, before they predict."""


def make_case(name: str) -> Case:
    """Return the case "pendulum", "arm" or "quadruped"."""
    return CASES[name]()


# -- a pendulum with dry friction and drag ---------------------------------------------------------------------------

DRY, DRAG = 0.8, 0.25
"""Friction [N·m] and drag [N·m·s²/rad²] of each joint."""


def pendulum() -> Case:
    """Return a pendulum of two links that knows gravity and inertia, and nothing of friction and drag."""

    def simulate(dt: float) -> Sim:
        world = World()
        world.add(load("pendulum2", dtype=torch.float64), name="arm")
        return world.compile(dt=dt, dtype=torch.float64, integrator="rk4", without=["contacts", "limits", "friction"])

    fine, parts = simulate(STEP / 20), 20
    sim = simulate(STEP)

    @torch.no_grad()
    def record(steps: int, motions: int, seed: int) -> Motions:
        random = torch.Generator().manual_seed(seed)
        q = torch.tensor([-pi / 2, 0.0], dtype=torch.float64) + 1.2 * _signed(random, motions, 2)
        state, u = State(q, 3.0 * _signed(random, motions, 2)), 6.0 * _waves(random, steps, motions, 2, (0.3, 1.5))
        found = [state]
        for command in u:
            for _ in range(parts):
                rate = state.qd
                lost = DRY * torch.tanh(rate / 0.05) + DRAG * rate * rate.abs()
                state = fine.step(state, command - lost)
            found.append(state)
        return _motions(found, u)

    return Case(
        "a pendulum of two links with friction and drag that the model does not have", sim, record,
        lambda: JointTorque(
            sim, (16, 16), scale=2.0, local=True, positions=False, odd=True, motors=True, creep=0.05
        ),
        lambda: NetworkModel(sim, (128, 128)),
        FitConfig(iterations=400, window=10, batch=48, rate=2e-2),
        FitConfig(iterations=1000, window=16, batch=64, rate=3e-3),
    )  # fmt: skip


# -- an arm with a cable, by MuJoCo ----------------------------------------------------------------------------------

HAND = "iiwa_link_7"
SLIDING, STICKING, STRIBECK, VISCOUS = 1.5, 2.5, 0.3, 0.8
"""Friction [N·m] of the first joint when sliding and when creeping, the speed [rad/s] between, and its damping."""
SHARES = (1.0, 1.0, 0.7, 0.7, 0.4, 0.3, 0.2)
"""How friction and damping of each joint compare with those of the first."""
ROTORS = 0.1
"""Inertia of the motors [kg·m²] at each joint, which both sides know."""
ANCHOR, SLACK, CABLE, CABLE_DRAG = (0.0, 0.0, 1.6), 0.5, 40.0, 8.0
"""Where a cable is held [m], its length when slack [m], its stiffness [N/m] and drag [N·s/m]."""


def arm() -> Case:
    """Return an iiwa that knows neither the Stribeck friction of its joints nor the cable on its hand."""
    mujoco = import_mujoco()
    robot = load("iiwa7", dtype=torch.float64)
    for number in range(1, 8):
        robot.set_link_param(f"iiwa_link_{number}", "joint_damping", 0.0)
        robot.set_link_param(f"iiwa_link_{number}", "joint_armature", ROTORS)
    model: Any = mujoco_arm(mujoco, robot)
    model.dof_armature[:] = ROTORS
    hand = model.body(HAND).id
    world = World()
    world.add(robot, name="arm")
    sim = world.compile(dt=STEP, dtype=torch.float64, integrator="rk4", without=["contacts", "limits", "friction"])

    def resist(data: Any) -> None:
        """Set the forces that the description leaves out."""
        rate = data.qvel
        friction = SLIDING + (STICKING - SLIDING) * np.exp(-((rate / STRIBECK) ** 2))
        data.qfrc_applied[:] = -np.array(SHARES) * (friction * np.tanh(rate / 0.05) + VISCOUS * rate)
        velocity = np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, hand, velocity, 0)
        away = np.array(ANCHOR) - data.xipos[hand]
        length = np.linalg.norm(away)
        pull = CABLE * max(0.0, length - SLACK) * away / length
        data.xfrc_applied[hand, :3] = pull - CABLE_DRAG * velocity[3:]

    def record(steps: int, motions: int, seed: int) -> Motions:
        random = np.random.default_rng(seed)
        found = [_wave(mujoco, model, random, steps, resist) for _ in range(motions)]
        q, qd, u = (torch.from_numpy(np.stack(x, 1)) for x in zip(*found))
        return Motions(q, qd, u)

    return Case(
        "an iiwa in MuJoCo with Stribeck friction and a cable on its hand that the model does not have", sim, record,
        lambda: Together(
            JointTorque(sim, (16, 16), scale=1.0, local=True, positions=False, odd=True, motors=True),
            LinkForce(sim, f"arm/{HAND}", (24, 24), scale=10.0),
        ),
        lambda: NetworkModel(sim, (128, 128)),
        FitConfig(iterations=1000, window=10, batch=32, rate=1e-2),
        FitConfig(iterations=1000, window=16, batch=64, rate=3e-3),
    )  # fmt: skip


def _wave(mujoco: Any, model: Any, random: np.random.Generator, steps: int, resist: Callable[[Any], None]) -> Any:
    """Return q, qd and u of one motion, under torques that are to follow sines and know nothing of what resists."""
    data, wanted = mujoco.MjData(model), mujoco.MjData(model)
    n = model.nv
    middle, way = random.uniform(-0.8, 0.8, n), random.uniform(0.3, 0.7, n)
    pace, phase = random.uniform(2.0, 5.0, n), random.uniform(0.0, 2.0 * np.pi, n)
    data.qpos[:], data.qvel[:] = middle + way * np.sin(phase), way * pace * np.cos(phase)
    mujoco.mj_forward(model, data)
    states, controls = [(data.qpos.copy(), data.qvel.copy())], []
    for step in range(steps):
        angle = pace * step * STEP + phase
        behind = middle + way * np.sin(angle) - data.qpos, way * pace * np.cos(angle) - data.qvel
        wanted.qpos[:], wanted.qvel[:] = data.qpos, data.qvel
        wanted.qacc[:] = -way * pace**2 * np.sin(angle) + 60.0 * behind[0] + 12.0 * behind[1]
        mujoco.mj_inverse(model, wanted)
        data.ctrl[:] = wanted.qfrc_inverse
        controls.append(data.ctrl.copy())
        for _ in range(round(STEP / FINE)):
            resist(data)
            mujoco.mj_step(model, data)
        states.append((data.qpos.copy(), data.qvel.copy()))
    q, qd = (np.stack(x) for x in zip(*states))
    return q, qd, np.stack(controls)


# -- a quadruped whose motors lag ------------------------------------------------------------------------------------

LAG, FASTEST = 0.05, 6.0
"""Time constant [s] with which commands arrive, and the most that what has arrived moves [rad/s]."""
WARM = 20


def quadruped() -> Case:
    """Return a Laikago on the ground, whose servos are thought to get their commands at once."""

    def simulate(dt: float, substeps: int) -> Sim:
        world = World()
        robot = load("laikago", "floating", dtype=torch.float64)
        world.add(
            robot, name="dog", position=(0.0, 0.0, STANDING_HEIGHT),
            q=dict(zip(robot.joint_names[1:], 4 * LEG)), actuators=PositionServo(kp=150.0, kd=3.0, limit=100.0),
        )  # fmt: skip
        world.add_ground(friction=0.8)
        return world.compile(dt=dt, substeps=substeps, dtype=torch.float64)

    parts = 5
    fine, sim = simulate(STEP / parts, 1), simulate(STEP, parts)

    @torch.no_grad()
    def record(steps: int, motions: int, seed: int) -> Motions:
        random = torch.Generator().manual_seed(seed)
        pose = torch.tensor(4 * LEG, dtype=torch.float64)
        # half a second in which it comes to stand, which is not recorded
        settle = 50
        u = pose + torch.tensor([0.06, 0.25, 0.35] * 4) * _waves(random, settle + steps, motions, 12, (0.5, 2.5))
        state = fine.initial_state(motions)
        arrived, share = state.q[:, 7:], 1.0 - exp(-STEP / parts / LAG)
        found = []
        for command in u:
            found.append(state)
            for _ in range(parts):
                move = share * (command - arrived)
                arrived = arrived + move.clamp(-FASTEST * STEP / parts, FASTEST * STEP / parts)
                state = fine.step(state, arrived)
        found.append(state)
        return _motions(found[settle:], u[settle:])

    return Case(
        "a Laikago whose commands arrive late, which the model does not know", sim, record,
        lambda: ActuatorNetwork(sim, (16,)),
        lambda: NetworkModel(sim, (256, 256), past=10, hidden_q=(0, 1)),
        FitConfig(iterations=160, window=10, warm=WARM, batch=16, rate=1e-2),
        FitConfig(iterations=600, window=16, warm=WARM, batch=64, rate=2e-3),
        warm=WARM,
    )  # fmt: skip


CASES: dict[str, Callable[[], Case]] = {"pendulum": pendulum, "arm": arm, "quadruped": quadruped}


def _signed(random: torch.Generator, *shape: int) -> Tensor:
    """Return numbers between -1 and 1."""
    return 2.0 * torch.rand(*shape, dtype=torch.float64, generator=random) - 1.0


def _waves(random: torch.Generator, steps: int, motions: int, joints: int, rates: tuple[float, float]) -> Tensor:
    """Return sums of three sines (steps, motions, joints) of random rates [Hz] and phases, at most 1 in size."""
    t = STEP * torch.arange(steps, dtype=torch.float64)[:, None, None, None]
    low, high = rates
    rate = low + (high - low) * torch.rand(motions, joints, 3, dtype=torch.float64, generator=random)
    phase = 2 * pi * torch.rand(motions, joints, 3, dtype=torch.float64, generator=random)
    return (2 * pi * rate * t + phase).sin().mean(-1)


def _motions(states: list[State], u: Tensor) -> Motions:
    return Motions(torch.stack([s.q for s in states]), torch.stack([s.qd for s in states]), u)
