"""The four problems of the page of solvers: drop, slide, stack and push, each with a cause and an outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from weakref import WeakKeyDictionary

import numpy as np
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Shape, Tree

Tensor = torch.Tensor
Solver = pb.PGS | pb.Compliant
F64 = torch.float64
DT = 1e-3
SETTLING = 500
"""Steps that bodies settle for, each solver's in its own way, before a problem begins."""


class Problem(ABC):
    """A motion that a number, its cause, sets off, and a number that comes of it, its outcome."""

    name: str
    about: str
    cause: str
    outcome: str
    trace: str
    force: str
    steps: int
    causes: tuple[float, float]
    chosen: float
    pushing: str = "ground"
    """The shape whose force is shown."""

    @abstractmethod
    def world(self, contact: Solver) -> pb.World:
        """Return the world."""

    def __init__(self) -> None:
        self._rests: WeakKeyDictionary[pb.Sim, Tensor] = WeakKeyDictionary()

    def start(self, sim: pb.Sim, causes: Tensor) -> pb.State:
        """Return the states (B,) that motions start from: at rest, where bodies have settled."""
        if sim not in self._rests:
            self._rests[sim] = sim.rollout(sim.initial_state(), SETTLING, checkpoint=SETTLING).q[-1].detach()
        rest = self._rests[sim].expand(len(causes), -1)
        return pb.State(rest, rest.new_zeros(len(causes), sim.nv))

    def controls(self, causes: Tensor) -> Tensor | int:
        """Return the controls (T, B, nu), or the number of steps where there are none."""
        return self.steps

    @abstractmethod
    def followed(self, q: Tensor) -> Tensor:
        """Return the number of states (..., nq) that the outcome is the last of."""

    def run(self, sim: pb.Sim, causes: Tensor) -> pb.Trajectory:
        """Return the motions of causes (B,)."""
        return sim.rollout(self.start(sim, causes), self.controls(causes))

    def forces(self, sim: pb.Sim, cause: float) -> np.ndarray:
        """Return the size of the force [N] on or by one shape in each step."""
        causes = torch.tensor([cause], dtype=F64)
        states, controls = self.run(sim, causes), self.controls(causes)
        u = controls[:, 0] if isinstance(controls, Tensor) else None
        found = sim.contacts(pb.State(states.q[:-1, 0], states.qd[:-1, 0]), u)
        total = [sum((np.array(c.force) for c in world if self.pushing in c.shapes), np.zeros(3)) for world in found]
        return np.array([np.linalg.norm(force) if self.pushing != "ground" else force[2] for force in total])


def along(causes: Tensor, size: int, **entries: float) -> Tensor:
    """Return rows (B, size) with multiples of the causes at entries `_k`, and zeros."""
    columns = torch.zeros(size, dtype=F64)
    for name, factor in entries.items():
        columns[int(name[1:])] = factor
    return causes[:, None] * columns


class Drop(Problem):
    """A ball falls and bounces."""

    name, about = "drop", "a ball of 1 kg falls on the ground and bounces"
    cause, outcome, trace, force = "height of the fall [m]", "height at the end [m]", "height [m]", "force [N]"
    steps, causes, chosen = 400, (0.1, 0.3), 0.2

    def world(self, contact: Solver) -> pb.World:
        """Return a ball that touches the ground; rigid contact is told its restitution."""
        world = pb.World(contact=contact)
        world.add_ground(restitution=None if isinstance(contact, pb.Compliant) else 0.6)
        world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.0, 0.0, 0.1))
        return world

    def start(self, sim: pb.Sim, causes: Tensor) -> pb.State:
        """Lift the ball."""
        rest = super().start(sim, causes)
        return pb.State(rest.q + along(causes, sim.nq, _2=1.0), rest.qd)

    def followed(self, q: Tensor) -> Tensor:
        """Return the height of the ball over the ground."""
        return q[..., 2] - 0.1


class Slide(Problem):
    """A box slides to a halt."""

    name, about = "slide", "a box of 1 kg slides, 30° off the axes, and friction of 0.3 stops it"
    cause, outcome, trace, force = "speed at the start [m/s]", "way [m]", "way [m]", "friction [N]"
    steps, causes, chosen = 400, (0.0, 2.0), 0.9
    direction = (float(np.cos(np.pi / 6)), 0.5)

    def world(self, contact: Solver) -> pb.World:
        """Return a box on the ground."""
        world = pb.World(contact=contact)
        world.add_ground(friction=0.3)
        world.add_box("box", size=(0.2, 0.2, 0.1), mass=1.0, position=(0.0, 0.0, 0.05 - 1e-5))
        return world

    def start(self, sim: pb.Sim, causes: Tensor) -> pb.State:
        """Give the box a velocity."""
        rest = super().start(sim, causes)
        return pb.State(rest.q, rest.qd + along(causes, sim.nv, _3=self.direction[0], _4=self.direction[1]))

    def followed(self, q: Tensor) -> Tensor:
        """Return the way of the box along its first direction."""
        return self.direction[0] * q[..., 0] + self.direction[1] * q[..., 1]

    def forces(self, sim: pb.Sim, cause: float) -> np.ndarray:
        """Return friction against the first direction."""
        states = self.run(sim, torch.tensor([cause], dtype=F64))
        found = sim.contacts(pb.State(states.q[:-1, 0], states.qd[:-1, 0]))
        x, y = self.direction
        return np.array([-sum(x * c.force[0] + y * c.force[1] for c in world) for world in found])


class Stack(Problem):
    """Three boxes, the lowest of which is struck."""

    name, about = "stack", "the lowest of three boxes of 1 kg is struck, and drags the others along; friction 0.5"
    cause, outcome = "speed of the lowest box [m/s]", "way of the box on top [m]"
    trace, force = "way of the box on top [m]", "force of the ground [N]"
    steps, causes, chosen = 150, (0.0, 1.5), 0.6

    def world(self, contact: Solver) -> pb.World:
        """Return boxes, each a little beside the one below."""
        world = pb.World(contact=contact)
        world.add_ground(friction=0.5)
        for k in range(3):
            place = (0.01 * k, 0.005 * k, 0.05 - 1e-5 + (0.1 - 1e-5) * k)
            world.add_box(f"box{k}", size=(0.2, 0.2, 0.1), mass=1.0, position=place, friction=0.5)
        return world

    def start(self, sim: pb.Sim, causes: Tensor) -> pb.State:
        """Give the lowest box a velocity."""
        rest = super().start(sim, causes)
        return pb.State(rest.q, rest.qd + along(causes, sim.nv, _3=1.0))

    def followed(self, q: Tensor) -> Tensor:
        """Return the way of the box on top."""
        return q[..., 14] - 0.02


class Push(Problem):
    """A servo moves a ball on a rail against a box."""

    name, about = "push", "a servo pushes a box of 0.5 kg that stands 5 cm away; friction 0.4"
    cause, outcome, trace, force = "reach of the servo [m]", "way of the box [m]", "way of the box [m]", "push [N]"
    steps, causes, chosen, pushing = 400, (0.0, 0.25), 0.15, "pusher/part/0"

    def world(self, contact: Solver) -> pb.World:
        """Return a sphere of 1 kg on a rail along x, and a box on the ground."""
        links = [Link("rail"), Link("part", 1.0, inertia=1e-3 * np.eye(3), shapes=[Shape("sphere", (0.03,))])]
        free = Limits(lower=-9.0, upper=9.0, effort=100.0)
        joint = Joint("slide", "prismatic", "rail", "part", axis=np.array([1.0, 0.0, 0.0]), limits=free)
        robot = pb.RobotModel(compile_tree(Tree("pusher", links, [joint], source="pusher")))
        world = pb.World(contact=contact)
        world.add_ground(friction=0.4)
        world.add(robot, position=(0, 0, 0.05), friction=0.0, actuators=pb.PositionServo(kp=200.0, kd=28.0))
        world.add_box("box", size=(0.1, 0.1, 0.1), mass=0.5, position=(0.13, 0.0, 0.05 - 1e-5), friction=0.4)
        return world

    def controls(self, causes: Tensor) -> Tensor:
        """Return targets that move out evenly over the first half, and stay."""
        ramp = torch.linspace(0.0, 2.0, self.steps, dtype=F64).clamp(max=1.0)
        return ramp[:, None, None] * causes[:, None]

    def followed(self, q: Tensor) -> Tensor:
        """Return the way of the box."""
        return q[..., 1] - 0.13


PROBLEMS: list[Problem] = [Drop(), Slide(), Stack(), Push()]
