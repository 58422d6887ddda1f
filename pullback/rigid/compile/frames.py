"""The pose and the Jacobian of one link of a world, for all nodes of a trajectory in one launch each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from pullback.core.program import Program
from pullback.description.compile import WORLD
from pullback.rigid.compile.compile import Forest, frame_topology
from pullback.rigid.sim import Sim
from pullback.rigid.world.loops import find_link
from pullback.robot import kinematics_kernels
from pullback.robot.operators import JACOBIAN, POSES

Tensor = torch.Tensor


class LinkFrame:
    """The frame of the link `robot/link`, or of a free body, in a compiled world."""

    def __init__(self, sim: Sim, name: str) -> None:
        self.sim, self.name = sim, name
        self.end = find_link(sim.world.items, name)
        body = WORLD if self.end.body == WORLD else Forest(sim.world).body_of(self.end)
        rows = [sim.arrays.nbody * int(kinematics_kernels.ROWS)]

        self._body = body
        # a trial that went wrong shows in its cost, so nothing is checked here
        poses, jacobian = replace(POSES, checked=False), replace(JACOBIAN, checked=False)
        self._poses = Program(poses, self.topology, rows=7, scratch=rows, vjp_scratch=rows)
        self._jacobian = Program(jacobian, self.topology, rows=6 * sim.nv, scratch=rows, vjp_scratch=rows)

    def pose(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return position [m] (..., B, 3) and quaternion xyzw (..., B, 4) in the world, at coordinates (..., B, nq)."""
        poses = self._poses(*self._inputs(q)).view(*q.shape[:-1], 7)
        return poses[..., :3], poses[..., 3:]

    def jacobian(self, q: Tensor) -> Tensor:
        """Return (..., B, 6, nv): the linear, then the angular velocity in world axes, by qd."""
        return self._jacobian(*self._inputs(q)).view(*q.shape[:-1], 6, self.sim.nv)

    def topology(self, device: str) -> Any:
        """Return the world's bodies as kernels read them, with this frame."""
        return frame_topology(self.sim.arrays, self._body, device)

    def parameters(self) -> tuple[Tensor, Tensor]:
        """Return where joints and the frame sit, as rows (b, n)."""
        parameters = self.sim.parameters
        R, p = parameters.links(self.end.item, [self.end.link])
        return parameters().placements, torch.cat([R.flatten(-2), p], -1).flatten(1)

    def _inputs(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = q.reshape(-1, self.sim.nq)
        placements, frame = [x if len(x) == 1 else x.repeat(len(flat) // len(x), 1) for x in self.parameters()]
        return flat, placements, frame
