"""The scene of the simulation benchmark: Laikagos that stand on their four toe spheres (as in Qiao et al. 2021)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

import pullback as pb
from bench.mujoco_models import GRAVITY, SETTLING_STEPS, TIME_STEP, joint_offsets, laikago_xml
from pullback.description.urdf_writer import write_urdf

TOES = ("toeFR", "toeFL", "toeRR", "toeRL")
JOINTS = np.array((0.2, 0.0, -0.5) * 4)
HEIGHT = 0.4835
FRICTION = 0.8
SERVO = {"kp": 150.0, "kd": 3.0, "limit": 100.0}

Tensor = torch.Tensor
Call = Callable[[], Any]


class Standing(NamedTuple):
    """A simulation, the state it has settled in, and the controls that keep it there (1, nu)."""

    sim: pb.Sim
    state: pb.State
    targets: Tensor

    def controls(self, steps: int) -> Tensor:
        """Return a leaf (steps, B, nu) that asks for a gradient."""
        return self.targets.repeat(steps, len(self.state.q), 1).requires_grad_()


def stand(
    robots: int = 1,
    *,
    worlds: int = 1,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    contact: pb.PGS | None = None,
    **options: Any,
) -> Standing:
    """Return Laikagos that stand side by side; with several worlds, each has its joints a little elsewhere.

    `options` are others of `World.compile`.
    """
    world = pb.World(gravity=GRAVITY, contact=contact or pb.PGS(iterations=50))
    for number, place in enumerate(grid(robots)):
        dog = pb.load("laikago", base="floating", dtype=dtype, device=device)
        bent = dict(zip((name for name in dog.joint_names if name != "floating_base"), JOINTS.tolist()))
        world.add(
            dog,
            name=f"dog{number}",
            position=place,
            q=bent,
            actuators=pb.PositionServo(kp=SERVO["kp"], kd=SERVO["kd"], limit=SERVO["limit"]),
            collision_links=TOES,
            friction=FRICTION,
        )
    world.add_ground(friction=FRICTION)
    sim = world.compile(dt=TIME_STEP, dtype=dtype, device=device, **options)
    targets = torch.tensor(np.tile(JOINTS, robots)[None], dtype=dtype, device=device)
    with torch.no_grad():
        settled = sim.rollout(sim.initial_state(), targets.repeat(SETTLING_STEPS, 1, 1), checkpoint=SETTLING_STEPS)[-1]
    q = settled.q.repeat(worlds, 1)
    if worlds > 1:
        q[:, 7:] += torch.tensor(joint_offsets(worlds, q.shape[1] - 7), dtype=dtype, device=device)
    return Standing(sim, pb.State(q, settled.qd.repeat(worlds, 1)), targets)


def grid(robots: int) -> list[tuple[float, float, float]]:
    """Return places [m] in rows of five, a metre apart."""
    return [(float(k % 5), float(k // 5), HEIGHT) for k in range(robots)]


def peer_xml(robots: int = 1, **options: Any) -> str:
    """Return the same Laikagos for MuJoCo."""
    tree = pb.load("laikago").model.tree
    return laikago_xml(tree, grid(robots), touching=TOES, friction=FRICTION, servo=SERVO, **options)


def peer_urdf() -> str:
    """Return one of them as URDF, with the shapes of its toes only."""
    tree = pb.load("laikago").model.tree
    links = [link if link.name in TOES else replace(link, shapes=[]) for link in tree.links]
    with TemporaryDirectory() as folder:
        return write_urdf(replace(tree, links=links), f"{folder}/laikago.urdf").read_text()


def forward_and_backward(
    standing: Standing, steps: int, checkpoint: int = 1, *, controls: Tensor | None = None
) -> tuple[Call, Call]:
    """Return a rollout, recording for a backward pass, and that pass alone, in initial state and controls.

    Controls (steps, B, nu) are those that keep it standing unless others are given.
    """
    controls = standing.controls(steps) if controls is None else controls.clone().requires_grad_()
    q, qd = (x.clone().requires_grad_() for x in (standing.state.q, standing.state.qd))
    state = pb.State(q, qd)

    def forward() -> pb.Trajectory:
        return standing.sim.rollout(state, controls, checkpoint=checkpoint)

    states = forward()
    states.status.check()
    loss = states.q[-1].square().sum() + states.qd[-1].square().sum()
    return forward, lambda: torch.autograd.grad(loss, (q, qd, controls), retain_graph=True)
