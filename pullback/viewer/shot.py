"""A trajectory ready to be drawn: its frames with poses, and the things that are seen beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.viewer.motion import Forces, contact_forces, film, finite_part, vectors_at
from pullback.viewer.stage import Stage
from pullback.viewer.things import FORCE, GRADIENT, Arrows, Cloud, Line, Places, Skin, Thing, Times, points_of

Tensor = torch.Tensor
Vectors = Mapping[str, Tensor | np.ndarray]
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
        self.moments = finite_part(film(sim, states, fps), worlds)
        self.times = self.moments.times
        self.stage = Stage(sim.world.items, worlds)
        if follow:
            if len(worlds) > 1 or len(paths) or particles is not None:
                raise PullbackError(f"follow={follow!r} is for one world, without paths and particles")
            self.stage.follow(self.moments.q, follow)
        given = [points_of(path) for path in paths if not isinstance(path, str)]
        self.frame = self.stage.arrange(self.moments.q, given)
        self.poses = self.stage.poses(self.moments.q)
        self.things: list[Thing] = [*self._lines(paths)]
        """What is seen beside the stage: files that draw ask each for what to draw in a frame."""
        if particles is not None:
            self.things.append(Skin(self.times, *particles) if len(particles) == 3 else Cloud(self.times, *particles))
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
            self.things.append(arrows)

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

    def _lines(self, paths: Sequence[str | Tensor | np.ndarray]) -> list[Line]:
        """Return the lines of all paths, once for each tile."""
        lines: list[Line] = []
        for number, path in enumerate(paths):
            tracks = self.stage.track(self.poses, path) if isinstance(path, str) else None
            for tile, offset in enumerate(self.stage.offsets):
                points = points_of(path) + offset if tracks is None else tracks[:, tile]
                lines.append(Line(f"paths/{len(lines)}", points, number))
        return lines

    def travel(self, k: int) -> np.ndarray:
        """Return how far [m] everything is moved in a moment (3,)."""
        return self.stage.travel[min(k, len(self.stage.travel) - 1)]

    def caption(self, k: int) -> list[str]:
        """Return the lines of text of a frame: title, time, and the scales of arrows."""
        legends = [thing.legend for thing in self.things]
        return [line for line in (self.title, f"{self.times[k]:.2f} s", *legends) if line]
