"""Shapes that can touch: a table with one row each, and the methods of World that add bodies of one shape.

To kernels a shape is half extents h and a radius, linear in its size, and the family of algorithms that find contacts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pullback import sdf
from pullback.core.errors import PullbackError, shortened
from pullback.description.compile import WORLD, compile_tree
from pullback.description.tree import Link, Shape, Tree
from pullback.rigid.collide.convex.hulls import (
    VERTEX_BUDGET,
    Hull,
    ball_hull,
    box_hull,
    convex_hull,
    cylinder_hull,
    hull_of_file,
    plane_hull,
    point_hull,
    segment_hull,
)
from pullback.rigid.collide.smooth.support_kernels import ELLIPSOID
from pullback.rigid.compile.scene import (
    BOX,
    BY_FEATURES,
    BY_HULLS,
    BY_SAMPLES,
    BY_SUPPORT,
    CAPSULE,
    FIELD,
    HULL,
    PLANE,
    SPHERE,
)
from pullback.rigid.world.items import Placed, collision_shape, constant, place, set_surface
from pullback.rigid.world.values import Given, check_switch
from pullback.robot.model import RobotModel
from pullback.sdf.program import Program, compile_shape
from pullback.sdf.samples import Samples, ball_samples, box_samples, capsule_samples, mesh_samples, sphere_samples

EVERYTHING = -1
"""The mask of a shape that all groups may touch."""

Moments = Callable[..., tuple[float, float, float]]
"""From a size to the principal moments [m²] of one kilogram spread evenly."""


@dataclass(frozen=True)
class ShapeKind:
    """A kind of shape.

    number: its kind in kernels. family: how contacts are found, BY_FEATURES, BY_HULLS, BY_SUPPORT or BY_SAMPLES. sizes:
    the names of the numbers [m] that make up its size. extents: what each of them adds to half extents and radius.
    contacts: how many a moving one has at once, as a rule. most: contacts with one other shape, at most. moments:
    of inertia. hull: the polyhedron that half extents multiply. samples: points for collision with fields; of the hull
    by default. triangles: its surface as a trimesh, to be drawn.
    """

    number: Any
    family: Any
    sizes: tuple[str, ...]
    extents: tuple[tuple[float, float, float, float], ...]
    contacts: int
    most: int | None = None
    moments: Moments | None = None
    hull: Callable[[], Hull] | None = None
    samples: Callable[[], Samples] | None = None
    triangles: Callable[[np.ndarray], Any] | None = None


def _box_moments(x: float, y: float, z: float) -> tuple[float, float, float]:
    return (y * y + z * z) / 12, (x * x + z * z) / 12, (x * x + y * y) / 12


def _capsule_moments(r: float, l: float) -> tuple[float, float, float]:
    # fractions of the mass in the cylinder and in the two caps
    middle, caps = l / (l + 4 * r / 3), (4 * r / 3) / (l + 4 * r / 3)
    along = middle * r**2 / 2 + caps * 2 * r**2 / 5
    across = middle * (r**2 / 4 + l**2 / 12) + caps * (2 * r**2 / 5 + l**2 / 4 + 3 * r * l / 8)
    return across, across, along


def _cylinder_moments(r: float, l: float) -> tuple[float, float, float]:
    return r**2 / 4 + l**2 / 12, r**2 / 4 + l**2 / 12, r**2 / 2


def _capsule_triangles(size: np.ndarray) -> Any:
    mesh = _create().capsule(radius=float(size[0]), height=float(size[1]), count=[24, 24])
    mesh.apply_translation(-mesh.bounds.mean(0))
    return mesh


def _create() -> Any:
    import trimesh

    return trimesh.creation


def hull_samples(hull: Hull) -> Samples:
    """Return samples of a polyhedron's faces and edges."""
    fans = [(loop[0], loop[i], loop[i + 1]) for loop in hull.loops for i in range(1, len(loop) - 1)]
    return mesh_samples(hull.vertices, np.array(fans), edges=hull.edges)


SHAPE_KINDS: dict[str, ShapeKind] = {
    "ellipsoid": ShapeKind(
        ELLIPSOID,
        BY_SUPPORT,
        ("a", "b", "c"),
        ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)),
        contacts=2,
        most=1,
        moments=lambda a, b, c: ((b * b + c * c) / 5, (a * a + c * c) / 5, (a * a + b * b) / 5),
        hull=ball_hull,
        samples=ball_samples,
        triangles=lambda size: _create().icosphere(subdivisions=3).apply_transform(np.diag([*size, 1.0])),
    ),
    "sphere": ShapeKind(
        SPHERE,
        BY_FEATURES,
        ("radius",),
        ((0.0, 0.0, 0.0, 1.0),),
        contacts=2,
        most=1,
        moments=lambda r: (2 * r**2 / 5,) * 3,
        hull=point_hull,
        samples=sphere_samples,
        triangles=lambda size: _create().icosphere(subdivisions=3, radius=float(size[0])),
    ),
    "capsule": ShapeKind(
        CAPSULE,
        BY_FEATURES,
        ("radius", "length"),
        ((0.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.5, 0.0)),
        contacts=4,
        moments=_capsule_moments,
        hull=segment_hull,
        samples=capsule_samples,
        triangles=_capsule_triangles,
    ),
    "box": ShapeKind(
        BOX,
        BY_FEATURES,
        ("x", "y", "z"),
        ((0.5, 0.0, 0.0, 0.0), (0.0, 0.5, 0.0, 0.0), (0.0, 0.0, 0.5, 0.0)),
        contacts=8,
        moments=_box_moments,
        hull=box_hull,
        samples=box_samples,
        triangles=lambda size: _create().box(extents=size),
    ),
    "cylinder": ShapeKind(
        HULL,
        BY_HULLS,
        ("radius", "length"),
        ((1.0, 1.0, 0.0, 0.0), (0.0, 0.0, 0.5, 0.0)),
        contacts=8,
        moments=_cylinder_moments,
        hull=cylinder_hull,
        triangles=lambda size: _create().cylinder(radius=float(size[0]), height=float(size[1]), sections=40),
    ),
    "mesh": ShapeKind(HULL, BY_HULLS, ("scale",), ((1.0, 1.0, 1.0, 0.0),), contacts=8),
    "field": ShapeKind(FIELD, BY_SAMPLES, (), (), contacts=16),
    "plane": ShapeKind(PLANE, BY_FEATURES, (), (), contacts=0, hull=plane_hull),
}
"""All shapes; of two that may touch the earlier one is a of their pair."""

RANK = {kind: rank for rank, kind in enumerate(SHAPE_KINDS)}

PAIR_CONTACTS = {
    ("ellipsoid", "field"): 8,
    ("capsule", "capsule"): 2,
    ("capsule", "box"): 3,
    ("capsule", "plane"): 2,
    ("box", "box"): 16,
    ("box", "plane"): 8,
}
"""Contacts that two shapes have at most, where it is neither `most` of one of them nor OTHER_CONTACTS.

Two faces meet in up to 8 corners and 8 crossings of edges; a box thinner than the margin touches a plane with all its
vertices.
"""

OTHER_CONTACTS = 8


def most_contacts(a: str, b: str) -> int:
    """Return how many contacts two shapes have at most, a the one of lower rank."""
    if (a, b) in PAIR_CONTACTS:
        return PAIR_CONTACTS[a, b]
    return min(SHAPE_KINDS[kind].most or OTHER_CONTACTS for kind in (a, b))


class Solid(NamedTuple):
    """What a body is made of: a shape, or the hull or field that it comes from, and how its mass is spread.

    `com` is the centre of mass [m], by default the origin; `inertia` [m²] that of one kilogram about it, by default the
    shape's own.
    """

    shape: Shape | None
    source: Hull | Program | None = None
    com: np.ndarray | None = None
    inertia: np.ndarray | None = None

    def moments(self, name: str) -> np.ndarray:
        """Return the inertia [m²] of one kilogram (3, 3)."""
        if self.inertia is not None:
            return self.inertia
        assert self.shape is not None
        moments = SHAPE_KINDS[self.shape.type].moments
        assert moments is not None
        try:
            return np.diag(np.array(moments(*self.shape.size)))
        except OverflowError:
            raise PullbackError(f"{name!r} is too large, {self.shape.size} m; sizes are in metres") from None


class Bodies:
    """The methods of a World that add free bodies and static shapes."""

    def __init__(self) -> None:
        self.version = 0
        self.items: list[Placed] = []

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
        return self._add_static(item, Solid(Shape("plane", ())), friction, restitution)

    def add_box(self, name: str, *, size: Sequence[float], mass: float | None = None, **options: Any) -> str:
        """Add a box of edge lengths `size` [m]: free with a `mass` [kg], or `static=True`; see `add_sphere`."""
        x, y, z = map(float, constant(f"size of {name!r}", size, (3,), above=0.0))
        return self._add_body(name, Solid(Shape("box", (x, y, z))), mass, **options)

    def add_sphere(self, name: str, *, radius: float, mass: float | None = None, **options: Any) -> str:
        """Add a sphere: free with a `mass` [kg], spread evenly, or `static=True`.

        Options: `position` [m], `orientation` (xyzw), `friction`, `restitution`, `static`, `group` and `mask`.
        """
        r = float(constant(f"radius of {name!r}", radius, above=0.0))
        return self._add_body(name, Solid(Shape("sphere", (r,))), mass, **options)

    def add_ellipsoid(self, name: str, *, radii: Sequence[float], mass: float | None = None, **options: Any) -> str:
        """Add an ellipsoid of semi-axes `radii` [m]: free with a `mass` [kg], or `static=True`; see `add_sphere`."""
        a, b, c = map(float, constant(f"radii of {name!r}", radii, (3,), above=0.0))
        return self._add_body(name, Solid(Shape("ellipsoid", (a, b, c))), mass, **options)

    def add_capsule(self, name: str, *, radius: float, length: float, mass: float | None = None, **options: Any) -> str:
        """Add a capsule along z, `length` [m] without its caps: free with a `mass` [kg], or `static=True`.

        The options are those of `add_sphere`.
        """
        r = float(constant(f"radius of {name!r}", radius, above=0.0))
        l = float(constant(f"length of {name!r}", length, above=0.0))
        return self._add_body(name, Solid(Shape("capsule", (r, l))), mass, **options)

    def add_cylinder(
        self, name: str, *, radius: float, length: float, mass: float | None = None, **options: Any
    ) -> str:
        """Add a cylinder along z: free with a `mass` [kg], or `static=True`; see `add_sphere`."""
        r = float(constant(f"radius of {name!r}", radius, above=0.0))
        l = float(constant(f"length of {name!r}", length, above=0.0))
        return self._add_body(name, Solid(Shape("cylinder", (r, l))), mass, **options)

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
        return self._add_body(name, Solid(Shape("mesh", (1.0,)), hull, com, inertia), mass, **options)

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
        per_kg = matrix / (mass or 1.0)
        return self._add_body(name, Solid(None, program, centre, per_kg), mass, **options)

    def add_terrain(
        self, robot: RobotModel, *, friction: Given | None = None, restitution: Given | None = None
    ) -> list[str]:
        """Add the height fields that the robot's file has in its world, where they are there, and return their names.

        They are fields, `pb.sdf.heights`: splines through the heights, which go on level beyond the border. `friction`
        takes the place of the file's.
        """
        names = []
        for ground in robot.model.tree.terrain:
            shape = sdf.heights(ground.heights, ground.size)
            names.append(
                self.add_field(
                    ground.name,
                    shape,
                    static=True,
                    position=ground.position,
                    orientation=ground.orientation,
                    friction=ground.friction if friction is None else friction,
                    restitution=restitution,
                )
            )
        return names

    def _add_body(
        self,
        name: str,
        solid: Solid,
        mass: float | None,
        *,
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
        if check_switch(f"static of {name!r}", static):
            if mass is not None:
                raise PullbackError(f"{name!r} is static and has a mass; leave one of them out")
            item = place(name, None, position, orientation, group, mask)
            return self._add_static(item, solid, friction, restitution)
        if mass is None:
            raise PullbackError(f"{name!r} has no mass; give mass=..., or static=True to bolt it to the world")
        kilograms = float(constant(f"mass of {name!r}", mass, above=0.0))
        com = np.zeros(3) if solid.com is None else solid.com
        link = Link(name, kilograms, com, kilograms * solid.moments(name))
        robot = RobotModel(compile_tree(Tree(name, [link], [], source=name), "floating"))
        item = place(name, robot, position, orientation, group, mask)
        number = robot.link_number(name)
        item.shapes.append(collision_shape(name, solid.shape, solid.source, number, robot.model.link_body[number]))
        set_surface(item.shapes, friction, restitution, name)
        return self._append(item)

    def _add_static(self, item: Placed, solid: Solid, friction: Given | None, restitution: Given | None) -> str:
        touching = collision_shape(item.name, solid.shape, solid.source, WORLD, WORLD)
        touching.position, touching.rotation = item.position, item.rotation
        item.shapes.append(touching)
        set_surface(item.shapes, friction, restitution, item.name)
        return self._append(item)

    def _append(self, item: Placed) -> str:
        self.items.append(item)
        self.version += 1
        return item.name

    def _free_name(self, name: str) -> str:
        if not isinstance(name, str) or not name or "/" in name:
            raise PullbackError(f"{shortened(repr(name))} cannot be a name; use at least one character and no '/'")
        if any(item.name == name for item in self.items):
            raise PullbackError(f"the world has a {name!r} already; give each thing its own name")
        return name
