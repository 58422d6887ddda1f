"""Where shapes of a world are and how they move, and what impulses on them do to the bodies.

docs/derivations/soft_coupling.md, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pullback.core.program import Program
from pullback.description.compile import WORLD
from pullback.rigid.compile.compile import frame_topology, make_scene
from pullback.rigid.state import CONTACT_OVERFLOW, Status
from pullback.robot import aba_kernels, kinematics_kernels, rnea_kernels
from pullback.robot.operators import FORWARD_DYNAMICS, POSES, VELOCITIES
from pullback.spatial.rotations_torch import rotation_from_quaternion

if TYPE_CHECKING:
    from pullback.rigid.sim import Sim

Tensor = torch.Tensor

SHAPE_ROWS = 16
"""Half extents, radius, rotation and position on the body, as `ShapeRows.geometry` has them."""


class ShapeParameters(NamedTuple):
    """The numbers of a world that motion of its shapes depends on, (b, n) each; `packed`: all that a step reads."""

    packed: Tensor
    placements: Tensor
    inertias: Tensor
    dofs: Tensor
    frames: Tensor


class ShapeMotion:
    """Some shapes of a compiled world, by their numbers in `sim.arrays`."""

    def __init__(self, sim: Sim, shapes: Sequence[int]) -> None:
        self.sim, self.shapes = sim, list(shapes)
        self.bodies = [int(sim.arrays.shape_body[k]) for k in shapes]
        arrays, n = sim.arrays, len(self.shapes)
        rows = arrays.nbody * int(kinematics_kernels.ROWS)
        both = [rows, arrays.nbody * int(kinematics_kernels.TWIST_ROWS)]
        poses, velocities = (replace(x, checked=False) for x in (POSES, VELOCITIES))
        self._poses = Program(poses, self._frames, rows=7 * n, scratch=[rows], vjp_scratch=[rows])
        self._velocities = Program(velocities, self._frames, rows=6 * n, scratch=both, vjp_scratch=both)
        vjp_rows = arrays.nbody * max(int(aba_kernels.ROWS), int(rnea_kernels.VJP_ROWS))
        self._response = Program(
            replace(FORWARD_DYNAMICS, checked=False),
            lambda device: make_scene(arrays, device).topology,
            rows=arrays.nv,
            scratch=[arrays.nbody * int(aba_kernels.ROWS)],
            vjp_scratch=[vjp_rows, arrays.nv, 0],
        )
        moving = [k for k, body in enumerate(self.bodies) if body != WORLD]
        self._moving = torch.tensor(moving, dtype=torch.long, device=sim.device)
        self._moved = torch.tensor([self.bodies[k] for k in moving], dtype=torch.long, device=sim.device)
        self._still = torch.zeros(1, 3, dtype=sim.dtype, device=sim.device)

    def _frames(self, device: str) -> Any:
        return frame_topology(self.sim.arrays, self.bodies, device)

    def parameters(self) -> ShapeParameters:
        """Return the present numbers, differentiable in what they were made of."""
        rows = self.sim.parameters()
        frames = self._chosen(rows.shapes)[..., 4:].flatten(1)
        return ShapeParameters(self.sim.parameters.packed(), rows.placements, rows.inertias, rows.dofs, frames)

    def extents(self) -> Tensor:
        """Return half extents and radius [m] of each shape (b, n, 4)."""
        return self._chosen(self.sim.parameters().shapes)[..., :4]

    def _chosen(self, rows: Tensor) -> Tensor:
        return rows.unflatten(1, (-1, SHAPE_ROWS))[:, self.shapes]

    def motion(self, given: ShapeParameters, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return origins (B, n, 3), rotations (B, n, 3, 3), their velocities and angular velocities in world axes."""
        poses = self._poses(q, given.placements, given.frames).unflatten(1, (-1, 7))
        twists = self._velocities(q, qd, given.placements, given.frames).unflatten(1, (-1, 6))
        return poses[..., :3], rotation_from_quaternion(poses[..., 3:]), twists[..., :3], twists[..., 3:]

    def kicked(self, given: ShapeParameters, q: Tensor, qd: Tensor, R: Tensor, impulses: Tensor) -> Tensor:
        """Return velocities after impulses (B, n, 6) on the shapes, eq. (18): torque about their origins, then force.

        R: rotations of the shapes as `motion` returns them; impulses are in world axes.
        """
        if not len(self._moving):
            return qd
        frames = given.frames.unflatten(1, (-1, 12))[:, self._moving]
        R_BS, p_BS = frames[..., :9].unflatten(-1, (3, 3)), frames[..., 9:]
        R_BW = R_BS @ R[:, self._moving].mT
        torque, force = (
            (R_BW @ x[..., None])[..., 0] for x in impulses[:, self._moving].split(3, -1)
        )  # fmt: skip
        torque = torque + torch.linalg.cross(p_BS.expand_as(force), force)
        on_bodies = force.new_zeros(len(force), self.sim.arrays.nbody, 6)
        on_bodies = on_bodies.index_add(1, self._moved, torch.cat([torque, force], -1))
        zero = torch.zeros_like(qd)
        forces = on_bodies.flatten(1)
        change = self._response(q, zero, zero, forces, self._still, given.placements, given.inertias, given.dofs)
        return qd + change

    @torch.no_grad()
    def effective_masses(self, q: Tensor) -> Tensor:
        """Return the least mass [kg] (B, n) that a force at each shape's origin meets; infinite for what stands still.

        1/λ_max of J M⁻¹Jᵀ for the linear motion of the origin.
        """
        given, worlds, n = self.parameters(), len(q), len(self.shapes)
        found = torch.full((worlds, n), torch.inf, dtype=q.dtype, device=q.device)
        still = q.new_zeros(worlds, self.sim.nv)
        R = self.motion(given, q, still)[1]
        for k in self._moving.tolist():
            columns = []
            for axis in range(3):
                impulse = q.new_zeros(worlds, n, 6)
                impulse[:, k, 3 + axis] = 1.0
                qd = self.kicked(given, q, still, R, impulse)
                columns.append(self.motion(given, q, qd)[2][:, k])
            compliance = torch.stack(columns, -1)
            found[:, k] = 1.0 / torch.linalg.eigvalsh(0.5 * (compliance + compliance.mT))[:, -1].clamp(min=1e-30)
        return found

    def step(
        self, given: ShapeParameters, q: Tensor, qd: Tensor, impulses: Tensor | None, u: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, Status]:
        """Return q, qd, impulses and status after a step of the world with these numbers."""
        sim = self.sim
        while True:
            q1, qd1, kept, rows = sim._programs.step().outputs(q, qd, impulses, u, given.packed)
            status = Status(rows, sim.substeps)
            if not (status.shows() & CONTACT_OVERFLOW and sim._make_room()):
                return q1, qd1, kept, status
