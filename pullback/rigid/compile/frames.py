"""Poses, velocities and Jacobians of links of a world, for all nodes of a trajectory in one launch each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pullback.core.errors import PullbackError
from pullback.core.program import Program
from pullback.description.compile import WORLD
from pullback.rigid.compile.compile import Forest, frame_topology
from pullback.rigid.world.loops import find_link
from pullback.robot import kinematics_kernels
from pullback.robot.operators import JACOBIAN, POSES, VELOCITIES
from pullback.robot.parameters import common_batch

if TYPE_CHECKING:
    from pullback.rigid.sim import Sim

Tensor = torch.Tensor


class LinkFrames:
    """The frames of links `robot/link`, or of free bodies, in a compiled world.

    An `offset` [m] moves their origins to other points, in each link's axes: (3,), (n, 3) or (B, n, 3).
    """

    def __init__(self, sim: Sim, names: Sequence[str]) -> None:
        self.sim, self.names = sim, list(names)
        self.ends = [find_link(sim.world.items, name) for name in names]
        forest = Forest(sim.world)
        self._bodies = [WORLD if end.body == WORLD else forest.body_of(end) for end in self.ends]
        rows, bodies = sim.arrays.nbody * int(kinematics_kernels.ROWS), sim.arrays.nbody
        # a trial that went wrong shows in its cost, so nothing is checked here
        poses, velocities, jacobian = (replace(x, checked=False) for x in (POSES, VELOCITIES, JACOBIAN))
        n, both = len(self.ends), [rows, bodies * int(kinematics_kernels.TWIST_ROWS)]
        self._poses = Program(poses, self.topology, rows=7 * n, scratch=[rows], vjp_scratch=[rows])
        self._velocities = Program(velocities, self.topology, rows=6 * n, scratch=both, vjp_scratch=both)
        self._jacobian = Program(jacobian, self.topology, rows=6 * sim.nv, scratch=[rows], vjp_scratch=[rows])

    def poses(self, q: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return positions [m] (..., B, n, 3) and quaternions xyzw (..., B, n, 4) at coordinates (..., B, nq)."""
        flat, *frames = self._inputs(q, offset)
        poses = self._poses(flat, *frames).view(*q.shape[:-1], -1, 7)
        return poses[..., :3], poses[..., 3:]

    def velocities(self, q: Tensor, qd: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return linear [m/s] and angular [rad/s] velocities (..., B, n, 3) in world axes."""
        flat, *frames = self._inputs(q, offset)
        found = self._velocities(flat, qd.reshape(-1, self.sim.nv), *frames).view(*q.shape[:-1], -1, 6)
        return found[..., :3], found[..., 3:]

    def jacobian(self, q: Tensor, offset: Tensor | None = None) -> Tensor:
        """Return (..., B, 6, nv): the first frame's linear, then its angular velocity in world axes, by qd."""
        return self._jacobian(*self._inputs(q, offset)).view(*q.shape[:-1], 6, self.sim.nv)

    def topology(self, device: str) -> Any:
        """Return the world's bodies as kernels read them, with these frames."""
        return frame_topology(self.sim.arrays, self._bodies, device)

    def parameters(self, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return where joints and the frames sit, as rows (b, n)."""
        parameters = self.sim.parameters
        links = [parameters.links(end.item, [end.link]) for end in self.ends]
        batch = common_batch(*(R for R, _ in links))
        R, p = (torch.cat([x.expand(batch, *x.shape[1:]) for x in parts], 1) for parts in zip(*links))
        if offset is not None:
            n = len(self.ends)
            if offset.shape[-1:] != (3,) or offset.shape[-2:-1] not in ((), (1,), (n,)) or offset.ndim > 3:
                raise PullbackError(f"offset has shape {tuple(offset.shape)}; expected (3,), ({n}, 3) or (B, {n}, 3)")
            p = p + (R @ offset.to(p).expand(*offset.shape[:-2], n, 3)[..., None])[..., 0]
            R = R.expand(len(p), -1, -1, -1)
        return parameters().placements, torch.cat([R.flatten(-2), p], -1).flatten(1)

    def _inputs(self, q: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        flat = q.reshape(-1, self.sim.nq)
        rows = self.parameters(offset)
        for x in rows:
            if len(x) != 1 and len(flat) % len(x):
                raise PullbackError(f"states of {len(flat)} worlds, parameters or offsets of {len(x)}; give as many")
        placements, frames = (x if len(x) == 1 else x.repeat(len(flat) // len(x), 1) for x in rows)
        return flat, placements, frames


class LinkFrame(LinkFrames):
    """The frame of the link `robot/link`, or of a free body, in a compiled world."""

    def __init__(self, sim: Sim, name: str) -> None:
        super().__init__(sim, [name])
        self.name = name

    def pose(self, q: Tensor, offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return position [m] (..., B, 3) and quaternion xyzw (..., B, 4) in the world, at coordinates (..., B, nq)."""
        position, quat = self.poses(q, offset)
        return position[..., 0, :], quat[..., 0, :]
