"""A trajectory ready to be drawn: its frames with poses, lines, contact forces and gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.description.visuals import Color
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.viewer.motion import Forces, contact_forces, film, finite_part, vectors_at
from pullback.viewer.stage import CLOUD, FORCE, GRADIENT, PATHS, Arrows, Stage

Tensor = torch.Tensor
Vectors = Mapping[str, Tensor | np.ndarray]
Times = Sequence[float] | np.ndarray
Places = Tensor | np.ndarray
Particles = tuple[Times, Places] | tuple[Times, Places, np.ndarray]
"""Times (S,), places (S, n, 3), and for cloth triangles (m, 3), for ropes segments (m, 2)."""


class Drawing(TypedDict, total=False):
    """What is drawn of a trajectory; the arguments of `save_replay`, which explains them."""

    controls: Tensor | None
    world: int | Sequence[int]
    forces: bool
    fps: float
    title: str
    paths: Sequence[str | Tensor | np.ndarray]
    gradients: Vectors | None
    particles: Particles | None
    follow: str


class Cloud:
    """Material points in time, coloured by their height at the start so that one sees them move."""

    def __init__(self, times: Times, points: Places) -> None:
        x = points.detach().cpu().numpy() if isinstance(points, Tensor) else np.asarray(points)
        self.times, self.points = np.asarray(times, dtype=np.float64), x.astype(np.float32)
        if x.ndim != 3 or x.shape[-1] != 3 or x.shape[:1] != self.times.shape or not x.size:
            raise PullbackError(
                f"particles are times {self.times.shape} and places {x.shape}; expected (S,) and (S, n, 3)"
            )
        low, high = x[0].min(0), x[0].max(0)
        share = ((x[0, :, 2] - low[2]) / max(high[2] - low[2], 1e-9))[:, None]
        self.colors = (np.array(CLOUD[0]) * (1.0 - share) + np.array(CLOUD[1]) * share).astype(np.uint8)
        self.size = 0.5 * float(np.prod(np.maximum(high - low, 1e-9)) / x.shape[1]) ** (1.0 / 3.0)

    def at(self, time: float) -> np.ndarray:
        """Return the points (n, 3) at the time nearest to this."""
        return self.points[int(np.abs(self.times - time).argmin())]


class Skin(Cloud):
    """A mesh that deforms in time: triangles (m, 3), or segments (m, 2) of ropes, between points."""

    def __init__(self, times: Times, points: Places, elements: np.ndarray) -> None:
        super().__init__(times, points)
        self.elements = np.asarray(elements, dtype=np.int64)
        if self.elements.ndim != 2 or self.elements.shape[1] not in (2, 3) or not len(self.elements):
            raise PullbackError(
                f"elements of a sheet are {self.elements.shape}; expected triangles (m, 3) or segments (m, 2)"
            )
        if self.elements.min() < 0 or self.elements.max() >= self.points.shape[1]:
            raise PullbackError(f"a sheet has an element with a vertex that is not among its {self.points.shape[1]}")

    def edges(self, time: float) -> np.ndarray:
        """Return the edges (e, 2, 3) at the time nearest to this."""
        ends = np.concatenate([np.stack([a, b], 1) for a, b in zip(self.elements.T, np.roll(self.elements, -1, 1).T)])
        return self.at(time)[np.unique(np.sort(ends, 1), axis=0)]


class Shot:
    """The frames of a trajectory: times [s] (F,), and everything that is seen in each of them."""

    def __init__(
        self,
        sim: Sim,
        states: Trajectory | Sequence[State],
        *,
        controls: Tensor | None = None,
        world: int | Sequence[int] = 0,
        forces: bool = True,
        fps: float = 30.0,
        title: str = "",
        paths: Sequence[str | Tensor | np.ndarray] = (),
        gradients: Vectors | None = None,
        particles: Particles | None = None,
        follow: str = "",
    ) -> None:
        worlds = [world] if isinstance(world, int) else list(world)
        if not worlds:
            raise PullbackError("world is empty; give the number of a world, or a list of them to draw side by side")
        self.title, self.follows = title, bool(follow)
        self.cloud = None if particles is None else Skin(*particles) if len(particles) == 3 else Cloud(*particles)
        self.moments = finite_part(film(sim, states, fps), worlds)
        self.times = self.moments.times
        self.stage = Stage(sim.world.items, worlds)
        if follow:
            if len(worlds) > 1 or len(paths) or particles is not None:
                raise PullbackError(f"follow={follow!r} is for one world, without paths and particles")
            self.stage.follow(self.moments.q, follow)
        given = [_points(path) for path in paths if not isinstance(path, str)]
        self.frame = self.stage.arrange(self.moments.q, given)
        self.poses = self.stage.poses(self.moments.q)
        self.lines = self._lines(paths)
        self.arrows: list[tuple[Arrows, list[Forces]]] = []
        if forces and (controls is not None or not sim.nu):
            self._add_arrows(Arrows("contact forces", " N", FORCE, self._unit), self._forces(sim, controls))
        if gradients:
            self._add_arrows(Arrows("gradients", "", GRADIENT, self._unit), self._gradients(gradients))

    @property
    def _unit(self) -> float:
        """Radius of one of the worlds [m], by which arrows are scaled."""
        return self.frame.radius / np.sqrt(len(self.stage.worlds))

    def _add_arrows(self, arrows: Arrows, moments: list[Forces]) -> None:
        if arrows.fit(moments):
            self.arrows.append((arrows, moments))

    def _forces(self, sim: Sim, controls: Tensor | None) -> list[Forces]:
        by_world = [contact_forces(sim, self.moments, controls, world) for world in self.stage.worlds]
        return [self._tiled([moments[k] for moments in by_world], k) for k in range(len(self.times))]

    def _tiled(self, by_world: Sequence[Forces], k: int) -> Forces:
        moved = self.stage.offsets + self.travel(k)
        points = [drawn.points + offset for drawn, offset in zip(by_world, moved)]
        return Forces(np.concatenate(points), np.concatenate([drawn.forces for drawn in by_world]))

    def _gradients(self, gradients: Vectors) -> list[Forces]:
        found = [
            vectors_at(self.moments, given, name, self.stage.track(self.poses, name), self.stage.worlds)
            for name, given in gradients.items()
        ]
        return [Forces(*(np.concatenate(x) for x in zip(*(each[k] for each in found)))) for k in range(len(self.times))]

    def _lines(self, paths: Sequence[str | Tensor | np.ndarray]) -> list[tuple[np.ndarray, Color]]:
        """Return the lines of all paths, once for each tile."""
        lines = []
        for number, path in enumerate(paths):
            tracks = self.stage.track(self.poses, path) if isinstance(path, str) else None
            for tile, offset in enumerate(self.stage.offsets):
                points = _points(path) + offset if tracks is None else tracks[:, tile]
                lines.append((points, PATHS[number % len(PATHS)]))
        return lines

    def travel(self, k: int) -> np.ndarray:
        """Return how far [m] everything is moved in a moment (3,)."""
        return self.stage.travel[min(k, len(self.stage.travel) - 1)]

    def caption(self, k: int) -> list[str]:
        """Return the lines of text of a frame: title, time, and the scales of arrows."""
        legends = [arrows.legend for arrows, _ in self.arrows]
        return [line for line in (self.title, f"{self.times[k]:.2f} s", *legends) if line]


def _points(given: str | Tensor | np.ndarray) -> np.ndarray:
    """Return the points (n, 3) of a path that is given by them."""
    points = given.detach().cpu().double().numpy() if isinstance(given, Tensor) else np.asarray(given, float)
    if points.ndim != 2 or points.shape[1] != 3 or len(points) < 2:
        raise PullbackError(f"a path has shape {points.shape}; expected points (n, 3), or the name of what moves")
    return points
