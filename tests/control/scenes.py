"""Small worlds to control: sleds on rails, which are linear, and things that turn."""

import tempfile
from pathlib import Path

import numpy as np
import torch

import pullback as pb

LINK = '<link name="{name}"><inertial><mass value="{mass}"/>{spread}</inertial></link>'
SPREAD = '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/>'
JOINT = """<joint name="{name}" type="{type}"><parent link="{parent}"/><child link="{child}"/><origin xyz="{xyz}"/>
<axis xyz="{axis}"/><limit lower="{lower}" upper="{upper}" effort="1e9" velocity="1e9"/></joint>"""


def load_urdf(text: str) -> pb.RobotModel:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "thing.urdf"
        path.write_text(f'<?xml version="1.0"?><robot name="thing">{text}</robot>', encoding="utf-8")
        return pb.load(path, dtype=torch.float64)


def sleds_world(lower: float = -1e3, upper: float = 1e3) -> pb.World:
    """Two sleds of 1 kg and 2 kg, the second on the first, along x and y: x'' = u_x / 3, y'' = u_y / 2."""
    links = "".join(LINK.format(name=n, mass=m, spread=SPREAD) for n, m in (("rail", 1), ("first", 1), ("second", 2)))
    ends = {"type": "prismatic", "lower": lower, "upper": upper}
    joints = JOINT.format(name="x", parent="rail", child="first", axis="1 0 0", xyz="0 0 0", **ends)
    joints += JOINT.format(name="y", parent="first", child="second", axis="0 1 0", xyz="0 0 0", **ends)
    world = pb.World(gravity=(0, 0, 0))
    world.add(load_urdf(links + joints), name="sleds", actuators=pb.Torque(limit=float("inf")))
    return world


def sleds(dt: float = 0.05, **limits: float) -> pb.Sim:
    return sleds_world(**limits).compile(dt=dt, dtype=torch.float64)


def sleds_matrices(dt: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """The same as dx' = A x + B u, x = (q, qd)."""
    push = np.diag([dt / 3, dt / 2])
    eye, zero = np.eye(2), np.zeros((2, 2))
    return np.block([[eye, dt * eye], [zero, eye]]), np.vstack([dt * push, push])


def pendulum(dt: float = 0.02) -> pb.Sim:
    world = pb.World()
    world.add(pb.load("pendulum2"), name="arm", actuators=pb.Torque(limit=float("inf")))
    return world.compile(dt=dt, dtype=torch.float64)


def ball_and_box(dt: float = 0.01) -> pb.Sim:
    """A driven sled, a free box, and nothing that touches."""
    world = sleds_world()
    world.add_box("box", size=(0.2, 0.3, 0.4), mass=1.0, position=(2, 0, 1))
    return world.compile(dt=dt, dtype=torch.float64, without=["contacts"])


def random_state(sim: pb.Sim, *batch: int, seed: int = 0, spread: float = 1.0) -> pb.State:
    """A state anywhere on the manifold."""
    generator = torch.Generator().manual_seed(seed)
    dx = spread * torch.randn(*batch, 2 * sim.nv, dtype=torch.float64, generator=generator)
    start = sim.initial_state()
    return sim.retract(pb.State(start.q[0], start.qd[0]), dx)
