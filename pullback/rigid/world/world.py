"""A world as a user describes it: robots, free bodies, ground and walls, and how they touch."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pullback.core.device import find_device
from pullback.core.errors import PullbackError, SimulationWarning, unknown_name
from pullback.description.tree import LoopKind
from pullback.rigid.solvers.pgs import PGS
from pullback.rigid.solvers.solver import Solver
from pullback.rigid.world.actuators import Actuator
from pullback.rigid.world.couplings import JointCoupling, couple_joints, described_couplings
from pullback.rigid.world.integrators import Damping, Impacts, Integrator, Part, check_integration
from pullback.rigid.world.items import (
    Actuators,
    CollisionShape,
    Missing,
    is_missing,
    item_q,
    joint_actuators,
    place,
    set_surface,
    shape_of_link,
)
from pullback.rigid.world.loops import ClosedLoop, close_loop, described_loops
from pullback.rigid.world.shapes import EVERYTHING, SHAPE_KINDS, Bodies
from pullback.rigid.world.values import Given, Tensor, Value, check_quaternion, check_single, check_switch, check_value
from pullback.robot.model import STANDARD_GRAVITY, RobotModel

if TYPE_CHECKING:
    from pullback.rigid.sim import Sim

# a world has room for the rows of so many in scratch
MAX_CONTACTS = 10_000
# a step [s] that was probably meant in milliseconds
LONG_STEP = 0.2
# plans of rollouts are written out by substeps
MAX_SUBSTEPS = 10_000


class World(Bodies):
    """A scene: what stands in it, gravity [m/s²], and how contact is computed.

    `compile` makes a simulation of it. Values that are tensors stay connected: gradients reach them, and changing them,
    in place or by `set_shape` and `set_actuators`, changes the simulation.
    """

    def __init__(self, *, gravity: Given = STANDARD_GRAVITY, contact: Solver | None = None) -> None:
        super().__init__()
        self.loops: list[ClosedLoop] = []
        self.couplings: list[JointCoupling] = []
        if contact is not None and not isinstance(contact, Solver):
            raise PullbackError(f"contact is a {type(contact).__name__}; give a solver, such as pb.PGS() or pb.Exact()")
        self.contact = PGS() if contact is None else contact
        self.gravity = gravity

    def __repr__(self) -> str:
        """Name what stands in it."""
        robots = [i.name for i in self.items if i.robot is not None]
        static = [i.name for i in self.items if i.robot is None]
        few = ", ".join(robots[:6]) + (", ..." if len(robots) > 6 else "")
        size = f"{len(robots)} robots and bodies ({few})" if robots else "no robots or bodies"
        return f"World({size}, {len(static)} static shapes, contact={type(self.contact).__name__})"

    @property
    def gravity(self) -> Value:
        """The acceleration of free fall [m/s²], (3,) or (B, 3)."""
        return self._gravity

    @gravity.setter
    def gravity(self, gravity: Given) -> None:
        self._gravity = check_value("gravity", gravity, (3,))
        self.version += 1

    @property
    def robots(self) -> dict[str, RobotModel]:
        """All robots and free bodies by name; free bodies are robots of one link."""
        return {item.name: item.robot for item in self.items if item.robot is not None}

    @property
    def shape_names(self) -> list[str]:
        """The names of all collision shapes: `robot/link/number`, or the name of a free or static body."""
        return [shape.name for item in self.items for shape in item.shapes]

    @property
    def actuator_names(self) -> list[str]:
        """The entries of the control u in order: `robot/joint`."""
        return [f"{item.name}/{joint}" for item in self.items for joint in item.actuators]

    @property
    def actuators(self) -> list[Actuator]:
        """What drives the entries of the control u, in order."""
        return [actuator for item in self.items for actuator in item.actuators.values()]

    # -- putting things in ---------------------------------------------------------------------------------------

    def add(
        self,
        robot: RobotModel,
        *,
        name: str | None = None,
        position: Sequence[float] | None = None,
        orientation: Sequence[float] | None = None,
        q: Mapping[str, Given] | Tensor | None = None,
        actuators: Actuators = None,
        friction: Given | None = None,
        restitution: Given | None = None,
        self_collision: bool = False,
        collision_links: Sequence[str] | None = None,
        missing_meshes: Missing = "error",
        group: int = 1,
        mask: int = EVERYTHING,
    ) -> str:
        """Add a robot and return its name.

        A robot with a fixed base stands at `position` [m] and `orientation` (xyzw), a floating one starts there, by
        default where the description has it. `q` is where its joints start: names with values, or all coordinates
        (nq,). `actuators`: one for all joints with one degree of freedom, or a dict by the names of joints, or of
        actuators of the description; by default those of the description, forces on all joints if it has none. Mimic
        joints are driven only where a dict or the description names them. `friction` and `restitution` replace those of
        all its shapes. `collision_links` are the links whose shapes take part, all by default;
        `missing_meshes="ignore"` leaves out meshes without a file.
        Two shapes may touch if each one's `group` is in the other's `mask`.
        """
        if not isinstance(robot, RobotModel):
            raise PullbackError(f"add takes a robot, got a {type(robot).__name__}; for instance pb.load('panda')")
        model = robot.model
        name = self._fresh(model.tree.name) if name is None else self._free_name(name)
        if missing_meshes not in ("error", "ignore"):
            raise PullbackError(f"missing_meshes is {missing_meshes!r}; choose 'error' or 'ignore'")
        if isinstance(q, Tensor) and model.base == "floating" and (position is not None or orientation is not None):
            raise PullbackError(f"{name!r}: q holds the place of the floating base; leave out position and orientation")
        if not (collision_links is None or isinstance(collision_links, (list, tuple, set, frozenset))):
            raise PullbackError(
                f"collision_links is {collision_links!r}; give a list of names of links, or None for all"
            )
        links = range(len(model.links)) if collision_links is None else sorted(map(robot.link_number, collision_links))
        if position is None and orientation is None and model.base == "floating":
            start = robot.initial_q().tolist()
            position, orientation = start[:3], start[3:7]
        item = place(name, robot, position, orientation, group, mask)
        for link in links:
            for number, shape in enumerate(model.links[link].shapes):
                if missing_meshes == "ignore" and is_missing(shape):
                    continue
                item.shapes.append(shape_of_link(f"{name}/{model.links[link].name}/{number}", shape, robot, link))
        set_surface(item.shapes, friction, restitution, name)
        item.self_collision = check_switch(f"self_collision of {name!r}", self_collision)
        item.actuators = joint_actuators(name, robot, actuators)
        item.q = q
        item_q(item)
        self._append(item)
        self.loops += described_loops(item)
        self.couplings += described_couplings(item)
        return name

    # -- loops and couplings -------------------------------------------------------------------------------------

    def connect(self, a: str, b: str | None = None, **frames: Given | None) -> str:
        """Hold a point of link a and one of link b together, `robot/link` each; the world if there is no b.

        `position_a` [m] is the point on a, by default its origin, `position_b` that on b, by default where it meets a's
        at the start. Returns the loop's name.
        """
        return self._close("connect", a, b, frames)

    def hinge(self, a: str, b: str | None = None, *, axis: Sequence[float], **frames: Given | None) -> str:
        """Hold two links together by a hinge about `axis`, a direction on a; see `connect`."""
        return self._close("hinge", a, b, {"axis": axis, **frames})

    def weld(self, a: str, b: str | None = None, **frames: Given | None) -> str:
        """Hold frames of two links together, with `orientation_a` and `orientation_b` (xyzw); see `connect`."""
        return self._close("weld", a, b, frames)

    def _close(self, kind: LoopKind, a: str, b: str | None, frames: dict[str, Given | None]) -> str:
        self.loops.append(close_loop(self.items, kind, a, b, frames))
        self.version += 1
        return self.loops[-1].name

    def couple(self, follower: str, leader: str, *, multiplier: Given = 1.0, offset: Given | None = None) -> str:
        """Let a joint follow another, as gears do: q_follower = multiplier q_leader + offset; `robot/joint` each.

        Both have one degree of freedom. The numbers are (), or (B,) with one for each world; without an offset the
        joints are coupled as they stand at the start. Returns the coupling's name.
        """
        self.couplings.append(couple_joints(self.items, follower, leader, multiplier, offset))
        self.version += 1
        return self.couplings[-1].name

    # -- changing what is there ----------------------------------------------------------------------------------

    def set_shape(
        self,
        name: str,
        *,
        size: Given | None = None,
        position: Given | None = None,
        orientation: Given | None = None,
        friction: Given | None = None,
        restitution: Given | None = None,
    ) -> None:
        """Change a collision shape, or all below a name: `dog/toeFL/0`, `dog/toeFL`, `dog`.

        `size` [m]: the numbers that `add_sphere`, `add_box`, ... take, in their order; `position` [m] (3,) and
        `orientation` (xyzw) on the link, or in the world for a static shape. A leading dimension is one for each world.
        """
        shapes = [s for i in self.items for s in i.shapes if s.name == name or s.name.startswith(f"{name}/")]
        if not shapes or not isinstance(name, str):
            raise unknown_name("shape", name, self.shape_names)
        changes: dict[str, Value] = {}
        if size is not None:
            changes["size"] = _check_size(shapes, size)
        if position is not None:
            changes["position"] = check_value(f"position of {name!r}", position, (3,))
        if orientation is not None:
            changes["orientation"] = check_quaternion(f"orientation of {name!r}", orientation)
        set_surface(shapes, friction, restitution, name)
        for shape in shapes:
            for field, value in changes.items():
                setattr(shape, field, value)
        self.version += 1

    def set_actuators(self, name: str, actuators: Actuators) -> None:
        """Replace the actuators of a robot; a compiled simulation goes on only if they drive the same joints."""
        item = next((i for i in self.items if i.name == name and i.robot is not None), None)
        if item is None or item.robot is None:
            raise unknown_name("robot", name, self.robots)
        item.actuators = joint_actuators(name, item.robot, actuators)
        self.version += 1

    # -- ready to move -------------------------------------------------------------------------------------------

    def initial_q(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Tensor:
        """Return the coordinates (nq,) that the world starts from: robots and free bodies where they were put."""
        pieces = [item_q(item).to(dtype=dtype or torch.get_default_dtype(), device=device) for item in self.items]
        return torch.cat([torch.zeros(0, dtype=dtype, device=device), *pieces])

    def compile(
        self,
        *,
        dt: float,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        substeps: int = 1,
        max_contacts: int | None = None,
        damping: Damping | None = None,
        integrator: Integrator = "semi_implicit",
        impacts: Impacts = "step",
        without: Collection[Part] = (),
    ) -> Sim:
        """Return the simulation of this world with steps of `dt` [s], each of `substeps` smaller ones.

        `max_contacts` is how many contacts a world has room for; by default a bound by its shapes. Joint
        damping and servos' kp and kd act at the state after the step, which is stable however stiff they are;
        `damping="explicit"` takes them at the state before it, as the integrators without contact do always.
        `integrator="rk4"`, of fourth order, `"midpoint"`, symplectic and of second order, and `"explicit"`, Euler's,
        are for motion without contact, joint limits and dry friction; `without=["contacts", "limits", "friction"]`
        leaves any of these out. `without=["tree_energy"]` leaves out what keeps the energy of trees that turn fast: the
        default steps are then those of plain semi-implicit Euler, as MuJoCo's. `impacts="split"` splits a step where
        something touches, so that gradients through impacts are those of the physics (docs/impacts.md); `"step"`
        computes an impact where a step starts.
        """
        from pullback.rigid.sim import Sim

        check_single("dt", dt, above=0.0)
        for what, number, least in (("substeps", substeps, 1), ("max_contacts", max_contacts, 0)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
                raise PullbackError(f"{what} is {number!r}; give a whole number from {least} on")
        if max_contacts is not None and max_contacts > MAX_CONTACTS:
            raise PullbackError(f"max_contacts is {max_contacts:,}; at most {MAX_CONTACTS:,}")
        if substeps > MAX_SUBSTEPS:
            raise PullbackError(f"substeps is {substeps:,}; at most {MAX_SUBSTEPS:,}: give a smaller dt instead")
        check_integration(integrator, damping, impacts, without)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if not any(dtype is each for each in (torch.float32, torch.float64)):
            raise PullbackError(f"dtype is {dtype}; a world computes in torch.float32 or torch.float64")
        if dt / substeps > LONG_STEP:
            warnings.warn(
                f"dt is {dt:g} s in {substeps} substep(s); simulations with contact take steps of 1 to 10 ms, "
                f"dt=0.001 to dt=0.01 [s]",
                SimulationWarning,
                stacklevel=2,
            )
        options: dict[str, Any] = {"substeps": substeps, "max_contacts": max_contacts, "damping": damping}
        options |= {"integrator": integrator, "impacts": impacts, "without": without}
        return Sim(self, dt=dt, dtype=dtype, device=find_device(device), **options)

    def _fresh(self, name: str) -> str:
        name, taken, number = name.replace("/", "_"), {item.name for item in self.items}, 2
        fresh = name
        while fresh in taken:
            fresh, number = f"{name}_{number}", number + 1
        return fresh


def _check_size(shapes: Sequence[CollisionShape], size: Given) -> Value:
    """Return a size that all of the shapes can have."""
    for shape in shapes:
        numbers = len(SHAPE_KINDS[shape.kind].sizes)
        if not numbers:
            raise PullbackError(f"the size of {shape.name!r} cannot be set: it is a {shape.kind}")
        check_value(f"size of {shape.name!r}, a {shape.kind},", size, (numbers,), above=0.0)
    return check_value(f"size of {shapes[0].name!r}", size, (len(SHAPE_KINDS[shapes[0].kind].sizes),))
