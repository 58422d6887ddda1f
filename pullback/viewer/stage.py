"""The stage, whoever draws it: meshes with colours, planes, worlds side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from pullback.description.compile import WORLD
from pullback.description.visuals import Color
from pullback.rigid.world.items import Placed, rotation_matrix
from pullback.viewer.motion import Poses, find_link, is_free_body, link_poses
from pullback.viewer.shapes import Mesh, link_meshes, of_world

Tensor = torch.Tensor

ROBOTS: tuple[Color, ...] = ((72, 108, 164), (64, 140, 112), (130, 94, 160))
BODIES: tuple[Color, ...] = ((232, 130, 52), (206, 74, 84), (70, 160, 170), (214, 176, 60), (150, 120, 90))
STATIC: Color = (168, 168, 174)
TILE_GAP = 1.3
"""Distance of neighbouring worlds, as a multiple of the size of one."""


class Actor(NamedTuple):
    """One mesh that is drawn in one or several of the tiles, and the link it moves with."""

    name: str
    item: Placed
    link: int
    mesh: Mesh
    color: Color
    tiles: list[int]

    @property
    def is_static(self) -> bool:
        """Whether it never moves."""
        return self.link == WORLD


class Plane(NamedTuple):
    """A static plane: a point on it [m] and its rotation, whose third column is the normal."""

    name: str
    point: np.ndarray
    rotation: np.ndarray


class Frame(NamedTuple):
    """Where the action is: its centre [m] and radius [m]."""

    centre: np.ndarray
    radius: float


FIELD_OF_VIEW = 0.7
"""Height of the picture [rad]."""
LOOKING_FROM = np.array([0.55, -1.0, 0.45]) / np.linalg.norm([0.55, -1.0, 0.45])


def camera_position(frame: Frame) -> np.ndarray:
    """Return where a camera stands that sees all of the action [m]."""
    return frame.centre + 2.8 * frame.radius * LOOKING_FROM


class Stage:
    """The things of a world and where they are, for some of its worlds side by side, one tile each."""

    def __init__(self, items: Sequence[Placed], worlds: Sequence[int] = (0,)) -> None:
        self.items = list(items)
        self.worlds = list(worlds)
        self.offsets = np.zeros((len(self.worlds), 3))
        self.travel = np.zeros((1, 3))
        """How far [m] everything is moved in each moment (F, 3), so that what is followed stays in the picture."""
        self.followed: Placed | None = None
        alike = len(self.worlds) == 1 or not any(_differs(item) for item in self.items)
        tiles = range(len(self.worlds))
        groups = [list(tiles)] if alike else [[tile] for tile in tiles]
        self.actors = [actor for group in groups for actor in self._actors(group)]
        self.planes = list(self._planes())

    def _actors(self, tiles: list[int]) -> list[Actor]:
        actors = []
        taken: set[str] = set()
        for item, link, mesh, color in link_meshes(self.items, self.worlds[tiles[0]]):
            name = f"/{item.name}/{item.robot.model.links[link].name}" if item.robot else f"/static/{item.name}"
            if len(tiles) != len(self.worlds):
                name = f"/world {self.worlds[tiles[0]]}{name}"
            fresh, number = name, 2
            while fresh in taken:
                fresh, number = f"{name} {number}", number + 1
            taken.add(fresh)
            actors.append(Actor(fresh, item, link, mesh, color or self._color(item, link), tiles))
        return actors

    def _color(self, item: Placed, link: int) -> Color:
        """Return the colour of what has none: one for each robot and body, every other link a little lighter."""
        if item.robot is None:
            return STATIC
        free = is_free_body(item)
        alike = [i for i in self.items if i.robot is not None and is_free_body(i) == free]
        choice = BODIES if free else ROBOTS
        color = np.array(choice[alike.index(item) % len(choice)], float)
        if not free and link % 2:
            color += 0.3 * (255.0 - color)
        r, g, b = color.astype(int).tolist()
        return r, g, b

    def _planes(self) -> list[Plane]:
        planes = []
        for item in self.items:
            for shape in item.shapes if item.robot is None else []:
                if shape.kind == "plane":
                    given, world = shape.orientation, self.worlds[0]
                    R = shape.rotation if given is None else rotation_matrix(of_world(given, 1, world))
                    planes.append(Plane(item.name, of_world(shape.position, 1, world), R))
        return planes

    # -- where things are ----------------------------------------------------------------------------------------

    def poses(self, q: Tensor) -> dict[str, dict[int, Poses]]:
        """Return the poses of all links, by item and link, in the moments of q (F, B, nq), each in its tile."""
        found = {item.name: link_poses(self.items, item, q, self.worlds) for item in self.items}
        moved = self.offsets + self.travel[:, None]
        return {name: {k: (p + moved, o) for k, (p, o) in links.items()} for name, links in found.items()}

    def follow(self, q: Tensor, name: str) -> None:
        """Move everything against the level motion of a free body or of a `robot/link`, whose moments are q."""
        self.followed, _ = find_link(self.items, name)
        track = self.track(self.poses(q), name)[:, 0]
        self.travel = (track[:1] - track) * [1.0, 1.0, 0.0]

    def tile(self, size: float) -> None:
        """Put the worlds side by side in a square of tiles of this size [m]."""
        columns = int(np.ceil(np.sqrt(len(self.worlds))))
        rows = int(np.ceil(len(self.worlds) / columns))
        place = np.arange(len(self.worlds))
        x, y = place % columns - 0.5 * (columns - 1), 0.5 * (rows - 1) - place // columns
        self.offsets = size * np.stack([x, y, np.zeros(len(place))], -1)

    def arrange(self, q: Tensor, lines: Sequence[np.ndarray] = ()) -> Frame:
        """Tile the worlds where there are several, and return where the action of q (F, B, nq) and of lines is."""
        if len(self.worlds) == 1:
            return self.frame(self.poses(q), lines)
        self.offsets = np.zeros_like(self.offsets)
        alone = self.frame(self.poses(q), lines)
        self.tile(TILE_GAP * 2.0 * alone.radius / np.sqrt(2.0))
        return self.frame(self.poses(q), lines)

    def frame(self, poses: dict[str, dict[int, Poses]], lines: Sequence[np.ndarray] = ()) -> Frame:
        """Return where things happen: around all that moves, and static shapes that are not much larger.

        Where something is followed: around that.
        """
        actors = [actor for actor in self.actors if self.followed in (None, actor.item)]
        boxes = [corners_of(actor, poses[actor.item.name][actor.link]) for actor in actors]
        moving = [box.reshape(-1, 3) for actor, box in zip(actors, boxes) if not actor.is_static]
        static = [box[0].reshape(-1, 3) for actor, box in zip(actors, boxes) if actor.is_static]
        points = np.concatenate([np.zeros((0, 3)), *(moving or static), *lines])
        if not len(points):
            return Frame(np.zeros(3), 1.0)
        reach = _around(points).radius
        return _around(np.concatenate([points, *(x for x in static if _around(x).radius < reach)]))

    def track(self, poses: dict[str, dict[int, Poses]], name: str) -> np.ndarray:
        """Return the positions (F, W, 3) of a free body, or of a `robot/link`."""
        item, link = find_link(self.items, name)
        return poses[item.name][link][0]

    def links(self) -> list[str]:
        """Return the names of what moves: free bodies, and `robot/link` of the others that are drawn."""
        names = []
        for actor in self.actors:
            robot = actor.item.robot
            if robot is not None and robot.model.link_body[actor.link] != WORLD:
                free = is_free_body(actor.item)
                names.append(actor.item.name if free else f"{actor.item.name}/{robot.model.links[actor.link].name}")
        return list(dict.fromkeys(names))


def _differs(item: Placed) -> bool:
    """Tell whether worlds have different shapes of an item."""
    values = [value for shape in item.shapes for value in (shape.size, shape.position, shape.orientation)]
    return any(np.ndim(value) > 1 and len(value) > 1 for value in values if value is not None)


def corners_of(actor: Actor, pose: Poses) -> np.ndarray:
    """Return the corners (F, tiles, 8, 3) of a mesh's bounding box in each moment."""
    bounds = np.stack([actor.mesh.vertices.min(0), actor.mesh.vertices.max(0)])
    corners = np.array([bounds[[i, j, k], [0, 1, 2]] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
    position, wxyz = pose[0][:, actor.tiles], pose[1][:, actor.tiles]
    return np.einsum("ftij,cj->ftci", rotations(wxyz), corners) + position[:, :, None]


def rotations(wxyz: np.ndarray) -> np.ndarray:
    """Return the rotation matrices (..., 3, 3) of quaternions wxyz (..., 4)."""
    w, x, y, z = np.moveaxis(wxyz, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def _around(points: np.ndarray) -> Frame:
    """Return centre and radius of the ball around the bounding box of points (n, 3)."""
    low, high = points.min(0), points.max(0)
    return Frame(0.5 * (low + high), max(0.5 * float(np.linalg.norm(high - low)), 1e-3))


def round_down(x: float) -> float:
    """Return the largest of ..., 0.1, 0.2, 0.5, 1, 2, 5, ... that is not above a number."""
    power = 10.0 ** np.floor(np.log10(x))
    return float(power * max(digit for digit in (1.0, 2.0, 5.0) if digit * power <= x * (1 + 1e-9)))
