"""From a World to the integers that kernels read: one forest of bodies, their shapes, the pairs that may touch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp

from pullback.core.errors import PullbackError
from pullback.description.compile import COORDINATES, WORLD, Body, Model, massless_joints
from pullback.description.joints import KIND_NUMBER
from pullback.rigid.compile.drives import DriveArrays, find_drives
from pullback.rigid.compile.geometry import Geometry
from pullback.rigid.compile.scene import Scene
from pullback.rigid.world.couplings import CoupledJoint, check_coupled
from pullback.rigid.world.integrators import Part
from pullback.rigid.world.items import CollisionShape, Placed, has_dry_friction, one_dof
from pullback.rigid.world.loops import End, check_closed, loop_row_kinds
from pullback.rigid.world.shapes import RANK, SHAPE_KINDS, most_contacts
from pullback.rigid.world.world import World
from pullback.robot.topology import Topology
from pullback.sdf.program import Program

FEW_CONTACTS = 32
"""Room for so many is made at once, if shapes can have them."""


@dataclass
class SceneArrays:
    """What `Scene` holds, in numpy, and the names that go with it; arrays are int32, `constant` is float64."""

    nbody: int
    nq: int
    nv: int
    nu: int
    parent: np.ndarray
    kind: np.ndarray
    constant: np.ndarray
    q_start: np.ndarray
    v_start: np.ndarray
    is_leaf: np.ndarray
    reaches_first: np.ndarray
    dof_parent: np.ndarray
    dof_body: np.ndarray
    dof_coordinate: np.ndarray
    shape_kind: np.ndarray
    shape_body: np.ndarray
    geometry: Geometry
    pair_a: np.ndarray
    pair_b: np.ndarray
    pair_dof_start: np.ndarray
    pair_dof: np.ndarray
    pair_sign: np.ndarray
    max_contacts: int
    """Contacts of a world there is room for."""
    most_contacts: int
    """Contacts that its shapes can have, at most."""
    drives: DriveArrays
    limit_dof: np.ndarray
    friction_dof: np.ndarray
    loop_body_a: np.ndarray
    loop_body_b: np.ndarray
    loop_start: np.ndarray
    loop_sign: np.ndarray
    loop_row_loop: np.ndarray
    loop_row_kind: np.ndarray
    coupling_start: np.ndarray
    coupling_follower: np.ndarray
    coupling_leader: np.ndarray
    body_names: list[str]
    shape_names: list[str]
    actuator_names: list[str]

    @property
    def nshape(self) -> int:
        """Number of shapes."""
        return len(self.shape_kind)

    @property
    def npair(self) -> int:
        """Number of pairs of shapes that may touch."""
        return len(self.pair_a)

    @property
    def nloop(self) -> int:
        """Number of closed loops."""
        return len(self.loop_start)

    @property
    def ncoupling(self) -> int:
        """Number of joints that follow others."""
        return len(self.coupling_start)

    @property
    def nscalar(self) -> int:
        """Number of rows of loops, couplings, joint limits and dry friction, at most."""
        return len(self.loop_row_loop) + self.ncoupling + len(self.limit_dof) + len(self.friction_dof)


def compile_world(world: World, max_contacts: int | None = None, without: Collection[Part] = ()) -> SceneArrays:
    """Return the arrays of a world, some parts left out; `max_contacts` takes the place of a bound by its shapes."""
    check_bodies(world)
    check_closed(world.loops, world.contact.cfm)
    check_coupled(world.couplings)
    forest = Forest(world)
    shapes = forest.shapes
    pairs = [] if "contacts" in without else forest.ordered_pairs()
    geometry = Geometry(shapes, pairs)
    moved = [forest.pair_dofs(a, b) for a, b in pairs]
    parents = forest.parent
    ends = [[forest.body_of(end) for end in loop.ends] for loop in world.loops]
    pulled = [[forest.dof_of(joint) for joint in (c.follower, c.leader)] for c in world.couplings]
    walks = [forest.loop_walk(a, b) for a, b in ends + [[forest.dof_body[dof] for dof in dofs] for dofs in pulled]]
    starts = [(k + 1) * forest.nv + walk[0] for k, walk in enumerate(walks)]
    kinds = [loop_row_kinds(loop) for loop in world.loops]
    drives = find_drives(world.items, forest.first_dof)
    return SceneArrays(
        nbody=len(parents),
        nq=forest.nq,
        nv=forest.nv,
        nu=drives.nu,
        parent=_integers(parents),
        kind=_integers([KIND_NUMBER[body.kind] for body in forest.bodies]),
        constant=np.array([body.constant for body in forest.bodies], dtype=np.float64),
        q_start=_integers(forest.q_start),
        v_start=_integers(forest.v_start),
        is_leaf=_integers([int(i not in parents) for i in range(len(parents))]),
        reaches_first=_integers([int(p not in parents[i + 1 :]) for i, p in enumerate(parents)]),
        dof_parent=_integers([*forest.dof_parent, *(dof for walk in walks for dof in next_dofs(walk, forest.nv))]),
        dof_body=_integers(forest.dof_body),
        dof_coordinate=_integers(forest.dof_coordinate),
        shape_kind=_integers([int(SHAPE_KINDS[shape.kind].number) for shape in shapes]),
        shape_body=_integers(forest.shape_body),
        geometry=geometry,
        pair_a=_integers([a for a, _ in pairs]),
        pair_b=_integers([b for _, b in pairs]),
        pair_dof_start=_integers(np.cumsum([0, *(len(dofs) for dofs in moved)])),
        pair_dof=_integers([dof for dofs in moved for dof, _ in dofs]),
        pair_sign=_integers([sign for dofs in moved for _, sign in dofs]),
        max_contacts=forest.usual_contacts(pairs) if max_contacts is None or not pairs else max_contacts,
        most_contacts=forest.bound_contacts(pairs),
        drives=drives,
        limit_dof=_integers([] if "limits" in without else forest.limited_dofs()),
        friction_dof=_integers([] if "friction" in without else forest.rubbing_dofs()),
        loop_body_a=_integers([a for a, _ in ends]),
        loop_body_b=_integers([b for _, b in ends]),
        loop_start=_integers(starts[: len(ends)]),
        loop_sign=_integers([sign for a, b in ends for sign in forest.loop_signs(a, b)]),
        loop_row_loop=_integers([k for k, rows in enumerate(kinds) for _ in rows]),
        loop_row_kind=_integers([kind for rows in kinds for kind in rows]),
        coupling_start=_integers(starts[len(ends) :]),
        coupling_follower=_integers([follower for follower, _ in pulled]),
        coupling_leader=_integers([leader for _, leader in pulled]),
        body_names=forest.body_names,
        shape_names=[shape.name for shape in shapes],
        actuator_names=world.actuator_names,
    )


def make_scene(arrays: SceneArrays, device: str) -> Any:
    """Return the constants that kernels read, on a Warp device."""

    def on_device(values: np.ndarray) -> Any:
        return wp.array(values, dtype=wp.int32, device=device)

    scene = Scene()
    scene.topology = make_topology(arrays, [], range(arrays.nbody), device)
    scene.nq, scene.nu, scene.npair, scene.max_contacts = arrays.nq, arrays.nu, arrays.npair, arrays.max_contacts
    scene.nlimit, scene.nfriction = len(arrays.limit_dof), len(arrays.friction_dof)
    scene.nloop, scene.nloop_row, scene.ncoupling = arrays.nloop, len(arrays.loop_row_loop), arrays.ncoupling
    names = ["dof_parent", "dof_body", "dof_coordinate", "shape_kind", "shape_body", "limit_dof", "friction_dof"]
    names += [f"pair_{name}" for name in ("a", "b", "dof_start", "dof", "sign")]
    names += [f"loop_{name}" for name in ("body_a", "body_b", "start", "sign", "row_loop", "row_kind")]
    names += ["coupling_start", "coupling_follower", "coupling_leader"]
    for name in names:
        setattr(scene, name, on_device(getattr(arrays, name)))
    arrays.geometry.write(scene, device)
    scene.nactuator = arrays.drives.count
    for name in ("start", "dof", "share", "law"):
        setattr(scene, f"actuator_{name}", wp.array(getattr(arrays.drives, name), device=device))
    return scene


def make_topology(arrays: SceneArrays, frame_bodies: Sequence[int], path: Iterable[int], device: str) -> Any:
    """Return the forest as kernels read it, with frames on some bodies and the path of bodies that move them."""

    def on_device(values: np.ndarray) -> Any:
        return wp.array(values, device=device)

    topology = Topology()
    topology.nbody, topology.nv = arrays.nbody, arrays.nv
    for name in ("parent", "kind", "constant", "q_start", "v_start", "is_leaf", "reaches_first"):
        setattr(topology, name, on_device(getattr(arrays, name)))
    topology.nframe, topology.frame_body = len(frame_bodies), on_device(_integers(frame_bodies))
    path = _integers(path)
    topology.npath, topology.path = len(path), on_device(path)
    return topology


def frame_topology(arrays: SceneArrays, bodies: Sequence[int], device: str) -> Any:
    """Return the forest with frames, each on a body or (-1) on the world."""
    path = set()
    for above in bodies:
        while above != WORLD:
            path.add(above)
            above = int(arrays.parent[above])
    return make_topology(arrays, bodies, sorted(path), device)


def check_bodies(world: World) -> None:
    """Refuse a world in which nothing moves, or something moves that has no mass."""
    if not any(robot.model.bodies for robot in world.robots.values()):
        raise PullbackError("a world without bodies: nothing in it can move; add a robot or a free body")
    for name, robot in world.robots.items():
        massless = massless_joints(robot.model)
        if massless:
            raise PullbackError(
                f"{name!r}: the joints {', '.join(map(repr, massless))} move links without mass; give the links mass, "
                f"or the joints armature"
            )


def heaviest_mass(world: World) -> float:
    """Return the mass [kg] of the heaviest robot or free body, as described."""
    moving = (robot.model for robot in world.robots.values() if robot.model.bodies)
    return max(sum(link.mass for link in model.links) for model in moving)


class Forest:
    """All bodies of a world in one numbering, item after item, parents first."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.parent: list[int] = []
        self.bodies: list[Body] = []
        self.q_start: list[int] = []
        self.v_start: list[int] = []
        self.body_names: list[str] = []
        self.dof_parent: list[int] = []
        self.dof_body: list[int] = []
        self.dof_coordinate: list[int] = []
        self.shapes: list[CollisionShape] = []
        self.shape_body: list[int] = []
        self.shape_item: list[int] = []
        self.first_dof: list[int] = []
        self.first_body: list[int] = []
        self.nq = self.nv = 0
        for number, item in enumerate(world.items):
            self._append(number, item)
        self.neighbour = [self._neighbour(item) for item in world.items]
        self.held = {frozenset(self.body_of(end) for end in loop.ends) for loop in world.loops}

    def _append(self, number: int, item: Placed) -> None:
        first, first_dof = len(self.parent), self.nv
        self.first_dof.append(first_dof)
        self.first_body.append(first)
        for body in item.bodies:
            parent = WORLD if body.parent == WORLD else first + body.parent
            (nq, nv), here = COORDINATES[body.kind], len(self.parent)
            for k in range(nv):
                self.dof_parent.append(self.nv + k - 1 if k else self.last_dof(parent))
                self.dof_body.append(here)
                self.dof_coordinate.append(self.nq if nv == 1 else -1)
            self.parent.append(parent)
            self.bodies.append(body)
            self.q_start.append(self.nq)
            self.v_start.append(self.nv)
            self.body_names.append(f"{item.name}/{body.joint.child}")
            self.nq, self.nv = self.nq + nq, self.nv + nv
        for shape in item.shapes:
            self.shapes.append(shape)
            self.shape_body.append(WORLD if shape.body == WORLD else first + shape.body)
            self.shape_item.append(number)

    def last_dof(self, body: int) -> int:
        """Return the last dof that moves a body, -1: none."""
        return -1 if body == WORLD else self.v_start[body] + COORDINATES[self.bodies[body].kind][1] - 1

    # -- loops and couplings ------------------------------------------------------------------------------------------

    def body_of(self, end: End) -> int:
        """Return the body that one end of a loop is on."""
        if end.item is None or end.body == WORLD:
            return WORLD
        return self.first_body[self.world.items.index(end.item)] + end.body

    def dof_of(self, joint: CoupledJoint) -> int:
        """Return the dof of a joint that follows or leads another."""
        return self.first_dof[self.world.items.index(joint.item)] + joint.body.v_start

    def loop_walk(self, a: int, b: int) -> list[int]:
        """Return the dofs that move either body, each before those inboard of it: those of b alone come first."""
        of_a = self._dofs_above(a)
        return [dof for dof in self._dofs_above(b) if dof not in of_a] + of_a

    def loop_signs(self, a: int, b: int) -> list[int]:
        """Return for every dof which body it moves: 1 a, -1 b, 0 both or neither."""
        of_a, of_b = self._dofs_above(a), self._dofs_above(b)
        return [(dof in of_a) - (dof in of_b) for dof in range(self.nv)]

    # -- pairs ---------------------------------------------------------------------------------------------------

    def find_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of shapes that may touch; refuse those that cannot be computed."""
        self._refuse_shapes()
        count = range(len(self.shapes))
        return [
            (a, b)
            for a in count
            for b in count[a + 1 :]
            if self._may_touch(self.shape_item[a], self.shapes[a], self.shape_item[b], self.shapes[b])
            and not self._is_held(self.shape_body[a], self.shape_body[b])
        ]

    def ordered_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs that may touch, the shape of lower rank first.

        Samples of a box and the field of another shape may miss each other's corners, so such pairs come both ways.
        """
        pairs = []
        for pair in self.find_pairs():
            a, b = sorted(pair, key=lambda k: RANK[self.shapes[k].kind])
            ways = [(a, b)]
            if self.shapes[b].kind == "field" and self.shapes[a].kind in ("box", "field"):
                ways.append((b, a))
            # what has no end has no samples
            pairs += [way for way in ways if not _is_endless(self.shapes[way[0]])] or ways[:1]
        return pairs

    def pair_dofs(self, a: int, b: int) -> list[tuple[int, int]]:
        """Return the dofs that move either shape, last first, and which one: 1 moves a, -1 moves b, 0 both."""
        of_a, of_b = (set(self._dofs_above(self.shape_body[k])) for k in (a, b))
        return [(dof, (dof in of_a) - (dof in of_b)) for dof in sorted(of_a | of_b, reverse=True)]

    def bound_contacts(self, pairs: Sequence[tuple[int, int]]) -> int:
        """Return how many contacts there can be."""
        return sum(most_contacts(self.shapes[a].kind, self.shapes[b].kind) for a, b in pairs)

    def usual_contacts(self, pairs: Sequence[tuple[int, int]]) -> int:
        """Return how many contacts to make room for at first: all there can be, if these are few."""
        points = [most_contacts(self.shapes[a].kind, self.shapes[b].kind) for a, b in pairs]
        touching = {k for pair in pairs for k in pair if self.shape_body[k] != WORLD}
        usual = sum(SHAPE_KINDS[self.shapes[k].kind].contacts for k in touching)
        # enough for any one pair, and for the usual number of contacts of all shapes at once
        return min(sum(points), max([FEW_CONTACTS, usual, *points]))

    def _dofs_above(self, body: int) -> list[int]:
        dofs, dof = [], self.last_dof(body)
        while dof >= 0:
            dofs.append(dof)
            dof = self.dof_parent[dof]
        return dofs

    def _is_held(self, a: int, b: int) -> bool:
        """Tell whether a loop holds two bodies together, as a joint holds neighbours."""
        return WORLD not in (a, b) and frozenset((a, b)) in self.held

    def _may_touch(self, item_a: int, a: CollisionShape, item_b: int, b: CollisionShape) -> bool:
        """Tell whether two shapes may touch: not fixed to each other, not neighbours, and of groups that meet."""
        first, second = self.world.items[item_a], self.world.items[item_b]
        if a.body == WORLD and b.body == WORLD:
            return False
        if not (first.group & second.mask and second.group & first.mask):
            return False
        if not (a.contype & b.conaffinity or b.contype & a.conaffinity):
            return False
        if item_a != item_b:
            return True
        above = self.neighbour[item_a]
        are_neighbours = a.body == b.body or b.body in above.get(a.body, ()) or a.body in above.get(b.body, ())
        return first.self_collision and not are_neighbours and not first.excludes(a, b)

    def _neighbour(self, item: Placed) -> dict[int, list[int]]:
        """Return for each body of a robot the body it hangs on, the world included, past bodies without mass."""
        above: dict[int, list[int]] = {}
        if item.robot is None:
            return above
        model = item.robot.model
        solid = _bodies_with_mass(model)
        for number, body in enumerate(model.bodies):
            if body.kind == "free":
                continue
            parent = body.parent
            while parent != WORLD and parent not in solid:
                parent = model.bodies[parent].parent
            above[number] = [parent]
        return above

    def _refuse_shapes(self) -> None:
        """Refuse planes that move, and meshes without a file that something may touch."""
        count = range(len(self.shapes))
        for k in count:
            shape = self.shapes[k]
            if shape.kind == "plane" and shape.body != WORLD:
                raise PullbackError(f"shape {shape.name!r} is a plane on a moving link; fix planes to the world")
            if shape.kind != "mesh" or not isinstance(shape.source, Path) or shape.source.is_file():
                continue
            for other in count:
                first, second = self.shape_item[k], self.shape_item[other]
                if other != k and self._may_touch(first, shape, second, self.shapes[other]):
                    raise PullbackError(
                        f"shape {shape.name!r} is the mesh {shape.source}, which is not there, and "
                        f"{self.shapes[other].name!r} may touch it; leave such shapes out with "
                        f'add(..., missing_meshes="ignore"), or name the links that collide with collision_links=[...]'
                    )

    # -- dofs ----------------------------------------------------------------------------------------------------

    def limited_dofs(self) -> list[int]:
        """Return the dofs of one-dof joints that have an end; mimic joints come to theirs with their leader."""
        return [
            first + body.v_start
            for first, item in zip(self.first_dof, self.world.items)
            for body in item.bodies
            if one_dof(body) and body.joint.mimic is None
            if isfinite(body.joint.limits.lower) or isfinite(body.joint.limits.upper)
        ]

    def rubbing_dofs(self) -> list[int]:
        """Return the dofs with dry friction, in the description or given by a module."""
        return [
            first + body.v_start + k
            for first, item in zip(self.first_dof, self.world.items)
            for body in item.bodies
            if has_dry_friction(item, body)
            for k in range(COORDINATES[body.kind][1])
        ]


def next_dofs(walk: Sequence[int], nv: int) -> list[int]:
    """Return for every dof the one after it in a walk, -1 after the last."""
    after = dict(zip(walk, [*walk[1:], -1]))
    return [after.get(dof, -1) for dof in range(nv)]


def _bodies_with_mass(model: Model) -> set[int]:
    return {body for link, body in zip(model.links, model.link_body) if link.mass > 0.0}


def _is_endless(shape: CollisionShape) -> bool:
    return isinstance(shape.source, Program) and not all(bool(x.isfinite().all()) for x in shape.source.bounds())


def _integers(values: Any) -> np.ndarray:
    return np.asarray(list(values), dtype=np.int32)
