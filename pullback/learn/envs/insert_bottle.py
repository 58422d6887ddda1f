"""Put a bottle into a socket with a UR5 in 0.3 s, the socket at rest or on a moving conveyor.

The bottle is a part of the arm's tool. The socket is a compartment of four walls and a floor, 1.5 mm wider than the
bottle on every side, on a conveyor that is a body of its own: contact between the two is that of the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.core.ranks import ranks
from pullback.description.assets.rows import X, Y, Z, box, cylinder, joint, link
from pullback.description.load import read
from pullback.description.tree import Tree
from pullback.learn.env import Env
from pullback.rigid.sim import Sim
from pullback.rigid.solvers.pgs import PGS
from pullback.rigid.state import State
from pullback.rigid.world.actuators import AffineActuator, PositionServo
from pullback.rigid.world.integrators import Part
from pullback.rigid.world.world import World
from pullback.robot.ik import inverse_kinematics
from pullback.robot.load import load

Tensor = torch.Tensor

RADIUS, LENGTH, GRIP = 0.03, 0.18, 0.02
"""Of the bottle [m]; it begins at `GRIP` from the flange."""
BOTTLE_MASS = 0.5
CLEARANCE = 1.5e-3
"""Between the bottle and each wall [m]."""
MARGIN = 1.2e-3
"""From where on contacts are sought [m]: less than the clearance, more than the bottle moves in a substep."""
DEPTH, BELOW, WALL = 0.06, 2e-3, 0.04
"""How deep the bottle goes in [m], how far the floor is below it then, how thick walls and floor are."""
HOME = (0.0, -1.5, 1.62, -1.5 * pi + 3.02159265, -0.5 * pi, 0.0)
"""The joints [rad] at the start: the bottle hangs upright above the middle of the targets."""
DOWN = (-(0.5**0.5), 0.5**0.5, 0.0, 0.0)
"""The bottle's orientation when it stands: quaternion xyzw of its frame, whose z axis points down."""
MIDDLE = (0.50, 0.10915, 0.08)
"""The middle of the targets [m]: where the bottle's foot is to be."""
REACH = (0.05, 0.05, 0.02)
"""How far targets at the end are from the middle [m], at most."""
CONVEYOR_SPEED = 0.2
"""The most that a moving socket travels [m/s], along y, either way."""
CONVEYOR_MASS = 1e4
"""Of the conveyor [kg]: heavy enough that the bottle does not push it."""
RANGE = 0.06
"""How far from the reference a servo's target is for an action of 1 [rad]."""
ACROSS, DOWNWARDS = (0.0, 0.5), (0.25, 1.0)
"""When the reference moves over the socket, and when down into it: fractions of the time."""
STIFFNESS, DAMPING = (4000.0, 4000.0, 3000.0, 600.0, 400.0, 200.0), (260.0, 260.0, 160.0, 30.0, 20.0, 8.0)
"""Of the servos [N·m/rad, N·m·s/rad]."""
SPEED_LIMIT = 3.0
"""What joint velocities should stay below [rad/s]; the arm's own limits are 3.15 and 3.2."""
START_NOISE, SPEED_NOISE = 0.02, 0.05
"""Of joints at the start [rad, rad/s]: drawn evenly between plus and minus this."""


@dataclass(frozen=True)
class Weights:
    """What the terms of the loss of an episode weigh."""

    smooth: float = 2e-3
    """Of the sum of squared joint velocities [s²/rad²], over the number of steps."""
    overspeed: float = 1.0
    """Of the squares of what joint velocities exceed `SPEED_LIMIT` by [s²/rad²], over the number of steps."""
    distance: float = 0.1
    """Of the distance from the goal at the end [1/mm]."""
    angle: float = 0.1
    """Of the angle to the goal's orientation at the end [1/degree]."""
    speed: float = 2.0
    """Of the speed against the target at the end [s/m]."""
    penetration: float = 0.5
    """Of the depth of points of the bottle in walls, a margin included [1/mm], over the number of steps."""
    margin: float = 0.5
    """By how much walls are thought thicker [mm]."""
    rim: float = 8.0
    """By how much they are thought taller [mm]: the bottle comes down by 6 mm from one look to the next."""
    rounding: float = 0.5
    """Below which distance [mm] and angle [degrees] pull less the smaller they are: those far off come first."""


class InsertBottle(Env):
    """A UR5 with position servos that holds a bottle, and a socket on a conveyor."""

    dt = 0.01
    # the bottle comes down at a metre a second: in a substep less than the clearance, or walls beside it are felt
    substeps = 10
    episode = 30

    def __init__(
        self,
        worlds: int = 64,
        *,
        moving: bool | float = False,
        steps: int = 30,
        noise: float = 0.0,
        contacts: bool = True,
        shaped: bool = True,
        **options: Any,
    ) -> None:
        """Make the worlds.

        moving: whether sockets move, or which fraction of them does. steps: how many steps of 10 ms there are. noise:
        standard deviation of what is added to observed joints [rad]; ten times that to their velocities [rad/s].
        contacts: without them walls are felt by the reward alone, for the first part of a training.
        shaped: whether rewards tell in every step how much closer the bottle came, or at the end how close it is.
        """
        if not 0.0 <= float(moving) <= 1.0:
            raise PullbackError(f"moving is {moving!r}; give False, True, or the fraction of sockets that move")
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise PullbackError(f"steps is {steps!r}; give the number of steps of 10 ms, 1 or more")
        if not noise >= 0.0:
            raise PullbackError(f"noise is {noise!r}; give a standard deviation [rad], 0 for none")
        self.moving, self.noise, self.contacts = float(moving), noise, contacts
        self.episode = steps  # pyright: ignore[reportAttributeAccessIssue]  # differs between instances here
        self.shaped = shaped
        self.weights = Weights()
        super().__init__(worlds, **options)

    @property
    def options(self) -> dict[str, Any]:
        """What makes this environment differ from others of its class."""
        return {"moving": self.moving, "noise": self.noise, "contacts": self.contacts, "shaped": self.shaped}

    @property
    def action_size(self) -> int:
        """The joints of the arm; the conveyor goes by itself."""
        return 6

    def build(self) -> World:
        """Return the arm and the conveyor; nothing but bottle and socket can touch."""
        world = World(contact=PGS(margin=MARGIN))
        servos = {
            name: PositionServo(kp=kp, kd=kd)
            for name, kp, kd in zip([j.name for j in read("ur5").joints[:6]], STIFFNESS, DAMPING)
        }
        world.add(
            load(arm(), dtype=self.dtype), name="ur5", q=torch.tensor(HOME, dtype=self.dtype), actuators=servos,
            collision_links=["bottle"], friction=0.3,
        )  # fmt: skip
        # the weight of what lifts the socket is balanced
        lift = AffineActuator(gain=0.0, bias=9.81 * CONVEYOR_MASS)
        world.add(
            load(conveyor(), dtype=self.dtype), name="conveyor", actuators={"z": lift}, friction=0.3,
            q=torch.tensor(MIDDLE, dtype=self.dtype),
        )  # fmt: skip
        return world

    def compile(self, world: World) -> Sim:
        """Return the simulation, and the constants that observations and rewards look at."""
        self.home, self.down = (torch.tensor(x, dtype=self.dtype, device=self.device) for x in (HOME, DOWN))
        self.foot = foot_points(self.dtype, self.device)
        robot = load(arm(), dtype=torch.float64)
        home, place, down = (torch.tensor(x, dtype=torch.float64) for x in (HOME, MIDDLE, DOWN))
        goal = inverse_kinematics(
            robot, "bottle", place, down, q0=home, restarts=1, position_tolerance=1e-7, rotation_tolerance=1e-7
        ).q
        # joints by metre of the foot, to first order and without turning it
        steer = torch.linalg.inv(torch.cat(robot.compute_endeffector_jacobian(goal, "bottle")))[:, :3]
        # a servo follows a target that is ahead by damping, weight and inertia over its stiffness
        rest, stiffness = torch.zeros(6, dtype=torch.float64), torch.tensor(STIFFNESS, dtype=torch.float64)
        sags = [robot.compute_inverse_dynamics(q, rest, rest) / stiffness for q in (home, goal)]
        inertia = robot.compute_lagrangian_inertia_matrix(0.5 * (home + goal)) / stiffness[:, None]
        lead = torch.tensor(DAMPING, dtype=torch.float64) / stiffness
        self._fall, self._steer, self._middle = (x.to(self.home) for x in (goal - home, steer, place))
        self._sags = [x.to(self.home) for x in sags]
        self._lead, self._inertia = lead.to(self.home), inertia.to(self.home)
        without: list[Part] = [] if self.contacts else ["contacts"]
        return world.compile(dt=self.dt, substeps=self.substeps, dtype=self.dtype, device=self.device, without=without)

    def start(self) -> tuple[Tensor, Tensor]:
        """Hang near home, almost at rest; the socket will be within reach at the end."""
        joints = self.home + self.uniform(-START_NOISE, START_NOISE, 6)
        speed = self.uniform(-CONVEYOR_SPEED, CONVEYOR_SPEED, 1)
        speed = torch.where(self.uniform(0.0, 1.0, 1) < self.moving, speed, torch.zeros_like(speed))
        velocity = torch.nn.functional.pad(speed, (1, 1))
        end = self.uniform([m - r for m, r in zip(MIDDLE, REACH)], [m + r for m, r in zip(MIDDLE, REACH)], 3)
        target = end - self.episode * self.dt * velocity
        rates = self.uniform(-SPEED_NOISE, SPEED_NOISE, 6)
        return torch.cat([joints, target], 1), torch.cat([rates, velocity], 1)

    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return joints and rates, the target's position and velocity, and the fraction of time that has passed."""
        joints, rates = state.q[:, :6], state.qd[:, :6]
        if self.noise > 0.0:
            shape, own = (2, self.all_worlds, 6), ranks().own(self.all_worlds)
            drawn = torch.randn(shape, dtype=self.dtype, device=self.device, generator=self.random)[:, own]
            joints, rates = joints + self.noise * drawn[0], rates + 10 * self.noise * drawn[1]
        time = (self.steps / self.episode).to(joints)[:, None]
        return torch.cat([joints, rates, state.q[:, 6:9], state.qd[:, 6:9], time], 1)

    def control(self, action: Tensor) -> Tensor:
        """Return the targets of the servos [rad], reference plus action, and nothing for the lift."""
        return torch.nn.functional.pad(self.reference() + RANGE * action, (0, 1))

    def reference(self) -> Tensor:
        """Return where servos would be sent (B, 6) by one linear map from the target's place to joints.

        Over the socket, wherever it is by then, and down into it, along two smooth curves of time. Map, weight and
        inertia are those of the middle of the targets; a few centimetres aside they are wrong by millimetres and
        degrees, and nothing is known of walls and of where the arm starts: all that is left to the policy.
        """
        state = self.state
        velocity = state.qd[:, 6:9].detach()
        # in the middle of the step to come
        away = state.q[:, 6:9].detach() + 0.5 * self.dt * velocity - self._middle
        time = (self.steps.to(state.q)[:, None] + 0.5) / self.episode
        duration = self.episode * self.dt
        over, speed = away[:, :2] @ self._steer[:, :2].T, velocity[:, :2] @ self._steer[:, :2].T
        down = self._fall + away[:, 2:] @ self._steer[:, 2:].T
        a, da, dda = _curve(time, ACROSS, duration)
        b, db, ddb = _curve(time, DOWNWARDS, duration)
        joints = self.home + a * over + b * down
        rates = da * over + a * speed + db * down
        accelerations = dda * over + 2.0 * da * speed + ddb * down
        sag = self._sags[0] + b * (self._sags[1] - self._sags[0])
        return joints + rates * self._lead + accelerations @ self._inertia.T + sag

    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return minus the loss of a step: joint speeds, what is too close to walls, and at the end the goal's error.

        Shaped, every step has what the goal's error fell by: sums over an episode differ by a constant of the start.
        """
        weights, rates = self.weights, after.qd[:, :6]
        smooth = weights.smooth * rates.square().sum(1)
        fast = weights.overspeed * (rates.abs() - SPEED_LIMIT).relu().square().sum(1)
        near = weights.penetration * 1e3 * self.encroachment(after)
        loss = (smooth + fast + near) / self.episode
        if self.shaped:
            return self.goal_error(before) - self.goal_error(after) - loss
        ends = self.steps + 1 == self.episode
        return -loss - torch.where(ends, self.goal_error(after), torch.zeros_like(loss)) if bool(ends.any()) else -loss

    def typical(self, count: int = 4096) -> Tensor:
        """Return observations (count, 19) spread over what a motion may come by, for a normaliser."""
        middle = torch.cat([self.home, self.home.new_tensor([0.0] * 6 + [*MIDDLE] + [0.0] * 3 + [0.5])])
        spread = [0.25] * 6 + [1.5] * 6 + [*REACH] + [CONVEYOR_SPEED] * 3 + [0.5]
        drawn = torch.rand(count, len(spread), dtype=self.dtype, device=self.device, generator=self.random)
        return middle + middle.new_tensor(spread) * (2.0 * drawn - 1.0)

    # -- what is measured ------------------------------------------------------------------------------------------

    def goal_error(self, state: State) -> Tensor:
        """Return the weighted distance, angle and speed (B,) against the goal, in which sharp minima are rounded."""
        weights = self.weights
        offset, angle, speed = self._offsets(state)
        # sideways and upwards apart: whatever is left of the one, the other pulls as much
        aside, above = _length(offset[:, :2]), offset[:, 2]
        return (
            weights.distance * sum(_rounded(1e3 * x, weights.rounding) for x in (aside, above))
            + weights.angle * _rounded(180 / pi * angle, weights.rounding)
            + weights.speed * _rounded(speed, 0.01)
        )

    def errors(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return distance [m], angle [rad] and speed [m/s] (B,) of the bottle's foot against where it is to be."""
        offset, angle, speed = self._offsets(state)
        return _length(offset), angle, speed

    def _offsets(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return how far the bottle's foot is from where it is to be [m], (B, 3), and angle and speed as `errors`."""
        position, quat = self.sim.link_poses(state, ["ur5/bottle"])
        velocity, _ = self.sim.link_velocities(state, ["ur5/bottle"])
        offset = position[:, 0] - state.q[:, 6:9]
        speed = _length(velocity[:, 0] - state.qd[:, 6:9])
        # the vector part of the rotation from the goal: sine of half the angle
        turned = _length(_vector_part(self.down, quat[:, 0]))
        return offset, 2.0 * turned.clamp(max=1.0).asin(), speed

    def encroachment(self, state: State) -> Tensor:
        """Return how deep points of the bottle are in walls made thicker and taller [m], (B,), added up.

        Walls are no more than the simulation's contact keeps the bottle out of; this says it before they touch.
        """
        position, quat = self.sim.link_poses(state, ["ur5/bottle"])
        points = position + _rotated(quat, self.foot) - state.q[:, None, 6:9]
        margin = 1e-3 * self.weights.margin
        aside = points[..., :2].abs().amax(-1) - (RADIUS + CLEARANCE - margin)
        below = DEPTH + 1e-3 * self.weights.rim - points[..., 2]
        return torch.minimum(aside, below).relu().sum(1)

    def deepest(self, state: State) -> Tensor:
        """Return the deepest penetration of bottle and socket [m], (B,), by the simulation's own contacts."""
        contacts = self.sim.contact_tensors(state)
        gap = torch.where(contacts.pair >= 0, contacts.gap, torch.zeros_like(contacts.gap))
        return (-gap).clamp(min=0.0).amax(1)


def arm() -> Tree:
    """Return the UR5 with the bottle at its flange; the frame `bottle` is at its foot, z along its axis."""
    tree = read("ur5")
    along = LENGTH**2 / 12 + RADIUS**2 / 4
    moments = (BOTTLE_MASS * along, BOTTLE_MASS * along, BOTTLE_MASS * RADIUS**2 / 2)
    body = cylinder(RADIUS, (0, 0, -LENGTH), (0, 0, 0))
    tree.links.append(link("bottle", BOTTLE_MASS, (0, 0, -LENGTH / 2), moments, body))
    tree.joints.append(joint("grip", "fixed", "tool0", "bottle", (0, 0, GRIP + LENGTH)))
    return tree


def conveyor() -> Tree:
    """Return a socket that can be anywhere and moves on; its frame is where the bottle's foot is to be."""
    inner, outer = RADIUS + CLEARANCE, RADIUS + CLEARANCE + WALL
    height, middle = DEPTH + BELOW, 0.5 * (DEPTH - BELOW)
    aside = (inner + outer) / 2
    walls = [box((WALL, 2 * outer, height), (sign * aside, 0, middle)) for sign in (-1, 1)]
    walls += [box((2 * inner, WALL, height), (0, sign * aside, middle)) for sign in (-1, 1)]
    floor = box((2 * outer, 2 * outer, WALL), (0, 0, -BELOW - WALL / 2))
    inertia = (1.0, 1.0, 1.0)
    links = [link("ground"), link("across", 1.0, inertia=inertia), link("along", 1.0, inertia=inertia)]
    links.append(link("socket", CONVEYOR_MASS, (0, 0, 0), inertia, *walls, floor))
    joints = [
        joint("x", "prismatic", "ground", "across", axis=X),
        joint("y", "prismatic", "across", "along", axis=Y),
        joint("z", "prismatic", "along", "socket", axis=Z),
    ]
    return Tree("conveyor", links, joints, source="conveyor")


def foot_points(dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return points (60, 3) of the bottle that may be too close to a wall: its lower edge, and rings above it.

    The rings are as close as a tilted bottle needs: it wedges at the mouth, at whatever height that is.
    """
    angle = np.linspace(0.0, 2 * pi, 12, endpoint=False)
    ring = np.stack([RADIUS * np.cos(angle), RADIUS * np.sin(angle), np.zeros_like(angle)], -1)
    points = np.concatenate([ring - [0.0, 0.0, share * DEPTH] for share in (0.0, 0.25, 0.5, 0.75, 1.0)])
    return torch.tensor(points, dtype=dtype, device=device)


def _curve(time: Tensor, when: tuple[float, float], duration: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return a fifth-order curve from 0 to 1 between two fractions of a duration [s], and its two derivatives."""
    length = when[1] - when[0]
    x, scale = ((time - when[0]) / length).clamp(0.0, 1.0), 1.0 / (length * duration)
    value = x**3 * (10.0 - 15.0 * x + 6.0 * x**2)
    first = 30.0 * x**2 * (1.0 - x) ** 2
    second = 60.0 * x * (1.0 - x) * (1.0 - 2.0 * x)
    return value, scale * first, scale**2 * second


def _length(x: Tensor) -> Tensor:
    """Return the length of vectors, with a gradient at zero."""
    return (x.square().sum(-1) + 1e-16).sqrt()


def _rounded(x: Tensor, width: float) -> Tensor:
    """Return |x|, rounded where it is below a width."""
    return (x.square() + width**2).sqrt()


def _vector_part(goal: Tensor, quat: Tensor) -> Tensor:
    """Return the vector part (B, 3) of the rotation between quaternions xyzw (4,) and (B, 4)."""
    a, b = goal.expand_as(quat), quat
    return a[:, 3:] * b[:, :3] - b[:, 3:] * a[:, :3] - torch.linalg.cross(a[:, :3], b[:, :3])


def _rotated(quat: Tensor, points: Tensor) -> Tensor:
    """Return points (n, 3) turned by quaternions xyzw (B, 1, 4), as (B, n, 3)."""
    axis, w = quat[..., :3].expand(-1, len(points), -1), quat[..., 3:]
    twice = 2.0 * torch.linalg.cross(axis, points.expand_as(axis))
    return points + w * twice + torch.linalg.cross(axis, twice)
