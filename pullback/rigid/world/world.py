"""A world as a user describes it: robots, free bodies, ground and walls, and how they touch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pullback import sdf
from pullback.core.errors import PullbackError, unknown_name
from pullback.description.compile import WORLD, compile_tree
from pullback.description.tree import Link, LoopKind, Shape, Tree
from pullback.rigid.collide.convex.hulls import VERTEX_BUDGET, Hull, convex_hull, hull_of_file
from pullback.rigid.solvers.pgs import PGS
from pullback.rigid.solvers.solver import Solver
from pullback.rigid.world.actuators import Actuator
from pullback.rigid.world.integrators import Damping, Integrator, Part, check_integration
from pullback.rigid.world.items import (
    Actuators,
    CollisionShape,
    Missing,
    Placed,
    collision_shape,
    constant,
    item_q,
    joint_actuators,
    place,
    set_surface,
    shape_of_link,
)
from pullback.rigid.world.loops import ClosedLoop, close_loop, described_loops
from pullback.rigid.world.values import Given, Tensor, Value, check_quaternion, check_value
from pullback.robot.model import STANDARD_GRAVITY, RobotModel
from pullback.sdf.program import Program, compile_shape

if TYPE_CHECKING:
    from pullback.rigid.sim import Sim

EVERYTHING = -1
SIZES: dict[str, int] = {"sphere": 1, "capsule": 2, "box": 3, "cylinder": 2, "mesh": 1, "plane": 0, "field": 0}
"""The shapes that can touch, and how many numbers make up their size."""


class World:
    """A scene: what stands in it, gravity [m/s²], and how contact is computed.

    `compile` makes a simulation of it. Values that are tensors stay connected: gradients reach them, and changing them,
    in place or by `set_shape` and `set_actuators`, changes the simulation.
    """

    def __init__(self, *, gravity: Given = STANDARD_GRAVITY, contact: Solver | None = None) -> None:
        self.version = 0
        self.items: list[Placed] = []
        self.loops: list[ClosedLoop] = []
        self.contact = contact or PGS()
        self.gravity = gravity

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

        A robot with a fixed base stands at `position` [m] and `orientation` (xyzw), a floating one starts there. `q` is
        where its joints start: names with values, or all coordinates (nq,). `actuators`: one for all joints with one
        degree of freedom, or a dict by joint name; by default forces on the joints that the description has actuators
        for, on all if it has none. `friction` and `restitution` replace those of all its shapes. `collision_links` are
        the links whose shapes take part, all by default; `missing_meshes="ignore"` leaves out meshes without a file.
        Two shapes may touch if each one's `group` is in the other's `mask`.
        """
        if not isinstance(robot, RobotModel):
            raise PullbackError(f"add takes a robot, got a {type(robot).__name__}; for instance pb.load('panda')")
        model = robot.model
        name = self._fresh(model.tree.name) if name is None else self._free_name(name)
        if model.coupling is not None:
            mimics = ", ".join(repr(b.joint.name) for b in model.bodies if b.joint.mimic is not None)
            raise PullbackError(f"{name!r} has mimic joints ({mimics}), which a World does not support yet")
        if missing_meshes not in ("error", "ignore"):
            raise PullbackError(f"missing_meshes is {missing_meshes!r}; choose 'error' or 'ignore'")
        if isinstance(q, Tensor) and model.base == "floating" and (position is not None or orientation is not None):
            raise PullbackError(f"{name!r}: q holds the place of the floating base; leave out position and orientation")
        links = range(len(model.links)) if collision_links is None else sorted(map(robot.link_number, collision_links))
        item = place(name, robot, position, orientation, group, mask)
        for link in links:
            for number, shape in enumerate(model.links[link].shapes):
                if missing_meshes == "ignore" and shape.type == "mesh" and not (shape.mesh and shape.mesh.is_file()):
                    continue
                item.shapes.append(shape_of_link(f"{name}/{model.links[link].name}/{number}", shape, robot, link))
        set_surface(item.shapes, friction, restitution, name)
        item.self_collision = self_collision
        item.actuators = joint_actuators(name, robot, actuators)
        item.q = q
        item_q(item)
        self._append(item)
        self.loops += described_loops(item)
        return name

    def add_ground(
        self,
        *,
        height: float = 0.0,
        friction: Given | None = None,
        restitution: Given | None = None,
        name: str = "ground",
        group: int = 1,
        mask: int = EVERYTHING,
    ) -> str:
        """Add the plane z = `height` [m]; everything above it is free."""
        place = (0.0, 0.0, height)
        return self.add_plane(name, position=place, friction=friction, restitution=restitution, group=group, mask=mask)

    def add_plane(
        self,
        name: str,
        *,
        position: Sequence[float] | None = None,
        orientation: Sequence[float] | None = None,
        friction: Given | None = None,
        restitution: Given | None = None,
        group: int = 1,
        mask: int = EVERYTHING,
    ) -> str:
        """Add a static plane through `position` [m]; its free side is the one that z of `orientation` points to."""
        item = place(self._free_name(name), None, position, orientation, group, mask)
        return self._add_static(item, Shape("plane", ()), friction, restitution)

    def add_box(self, name: str, *, size: Sequence[float], mass: float | None = None, **options: Any) -> str:
        """Add a box of edge lengths `size` [m]: free with a `mass` [kg], or `static=True`; see `add_sphere`."""
        x, y, z = map(float, constant(f"size of {name!r}", size, (3,), above=0.0))
        moments = np.array([y * y + z * z, x * x + z * z, x * x + y * y]) / 12
        return self._add_body(name, Shape("box", (x, y, z)), mass, moments, **options)

    def add_sphere(self, name: str, *, radius: float, mass: float | None = None, **options: Any) -> str:
        """Add a sphere: free with a `mass` [kg], spread evenly, or `static=True`.

        Options: `position` [m], `orientation` (xyzw), `friction`, `restitution`, `static`, `group` and `mask`.
        """
        r = float(constant(f"radius of {name!r}", radius, above=0.0))
        return self._add_body(name, Shape("sphere", (r,)), mass, np.full(3, 2 * r**2 / 5), **options)

    def add_capsule(self, name: str, *, radius: float, length: float, mass: float | None = None, **options: Any) -> str:
        """Add a capsule along z, `length` [m] without its caps: free with a `mass` [kg], or `static=True`.

        The options are those of `add_sphere`.
        """
        r = float(constant(f"radius of {name!r}", radius, above=0.0))
        l = float(constant(f"length of {name!r}", length, above=0.0))
        # the shares of the cylinder and of the two caps
        middle, caps = l / (l + 4 * r / 3), (4 * r / 3) / (l + 4 * r / 3)
        along = middle * r**2 / 2 + caps * 2 * r**2 / 5
        across = middle * (r**2 / 4 + l**2 / 12) + caps * (2 * r**2 / 5 + l**2 / 4 + 3 * r * l / 8)
        moments = np.array([across, across, along])
        return self._add_body(name, Shape("capsule", (r, l)), mass, moments, **options)

    def add_cylinder(
        self, name: str, *, radius: float, length: float, mass: float | None = None, **options: Any
    ) -> str:
        """Add a cylinder along z: free with a `mass` [kg], or `static=True`; see `add_sphere`."""
        r = float(constant(f"radius of {name!r}", radius, above=0.0))
        l = float(constant(f"length of {name!r}", length, above=0.0))
        moments = np.array([r**2 / 4 + l**2 / 12, r**2 / 4 + l**2 / 12, r**2 / 2])
        return self._add_body(name, Shape("cylinder", (r, l)), mass, moments, **options)

    def add_mesh(
        self,
        name: str,
        mesh: str | Path | np.ndarray,
        *,
        scale: float | Sequence[float] = 1.0,
        max_vertices: int = VERTEX_BUDGET,
        mass: float | None = None,
        **options: Any,
    ) -> str:
        """Add the convex hull of an STL or OBJ file or of points (n, 3) [m]: free with a `mass` [kg], or `static=True`.

        A hull with more than `max_vertices` is simplified. Mass is spread evenly over it. The options are those of
        `add_sphere`.
        """
        factors = constant(f"scale of {name!r}", scale, (3,) if np.ndim(scale) else ())
        if isinstance(mesh, str | Path):
            hull = hull_of_file(mesh, scale=factors, max_vertices=max_vertices)
        elif np.asarray(mesh).dtype.kind not in "fiu":
            raise PullbackError(f"{name!r} takes a mesh file or points (n, 3), got {mesh!r}; give a mesh's vertices")
        else:
            hull = convex_hull(np.asarray(mesh, float) * factors, max_vertices=max_vertices)
        com, inertia = hull.mass_properties()
        return self._add_body(name, Shape("mesh", (1.0,)), mass, inertia, com=com, source=hull, **options)

    def add_field(
        self,
        name: str,
        shape: sdf.Shape,
        *,
        mass: float | None = None,
        com: Sequence[float] = (0.0, 0.0, 0.0),
        inertia: Sequence[Sequence[float]] | np.ndarray | None = None,
        **options: Any,
    ) -> str:
        """Add a shape given by its signed distance, `pb.sdf`: `static=True`, or free with `mass`, `com` and `inertia`.

        `inertia` [kg·m²] (3, 3) is about the centre of mass `com` [m]. The other options are those of `add_sphere`.
        """
        if not isinstance(shape, sdf.Shape):
            raise PullbackError(f"{name!r} takes a shape of pb.sdf, got a {type(shape).__name__}; e.g. pb.sdf.box(...)")
        if mass is not None and inertia is None:
            raise PullbackError(f"{name!r} has a mass and no inertia; give inertia=(3, 3) about its centre of mass")
        matrix = np.eye(3) if inertia is None else constant(f"inertia of {name!r}", np.asarray(inertia), (3, 3))
        if not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix).min() <= 0.0:
            raise PullbackError(f"inertia of {name!r} is {matrix.tolist()}; give a symmetric, positive matrix")
        centre = constant(f"com of {name!r}", com, (3,))
        program = compile_shape(shape)
        return self._add_body(name, None, mass, matrix / (mass or 1.0), com=centre, source=program, **options)

    def _add_body(
        self,
        name: str,
        shape: Shape | None,
        mass: float | None,
        inertia_of_one_kg: np.ndarray,
        *,
        com: np.ndarray | None = None,
        source: Hull | Program | None = None,
        position: Sequence[float] | None = None,
        orientation: Sequence[float] | None = None,
        friction: Given | None = None,
        restitution: Given | None = None,
        static: bool = False,
        group: int = 1,
        mask: int = EVERYTHING,
    ) -> str:
        """Add a free body of one link, or a static shape."""
        name = self._free_name(name)
        if static:
            if mass is not None:
                raise PullbackError(f"{name!r} is static and has a mass; leave one of them out")
            item = place(name, None, position, orientation, group, mask)
            return self._add_static(item, shape, friction, restitution, source)
        if mass is None:
            raise PullbackError(f"{name!r} has no mass; give mass=..., or static=True to bolt it to the world")
        kilograms = float(constant(f"mass of {name!r}", mass, above=0.0))
        matrix = np.diag(inertia_of_one_kg) if inertia_of_one_kg.ndim == 1 else inertia_of_one_kg
        link = Link(name, kilograms, np.zeros(3) if com is None else com, kilograms * matrix)
        robot = RobotModel(compile_tree(Tree(name, [link], [], source=name), "floating"))
        item = place(name, robot, position, orientation, group, mask)
        number = robot.link_number(name)
        item.shapes.append(collision_shape(name, shape, source, number, robot.model.link_body[number]))
        set_surface(item.shapes, friction, restitution, name)
        return self._append(item)

    def _add_static(
        self,
        item: Placed,
        shape: Shape | None,
        friction: Given | None,
        restitution: Given | None,
        source: Hull | Program | None = None,
    ) -> str:
        touching = collision_shape(item.name, shape, source, WORLD, WORLD)
        touching.position, touching.rotation = item.position, item.rotation
        item.shapes.append(touching)
        set_surface(item.shapes, friction, restitution, item.name)
        return self._append(item)

    def _append(self, item: Placed) -> str:
        self.items.append(item)
        self.version += 1
        return item.name

    # -- closing loops -------------------------------------------------------------------------------------------

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

        `size` [m]: sphere (radius,), capsule (radius, length), box (3 edge lengths); `position` [m] (3,) and
        `orientation` (xyzw) on the link, or in the world for a static shape. A leading dimension is one for each world.
        """
        shapes = [s for i in self.items for s in i.shapes if s.name == name or s.name.startswith(f"{name}/")]
        if not shapes:
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
        damping: Damping = "explicit",
        integrator: Integrator = "semi_implicit",
        without: Collection[Part] = (),
    ) -> Sim:
        """Return the simulation of this world with steps of `dt` [s], each of `substeps` smaller ones.

        `max_contacts` is how many contacts a world has room for; by default a bound by its shapes. `damping="implicit"`
        lets joint damping and servos' kd act at the velocity after the step, which is stable however stiff they are.
        `integrator="rk4"`, of fourth order, and `"explicit"`, Euler's, are for motion without contact, joint limits and
        dry friction; `without=["contacts", "limits", "friction"]` leaves any of these out.
        """
        from pullback.rigid.sim import Sim

        check_value("dt", dt, above=0.0)
        for what, number, least in (("substeps", substeps, 1), ("max_contacts", max_contacts, 0)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
                raise PullbackError(f"{what} is {number!r}; give a whole number from {least} on")
        check_integration(integrator, damping, without)
        dtype = dtype or torch.get_default_dtype()
        if dtype not in (torch.float32, torch.float64):
            raise PullbackError(f"dtype is {dtype}; a world computes in torch.float32 or torch.float64")
        options: dict[str, Any] = {"substeps": substeps, "max_contacts": max_contacts, "damping": damping}
        options |= {"integrator": integrator, "without": without}
        return Sim(self, dt=dt, dtype=dtype, device=device, **options)

    def _free_name(self, name: str) -> str:
        if not name or "/" in name:
            raise PullbackError(f"{name!r} cannot be a name; use at least one character and no '/'")
        if any(item.name == name for item in self.items):
            raise PullbackError(f"the world has a {name!r} already; give each thing its own name")
        return name

    def _fresh(self, name: str) -> str:
        name, taken, number = name.replace("/", "_"), {item.name for item in self.items}, 2
        fresh = name
        while fresh in taken:
            fresh, number = f"{name}_{number}", number + 1
        return fresh


def _check_size(shapes: Sequence[CollisionShape], size: Given) -> Value:
    """Return a size that all of the shapes can have."""
    for shape in shapes:
        if not SIZES.get(shape.kind):
            raise PullbackError(f"the size of {shape.name!r} cannot be set: it is a {shape.kind}")
        check_value(f"size of {shape.name!r}, a {shape.kind},", size, (SIZES[shape.kind],), above=0.0)
    return check_value(f"size of {shapes[0].name!r}", size, (SIZES[shapes[0].kind],))
