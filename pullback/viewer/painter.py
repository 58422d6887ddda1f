"""Pictures of a stage without a browser or a graphics card: triangles, ground, shadows, lines and arrows as pixels.

The camera is that of replays. Equations are those of docs/derivations/rasteriser.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from pullback.core.passes import Pass
from pullback.description.visuals import Color
from pullback.viewer.motion import Poses
from pullback.viewer.part import Surface
from pullback.viewer.raster_kernels import BAND, raster_kernels
from pullback.viewer.stage import FIELD_OF_VIEW, Actor, Frame, Plane, Stage, camera_position, rotations, round_down
from pullback.viewer.things import Dots, Drawn, Segments, Web

SAMPLES = 2
"""Pixels are computed so many times finer, each way, and averaged."""
LIGHT = np.array([0.35, -0.45, 0.82]) / np.linalg.norm([0.35, -0.45, 0.82])
"""Towards the light."""
SKY = np.array([250.0, 250.0, 251.0])
GROUND = np.array([232.0, 232.0, 228.0])
LINES = np.array([206.0, 206.0, 202.0])
SHADOW = 0.72
"""How bright the ground is in a shadow."""
NEAREST = 0.02
"""Triangles nearer than this share of the stage's radius are not drawn."""


class Triangles(NamedTuple):
    """Triangles on the screen: corners (n, 3, 3) as x, y [pixels] and 1/z, brightness (n, 3), colours (n, 3)."""

    corners: np.ndarray
    bright: np.ndarray
    colors: np.ndarray


class Grid(NamedTuple):
    """What is seen of a plane, in the n pixels `seen` (H, W)."""

    rotation: np.ndarray
    seen: np.ndarray
    along: np.ndarray
    """Places (n, 2) [m] on the plane."""
    pixel: np.ndarray
    """Width (n,) [m] of a pixel there, at least that of a line."""
    fade: np.ndarray
    """How much is seen of it (n,)."""
    base: np.ndarray
    """Its colour (3,)."""


class Painter:
    """A camera in front of a stage; `paint` returns its picture of a moment."""

    def __init__(self, stage: Stage, frame: Frame, size: tuple[int, int]) -> None:
        self.stage, self.frame = stage, frame
        self.width, self.height = SAMPLES * size[0], SAMPLES * size[1]
        self.eye = camera_position(frame)
        forward = (frame.centre - self.eye) / np.linalg.norm(frame.centre - self.eye)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        right /= np.linalg.norm(right)
        self.axes = np.stack([right, np.cross(forward, right), forward])
        # a picture that is higher than wide shows as much from side to side
        self.focal = 0.5 * min(self.width, self.height) / np.tan(0.5 * FIELD_OF_VIEW)
        self.normals = [_vertex_normals(actor) for actor in stage.actors]
        self.grids, self.ground = self._grids()
        self.backdrop = np.broadcast_to(SKY, (self.height, self.width, 3)).copy()
        self.move_ground(np.zeros(3))

    # -- the camera ----------------------------------------------------------------------------------------------

    def _project(self, points: np.ndarray) -> np.ndarray:
        """Return x, y [pixels] and 1/z of points (..., 3) by eq. (1); 1/z is 0 behind the camera."""
        seen = (points - self.eye) @ self.axes.T
        z = seen[..., 2:]
        w = np.where(z > NEAREST * self.frame.radius, 1.0 / np.where(z == 0.0, 1.0, z), 0.0)
        middle = 0.5 * np.array([self.width, self.height])
        return np.concatenate([middle + self.focal * seen[..., :2] * w, w], -1)

    def _grids(self) -> tuple[list[Grid], np.ndarray]:
        """Return what is seen of planes, and 1/z of them (H, W), 0 where there is sky."""
        columns, rows = np.meshgrid(np.arange(self.width) + 0.5, np.arange(self.height) + 0.5)
        middle = 0.5 * np.array([self.width, self.height])
        rays = np.stack([(columns - middle[0]) / self.focal, (rows - middle[1]) / self.focal, np.ones_like(rows)], -1)
        rays = rays @ self.axes
        grids: list[Grid] = []
        nearness = np.zeros((self.height, self.width))
        radius = self.frame.radius
        planes = [(plane, 1.0) for plane in self.stage.planes]
        planes = planes or [(Plane("floor", self.frame.centre - [0.0, 0.0, radius], np.eye(3)), 0.0)]
        for plane, opacity in planes:
            normal = plane.rotation[:, 2]
            w = (rays @ normal) / (normal @ (plane.point - self.eye))
            seen = w > np.maximum(nearness, 1e-6 / radius)
            points = self.eye + rays[seen] / w[seen][:, None]
            along = ((points - plane.point) @ plane.rotation)[:, :2]
            far = np.linalg.norm(points - self.frame.centre, axis=1) / radius
            fade = np.clip(1.0 - (far - 2.0) / 8.0, 0.0, 1.0)
            pixel = np.maximum(1.0 / (self.focal * w[seen]), 0.002 * radius)
            base = opacity * GROUND + (1.0 - opacity) * SKY
            grids.append(Grid(plane.rotation, seen, along, pixel, fade, base))
            if opacity:
                nearness[seen] = w[seen]
        return grids, nearness

    def move_ground(self, travel: np.ndarray) -> None:
        """Draw the planes, the lines on them moved along (3,) [m]."""
        cell = round_down(0.3 * self.frame.radius)
        for grid in self.grids:
            along = (grid.along - (travel @ grid.rotation)[:2]) / cell
            away = np.abs(along - np.round(along)).min(1) * cell
            line = np.clip(1.5 - away / grid.pixel, 0.0, 1.0)
            plain = SKY + grid.fade[:, None] * (grid.base - SKY)
            self.backdrop[grid.seen] = plain + (grid.fade * line)[:, None] * (LINES - grid.base)

    # -- a picture -----------------------------------------------------------------------------------------------

    def paint(self, poses: dict[str, dict[int, Poses]], k: int, things: Sequence[Drawn | Surface] = ()) -> np.ndarray:
        """Return the picture (H, W, 3) of bytes of moment k and of things."""
        placed = [self._place(number, poses, k) for number in range(len(self.stage.actors))]
        drawn = [self._mesh(number, *placed[number]) for number in range(len(placed))]
        drawn += [self._thing(thing) for thing in things]
        everything = Triangles(*(np.concatenate(x) for x in zip(*drawn))) if drawn else None
        depth = torch.from_numpy(self.ground.astype(np.float32))
        number, shade = self._fill(everything, depth)
        picture = self.backdrop.copy()
        if self.stage.planes:
            self._add_shadows(picture, placed)
        if everything is not None:
            hit = number >= 0
            picture[hit] = everything.colors[number[hit]] * shade[hit][:, None]
        fine = np.clip(picture, 0.0, 255.0).reshape(self.height // SAMPLES, SAMPLES, self.width // SAMPLES, SAMPLES, 3)
        return fine.mean((1, 3)).round().astype(np.uint8)

    def _place(self, number: int, poses: dict[str, dict[int, Poses]], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return vertices and normals (tiles, n, 3) of an actor where it is."""
        actor = self.stage.actors[number]
        position, wxyz = (x[k, actor.tiles] for x in poses[actor.item.name][actor.link])
        R = rotations(wxyz)
        vertices = np.einsum("tij,nj->tni", R, actor.mesh.vertices) + position[:, None]
        return vertices, np.einsum("tij,nj->tni", R, self.normals[number])

    def _mesh(self, number: int, vertices: np.ndarray, normals: np.ndarray) -> Triangles:
        actor = self.stage.actors[number]
        # seen from behind, a surface turns its other side
        turned = np.sign(np.einsum("tni,tni->tn", normals, self.eye - vertices))[..., None] * normals
        bright = 0.42 + 0.14 * turned[..., 2] + 0.5 * np.clip(turned @ LIGHT, 0.0, 1.0)
        faces = actor.mesh.faces
        return self._visible(self._project(vertices)[:, faces], bright[:, faces], actor.color)

    def _visible(self, corners: np.ndarray, bright: np.ndarray, color: Color) -> Triangles:
        """Return those of the triangles (..., 3, 3) that are in front of the camera."""
        corners, bright = corners.reshape(-1, 3, 3), bright.reshape(-1, 3)
        keep = (corners[..., 2] > 0.0).all(1)
        count = int(keep.sum())
        return Triangles(corners[keep], bright[keep], np.broadcast_to(np.array(color, float), (count, 3)))

    def _thing(self, thing: Drawn | Surface) -> Triangles:
        if isinstance(thing, Segments):
            return self._segments(*thing[:3])
        if isinstance(thing, Dots):
            return self._dots(*thing)
        if isinstance(thing, Web):
            return self._segments(thing.points[thing.edges], thing.color, 0.0)
        return self._surface(thing)

    def _segments(self, points: np.ndarray, color: Color, head: float) -> Triangles:
        """Return lines or arrows as flat triangles that face the camera, a little in front of what they lie on."""
        ends = points.astype(float)
        if head:
            way = ends[:, 1] - ends[:, 0]
            neck = ends[:, 1] - head * way / np.linalg.norm(way, axis=1, keepdims=True)
        else:
            neck = ends[:, 1]
        start, neck, tip = self._project(ends[:, 0]), self._project(neck), self._project(ends[:, 1])
        across = tip[:, :2] - start[:, :2]
        across = np.stack([-across[:, 1], across[:, 0]], -1)
        across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-9)
        thick = (0.2 * head or 0.004 * self.frame.radius) * self.focal

        def aside(corner: np.ndarray, sign: float, factor: float = 1.0) -> np.ndarray:
            shift = np.maximum(factor * thick * corner[:, 2:], 1.0) * across
            return np.concatenate([corner[:, :2] + sign * shift, corner[:, 2:] * 1.003], 1)

        four = aside(start, 1.0), aside(start, -1.0), aside(neck, 1.0), aside(neck, -1.0)
        triangles = [np.stack([four[0], four[1], four[2]], 1), np.stack([four[1], four[2], four[3]], 1)]
        if head:
            sides = aside(neck, 1.0, 2.6), aside(neck, -1.0, 2.6), aside(tip, 0.0)
            triangles.append(np.stack(sides, 1))
        corners = np.concatenate(triangles)
        return self._visible(corners, np.full((len(corners), 3), 0.95), color)

    def _dots(self, points: np.ndarray, colors: np.ndarray, size: float) -> Triangles:
        """Return points as squares that face the camera, of a width [m]."""
        middle = self._project(points.astype(float))
        half = np.maximum(0.5 * size * self.focal * middle[:, 2], 0.7)[:, None]
        four = [
            middle + np.concatenate([half * x, half * y, 0.0 * half], 1)
            for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))
        ]
        corners = np.concatenate([np.stack([four[0], four[1], four[2]], 1), np.stack([four[0], four[2], four[3]], 1)])
        keep = (corners[..., 2] > 0.0).all(1)
        twice = np.concatenate([colors, colors]).astype(float)[keep]
        return Triangles(corners[keep], np.ones((len(twice), 3)), twice)

    def _surface(self, surface: Surface) -> Triangles:
        """Return a surface with colours of its own, a little darker where it turns away from the light."""
        corners = surface.vertices[surface.faces]
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-30)
        bright = np.repeat((0.85 + 0.15 * np.clip(normals @ LIGHT, 0.0, 1.0))[:, None], 3, 1)
        projected = self._project(corners)
        keep = (projected[..., 2] > 0.0).all(1)
        colors = surface.colors.astype(float)[surface.faces].mean(1)
        return Triangles(projected[keep], bright[keep], colors[keep])

    def _add_shadows(self, picture: np.ndarray, placed: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Darken the planes where something stands between them and the light, eq. (5)."""
        for plane in self.stage.planes:
            normal = plane.rotation[:, 2]
            slope = float(normal @ LIGHT)
            if slope < 0.1:
                continue
            drawn = []
            for actor, (vertices, _) in zip(self.stage.actors, placed):
                height = np.maximum((vertices - plane.point) @ normal, 0.0)
                pushed = self._project(vertices - height[..., None] / slope * LIGHT)[:, actor.mesh.faces]
                drawn.append(self._visible(pushed, np.ones(pushed.shape[:-1]), actor.color))
            if not drawn:
                continue
            nothing = torch.zeros(self.height, self.width)
            number, _ = self._fill(Triangles(*(np.concatenate(x) for x in zip(*drawn))), nothing)
            near = np.abs(nothing.numpy() - self.ground) < 0.02 * self.ground
            picture[(number >= 0) & near] *= SHADOW

    def _fill(self, triangles: Triangles | None, depth: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Fill triangles in front of the depths; return the number of the nearest (-1: none) and its shade (H, W)."""
        number = torch.full(depth.shape, -1, dtype=torch.int32)
        shade = torch.zeros(depth.shape)
        if triangles is not None and len(triangles.corners):
            arguments = {
                "corners": torch.from_numpy(triangles.corners.astype(np.float32)),
                "bright": torch.from_numpy(triangles.bright.astype(np.float32)),
                "depth": depth,
                "number": number,
                "shade": shade,
            }
            Pass(raster_kernels().fill, arguments, "cpu")(0, -(-self.height // BAND))
        return number.numpy(), shade.numpy()


def _vertex_normals(actor: Actor) -> np.ndarray:
    """Return the normals (n, 3) of a mesh's vertices: those of the faces around each, weighted by their areas."""
    vertices, faces = actor.mesh.vertices, actor.mesh.faces
    first, second, third = (vertices[faces[:, corner]] for corner in range(3))
    across = np.cross(second - first, third - first)
    normals = np.zeros_like(vertices, dtype=float)
    for corner in range(3):
        np.add.at(normals, faces[:, corner], across)
    return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-30)
