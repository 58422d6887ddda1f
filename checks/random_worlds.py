"""Random worlds: trees, bodies, surfaces, actuators, solvers and states, each the same for the same seed.

Every number is bounded, and drawn from one generator in one order, so that a seed is all there is to remember:

    flight    floating robots and bodies that touch nothing, without damping, limits or drives
    passive   bodies and undriven robots that fall on planes and on each other
    driven    robots under actuators of all kinds, among bodies and walls
    chaos     anything, thin shapes and deep overlaps included
    crowded   as chaos, with room for fewer contacts than there may be
    violent   as driven, with speeds and gains that no step can follow

All but flights may have what `checks/random_extras.py` draws besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

import pullback as pb
from checks.random_extras import Extras
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Pose, Shape, ShapeType, Tree
from pullback.rigid.world.integrators import Impacts
from pullback.rigid.world.items import Placed, item_q

Tensor = torch.Tensor
KINDS = ("flight", "passive", "driven", "chaos", "crowded", "violent")
SHARES = (0.1, 0.25, 0.25, 0.25, 0.1, 0.05)
JOINTS = ("revolute", "continuous", "prismatic", "ball", "fixed", "planar", "floating")
SETTLING = 0.2
"""Seconds."""
ATTEMPTS = 5
"""To find a state in which things touch and do not overlap."""
UP = np.array([0.0, 0.0, 1.0])
JOINT_SHARES = (0.34, 0.1, 0.2, 0.14, 0.14, 0.04, 0.04)


@dataclass
class RandomWorld:
    """A world, how it is simulated, where its copies start and what drives them."""

    seed: int
    kind: str
    world: pb.World
    sim: pb.Sim
    state: pb.State
    controls: Tensor
    """(T, B, nu)"""
    per_world: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """What differs between worlds (B, ...): by shape name and quantity; gravity under the empty name."""
    plain: bool = False
    """Whether it was drawn without extras."""
    extras: tuple[str, ...] = ()
    """Those it has."""

    @property
    def worlds(self) -> int:
        """The number of copies side by side."""
        return self.state.q.shape[0]

    def spread(self, index: Tensor) -> None:
        """Let row k of a batch be a copy of world index[k], for all that differs between worlds."""
        for name, values in self.per_world.items():
            given = {quantity: value[index] for quantity, value in values.items()}
            if name:
                self.world.set_shape(name, **given)
            else:
                self.world.gravity = given["gravity"]

    def describe(self) -> str:
        """Name what stands in the world and how it is solved."""
        sim, contact = self.sim, self.world.contact
        kind = ", ".join((self.kind, *self.extras))
        return f"seed {self.seed} ({kind}): {sim!r}, {contact}"


def draw(
    seed: int,
    *,
    kind: str | None = None,
    worlds: int = 16,
    steps: int = 64,
    plain: bool = False,
    impacts: Impacts = "step",
) -> RandomWorld:
    """Return the random world of a seed: `worlds` copies of it, each with a state and controls of its own.

    A plain one has primitive shapes, trees and rigid contact only.
    """
    return Drawing(seed, kind, plain=plain, impacts=impacts).world(worlds, steps)


class Drawing:
    """A generator of numbers, and of everything that is made of them."""

    def __init__(self, seed: int, kind: str | None = None, *, plain: bool = False, impacts: Impacts = "step") -> None:
        self.seed = seed
        self.impacts: Impacts = impacts
        self.rng = np.random.default_rng([seed, 2024])
        drawn = str(self.rng.choice(KINDS, p=SHARES))
        self.kind = kind or drawn
        self.wild = self.kind in ("chaos", "crowded")
        self.plain = plain
        self.extras = Extras(seed, plain=plain or self.kind == "flight")

    # -- numbers -------------------------------------------------------------------------------------------------

    def uniform(self, low: float, high: float, size: Any = None) -> Any:
        """Return numbers between two bounds."""
        return self.rng.uniform(low, high, size)

    def spread_out(self, low: float, high: float, size: Any = None) -> Any:
        """Return numbers between two bounds whose logarithms are uniform."""
        return np.exp(self.rng.uniform(np.log(low), np.log(high), size))

    def chance(self, share: float) -> bool:
        """Return True in a share of the cases."""
        return bool(self.rng.random() < share)

    def choice(self, values: Any, p: Any = None) -> Any:
        """Return one of the values."""
        return values[int(self.rng.choice(len(values), p=p))]

    def quaternion(self) -> np.ndarray:
        """Return an orientation: any, or in a third of the cases a quarter turn, so that faces lie on faces."""
        quat = self.rng.normal(size=4)
        if self.chance(1 / 3):
            axis, turns = int(self.rng.integers(3)), int(self.rng.integers(4))
            quat = np.append(np.sin(np.pi / 4 * turns) * np.eye(3)[axis], np.cos(np.pi / 4 * turns))
        return quat / np.linalg.norm(quat)

    def pose(self, reach: float) -> Pose:
        """Return a place within reach of the origin."""
        return Pose(self.uniform(-reach, reach, 3), matrix(self.quaternion()))

    # -- things --------------------------------------------------------------------------------------------------

    def shape(self) -> Shape:
        """Return a sphere, a capsule or a box; one in six is thin, one in three where the world is wild."""
        kind: ShapeType = self.choice(("sphere", "capsule", "box"))
        thin = self.chance(1 / 3 if self.wild else 1 / 6)
        smallest = 0.002 if thin else 0.03
        count = {"sphere": 1, "capsule": 2, "box": 3}[kind]
        size = self.spread_out(0.03, 0.25, count)
        if thin:
            size[int(self.rng.integers(count))] = self.spread_out(smallest, 0.02)
        friction = float(self.uniform(0.0, 1.5)) if self.chance(0.7) else None
        return Shape(kind, tuple(map(float, size)), friction=friction)

    def link(self, name: str, shapes: int) -> Link:
        """Return a link with the inertia of a box somewhere on it."""
        mass = float(self.spread_out(0.05, 5.0))
        a, b, c = self.spread_out(0.03, 0.4, 3) ** 2
        R = matrix(self.quaternion())
        inertia = mass / 12 * R @ np.diag([b + c, a + c, a + b]) @ R.T
        placed = [replace(self.extras.shape(self.shape()), origin=self.pose(0.1)) for _ in range(shapes)]
        return Link(name, mass, self.uniform(-0.05, 0.05, 3), 0.5 * (inertia + inertia.T), placed)

    def joint(self, number: int, parent: str, child: str) -> Joint:
        """Return a joint of any type; in flight nothing resists it."""
        kind = self.choice(JOINTS, JOINT_SHARES)
        axis = self.rng.normal(size=3)
        joint = Joint(f"joint{number}", kind, parent, child, self.pose(0.25), axis / np.linalg.norm(axis))
        armature, damping, friction = self.spread_out(1e-3, 0.1), self.spread_out(1e-3, 0.05), self.spread_out(0.01, 2)
        lower, upper, effort = self.uniform(-1.5, -0.05), self.uniform(0.05, 1.5), self.spread_out(0.1, 100)
        has = self.rng.random(5) < 0.4
        if has[0] and kind != "floating":
            joint.armature = float(armature)
        if self.kind == "flight" or kind in ("fixed", "floating"):
            return joint
        joint.damping = float(damping) if has[1] else 0.0
        joint.friction = float(friction) if has[2] else 0.0
        if kind in ("revolute", "prismatic"):
            scale = 0.3 if kind == "prismatic" else 1.0
            lower, upper = (float(scale * x) if has[3] else x for x in (lower, upper))
            bounds = (lower, upper) if has[3] else (-np.inf, np.inf)
            joint.limits = Limits(*bounds, effort=float(effort) if has[4] else np.inf)
        return joint

    def robot(self, name: str, dtype: torch.dtype) -> pb.RobotModel:
        """Return a tree of one to eight links, fixed or floating."""
        count = int(self.rng.integers(1, 9))
        links = [self.link("base", self.choice((0, 1)))]
        joints = []
        for k in range(count):
            parent = links[int(self.rng.integers(max(0, len(links) - 3), len(links)))].name
            links.append(self.link(f"link{k}", self.choice((0, 1, 1, 2))))
            joints.append(self.joint(k, parent, f"link{k}"))
        moves = any(joint.type != "fixed" for joint in joints)
        base = "floating" if self.kind == "flight" or not moves or self.chance(0.5) else "fixed"
        return pb.RobotModel(compile_tree(Tree(name, links, joints, source=name), base), dtype=dtype)

    def actuators(self, robot: pb.RobotModel) -> dict[str, Any]:
        """Return drives of all kinds for most of the joints with one degree of freedom."""
        if self.kind in ("flight", "passive"):
            return {}
        scale = 1e4 if self.kind == "violent" else 1.0
        chosen = {}
        for body in robot.model.bodies:
            limit = float(self.spread_out(0.5, 50)) if self.chance(0.4) else None
            gain, kp, kd = self.uniform(-3, 3), self.spread_out(1, 100), self.spread_out(0.001, 0.05)
            drive = self.choice(("torque", "position", "velocity", "none"))
            if body.kind not in ("revolute", "prismatic") or drive == "none":
                continue
            if drive == "torque":
                chosen[body.joint.name] = pb.Torque(gain=float(scale * gain), limit=limit)
            elif drive == "position":
                chosen[body.joint.name] = pb.PositionServo(float(scale * kp), float(kd), limit)
            else:
                chosen[body.joint.name] = pb.VelocityServo(float(scale * kd), limit)
        return chosen

    def surface(self) -> dict[str, Any]:
        """Return friction and restitution, each of which may be left out."""
        given: dict[str, Any] = {}
        if self.chance(0.7):
            given["friction"] = float(self.choice((0.0, self.uniform(0.0, 1.5), self.uniform(0.0, 1.5))))
        if self.chance(0.35):
            given["restitution"] = float(self.uniform(0.0, 0.9))
        return given

    def add_bodies(self, world: pb.World, count: int, *, static: bool, reach: float) -> None:
        """Add free or static spheres, capsules and boxes."""
        for k in range(count):
            shape, mass = self.shape(), float(self.spread_out(0.05, 5.0))
            options: dict[str, Any] = {"mass": mass, **self.where(reach), **self.surface()}
            if static:
                options["static"] = True
                del options["mass"]
            if self.kind == "flight":
                options["mask"] = 0
            name, numbers = f"{'wall' if static else 'body'}{k}", shape.size
            if shape.type == "sphere":
                world.add_sphere(name, radius=numbers[0], **options)
            elif shape.type == "capsule":
                world.add_capsule(name, radius=numbers[0], length=numbers[1], **options)
            else:
                world.add_box(name, size=numbers, **options)

    def where(self, reach: float) -> dict[str, Any]:
        """Return position and orientation."""
        lifted = self.uniform(-reach, reach, 3) + reach * UP
        return {"position": lifted.tolist(), "orientation": self.quaternion().tolist()}

    def solver(self, dtype: torch.dtype) -> pb.PGS:
        """Return settings of the contact solver."""
        return pb.PGS(
            iterations=self.choice((5, 20, 50, 50, 100)),
            friction=self.choice(("cone", "cone", "pyramid")),
            gradient=self.choice(("implicit", "implicit", "unrolled")),
            warm_start=self.chance(0.3),
            erp=self.choice((0.1, 0.1, 0.02, 0.3)),
            cfm=self.choice((1e-6, 1e-6, 1e-6, 1e-4, 1e-2, 0.0)),
            margin=self.choice((0.01, 0.01, 0.002, 0.03, 0.0)),
        )

    # -- the world -----------------------------------------------------------------------------------------------

    def world(self, worlds: int, steps: int) -> RandomWorld:
        """Return the world with its states and controls."""
        dtype = self.choice((torch.float64, torch.float64, torch.float32))
        gravity = self.choice(
            ((0.0, 0.0, -9.81), (0.0, 0.0, 0.0), tuple(self.uniform(-6.0, 6.0, 3))), (0.7, 0.15, 0.15)
        )
        world = pb.World(gravity=gravity, contact=self.extras.contact(self.solver(dtype)))
        alone = self.kind == "flight"
        robots = self.choice((0, 0, 1, 1, 2) if self.kind == "passive" else (0, 1, 1, 1, 2))
        bodies = int(self.rng.integers(0 if robots else 1, 4))
        for k in range(robots):
            robot = self.robot(f"robot{k}", dtype)
            options: dict[str, Any] = {**self.where(0.3), **self.surface()}
            touching: dict[str, Any] = {"mask": 0} if alone else {"self_collision": self.chance(0.4)}
            world.add(robot, name=f"robot{k}", actuators=self.actuators(robot), **options, **touching)
        self.add_bodies(world, bodies, static=False, reach=0.2 if self.wild else 0.35)
        if not alone:
            self.add_bodies(world, self.choice((0, 0, 1, 2)), static=True, reach=0.3)
        if not alone and self.chance(0.85):
            height, surface = float(self.uniform(-0.2, 0.1)), self.surface()
            if not self.extras.add_ground(world, height, surface):
                world.add_ground(height=height, **surface)
        if not alone and self.chance(0.2):
            world.add_plane("slope", position=(0.0, 0.0, -0.1), orientation=self.tilted(), **self.surface())
        self.extras.add_bodies(world, lambda: {**self.where(0.3), **self.surface()})
        self.extras.close_loops(world)
        dt = float(self.choice((1e-3, 1e-3, 2e-3, 5e-4, 5e-3)))
        substeps = self.choice((1, 1, 1, 1, 2, 3))
        room = int(self.rng.integers(1, 6)) if self.kind == "crowded" else None
        impacts: Impacts = "step" if isinstance(world.contact, pb.Compliant) else self.impacts
        sim = world.compile(dt=dt, dtype=dtype, substeps=substeps, max_contacts=room, impacts=impacts)
        controls = torch.from_numpy(self.rng.normal(size=(steps, worlds, sim.nu))).to(dtype)
        state = self.state(world, sim, worlds)
        if self.kind in ("passive", "driven") and self.chance(0.6):
            state = settled(sim, state)
        drawn = RandomWorld(self.seed, self.kind, world, sim, state, controls, plain=self.plain)
        drawn.extras = tuple(sorted(self.extras.features))
        if not alone and self.chance(0.3):
            self.make_worlds_differ(drawn)
        return drawn

    def tilted(self) -> list[float]:
        """Return an orientation whose z axis leans by up to 0.6 rad."""
        axis, angle = self.rng.normal(size=3) * (1 - UP), self.uniform(0.0, 0.6)
        return [*(np.sin(angle / 2) * axis / np.linalg.norm(axis)), np.cos(angle / 2)]

    def make_worlds_differ(self, drawn: RandomWorld) -> None:
        """Give each world its own gravity, and each shape its own friction, and sizes to free bodies."""
        like, n = drawn.state.q, drawn.worlds
        drawn.per_world[""] = {"gravity": torch.from_numpy(self.rng.normal(size=(n, 3)) - 9.81 * UP).to(like)}
        for item in drawn.world.items:
            for shape in item.shapes:
                values = {"friction": torch.from_numpy(self.uniform(0.0, 1.5, n)).to(like)}
                if item.robot is not None and "/" not in shape.name and shape.kind not in ("mesh", "field"):
                    values["size"] = torch.from_numpy(np.asarray(shape.size) * self.uniform(0.7, 1.3, (n, 1))).to(like)
                drawn.per_world[shape.name] = values
        drawn.spread(torch.arange(n))

    def state(self, world: pb.World, sim: pb.Sim, worlds: int) -> pb.State:
        """Return random states; where worlds are not wild, the best of several: without overlap, and touching."""
        best = self.any_state(world, sim, worlds)
        if self.kind in ("flight", "chaos", "crowded"):
            return best
        score = np.full(worlds, -np.inf)
        for _ in range(ATTEMPTS):
            other = self.any_state(world, sim, worlds)
            try:
                found = sim.contacts(other)
            except pb.PullbackError:  # more contacts than there is room for
                continue
            deepest = np.array([min([0.0, *(contact.gap for contact in contacts)]) for contacts in found])
            points = np.where(deepest < -1e-3, deepest, [len(contacts) for contacts in found])
            better = torch.from_numpy(points > score)[:, None]
            score = np.maximum(points, score)
            best = replace(best, q=torch.where(better, other.q, best.q), qd=torch.where(better, other.qd, best.qd))
        return best

    def any_state(self, world: pb.World, sim: pb.Sim, worlds: int) -> pb.State:
        """Return states whose joints are within their limits, mostly."""
        q, qd = np.zeros((worlds, sim.nq)), self.rng.normal(size=(worlds, sim.nv))
        speeds = {"passive": 1.0, "driven": 1.0, "flight": 3.0, "chaos": 3.0, "crowded": 1.0, "violent": 30.0}
        qd *= speeds[self.kind] * self.rng.random((worlds, 1))
        held = [end.item for loop in world.loops for end in loop.ends]
        at = 0
        for item in world.items:
            start, at = at, self.place(item, q, at)
            if any(item is other for other in held):  # where its loops are closed
                q[:, start:at] = item_q(item).numpy()
        state = pb.State(torch.from_numpy(q).to(sim.dtype), torch.from_numpy(qd).to(sim.dtype))
        if not world.contact.warm_start:
            return state
        rows = 6 * sim.arrays.max_contacts + sim.arrays.nscalar
        return replace(state, impulses=torch.zeros(worlds, rows, dtype=sim.dtype))

    def place(self, item: Placed, q: np.ndarray, at: int) -> int:
        """Write the coordinates of an item from column `at` on; return the column after them."""
        fill: dict[str, Callable[[int], np.ndarray]] = {
            "free": lambda n: np.hstack([self.positions(n), self.quaternions(n)]),
            "ball": self.quaternions,
        }
        for body in item.bodies:
            if body.kind in fill:
                values = fill[body.kind](len(q))
            else:
                limits = body.joint.limits
                low, high = max(limits.lower, -1.0), min(limits.upper, 1.0)
                over = 0.3 * (high - low) if self.wild else 0.0
                values = self.uniform(low - over, high + over, (len(q), 1))
                values *= 0.3 if body.kind == "prismatic" and not np.isfinite(limits.lower) else 1.0
            q[:, at : at + values.shape[1]] = values
            at += values.shape[1]
        return at

    def positions(self, count: int) -> np.ndarray:
        """Return places (count, 3); in some wild worlds on a lattice, so that centres and faces coincide."""
        reach = {"flight": 2.0, "passive": 0.35, "driven": 0.3}.get(self.kind, 0.2)
        places = self.uniform(-reach, reach, (count, 3)) + reach * UP
        return np.round(places, 1) if self.wild and self.chance(0.3) else places

    def quaternions(self, count: int) -> np.ndarray:
        """Return orientations (count, 4)."""
        return np.stack([self.quaternion() for _ in range(count)])


def settled(sim: pb.Sim, state: pb.State) -> pb.State:
    """Return where worlds have come to after a while, those that stayed slow."""
    steps = round(SETTLING / sim.dt)
    later = sim.rollout(state, steps, checkpoint=steps, check=False)[-1]
    slow = ((later.qd.abs() < 30.0).all(1) & (later.q.abs() < 10.0).all(1))[:, None]
    impulses = state.impulses
    if impulses is not None and later.impulses is not None:
        impulses = torch.where(slow, later.impulses, impulses)
    return pb.State(torch.where(slow, later.q, state.q), torch.where(slow, later.qd, state.qd), impulses)


def matrix(quat: np.ndarray) -> np.ndarray:
    """Return rotation matrices (..., 3, 3) of unit quaternions xyzw."""
    x, y, z, w = np.moveaxis(quat, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))
