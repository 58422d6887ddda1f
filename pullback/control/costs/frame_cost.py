"""Cost of a link's pose; value and derivatives are one launch each for a whole trajectory."""

from __future__ import annotations

from typing import Literal

import torch

from pullback.control.costs import frame_kernels
from pullback.control.costs.costs import Blocks, BoundCost, Cost, Place, Values
from pullback.core.errors import PullbackError
from pullback.core.program import Operator, Program
from pullback.rigid.compile.frames import LinkFrame
from pullback.robot.kinematics_kernels import ROWS

Tensor = torch.Tensor

INPUTS = ("q", "placements", "frames", "target", "weights")
# a trial that diverged has a cost that is not finite, so nothing is checked here
VALUE = Operator("the cost of a frame", INPUTS, frame_kernels.value_kernels, checked=False)
EXPANSION = Operator("the cost of a frame", INPUTS, frame_kernels.expansion_kernels, checked=False)


class FramePose(Cost):
    """Half the weighted squared error of the pose of a link `robot/link`, or of a free body, in the world.

    Give `position` [m] (3,), `orientation` (4,) xyzw, or both; (B, ...) for one per problem, (N, B, ...) for one
    per node. The residual is the position error in world axes, then the rotation vector from the target orientation in
    its axes; `weights` is a number, or one per residual. With `residual="screw"` both are the screw motion from one
    pose to the other, the logarithm of SE(3), in the target's axes. Second derivatives are Gauss–Newton's.
    """

    def __init__(
        self,
        link: str,
        position: Values | None = None,
        orientation: Values | None = None,
        weights: Values = 1.0,
        *,
        residual: Literal["split", "screw"] = "split",
    ) -> None:
        self.link, self.position, self.orientation, self.weights = link, position, orientation, weights
        self.residual = residual

    def bind(self, place: Place, scale: Tensor) -> BoundCost:
        """Find the link and check the pose."""
        what = f"FramePose of {self.link!r}"
        given = [x is not None for x in (self.position, self.orientation)]
        if not any(given):
            raise PullbackError(f"a {what} has neither position nor orientation; give one or both")
        if self.residual not in ("split", "screw") or (self.residual == "screw" and not all(given)):
            raise PullbackError(f"a {what} has residual={self.residual!r}; 'split', or 'screw' with a whole pose")
        frame = LinkFrame(place.sim, self.link)
        p = place.tensor(f"the position of a {what}", (0.0,) * 3 if self.position is None else self.position, 3)
        upright = (0.0, 0.0, 0.0, 1.0)
        quat = place.tensor(
            f"the orientation of a {what}", upright if self.orientation is None else self.orientation, 4
        )
        length = torch.linalg.vector_norm(quat, dim=-1, keepdim=True)
        if bool((length == 0.0).any()):
            raise PullbackError(f"the orientation of a {what} is zero; give a quaternion xyzw")
        weights = scale * place.weights(f"the weights of a {what}", self.weights, 3 * sum(given))
        pad = (0 if given[0] else 3, 0 if given[1] else 3)
        weights = torch.nn.functional.pad(weights, pad)
        mode = torch.full_like(quat[..., :1], float(self.residual == "screw"))
        shape = torch.broadcast_shapes(p.shape[:-1], quat.shape[:-1])
        target = torch.cat([x.expand(*shape, -1) for x in (p, quat / length, mode)], -1)
        return _BoundFrame(frame, target, weights)


class _BoundFrame(BoundCost):
    def __init__(self, frame: LinkFrame, target: Tensor, weights: Tensor) -> None:
        self.frame, self.target, self.weights = frame, target, weights
        nv, rows = frame.sim.nv, frame.sim.arrays.nbody * int(ROWS)
        self.value = Program(VALUE, frame.topology, rows=1, scratch=[rows], vjp_scratch=[rows])
        scratch = [rows + 6 * nv]
        self.expansion = Program(EXPANSION, frame.topology, rows=(nv, nv * nv), scratch=scratch, vjp_scratch=scratch)
        self.rows: dict[torch.Size, tuple[Tensor, ...]] = {}

    def renew(self) -> None:
        self.rows = {}

    def _inputs(self, q: Tensor) -> tuple[Tensor, ...]:
        """Return nodes as rows, with targets and weights as one row or one per node."""
        nodes = q.shape[:-1]
        if nodes not in self.rows:
            placements, frame = self.frame.parameters()
            worlds = [x if len(x) == 1 else x.expand(*nodes, -1) for x in (placements, frame)]
            asked = [x if x.shape[:-1].numel() == 1 else x.expand(*nodes, -1) for x in (self.target, self.weights)]
            self.rows[nodes] = tuple(x.reshape(-1, x.shape[-1]).contiguous() for x in (*worlds, *asked))
        return q.reshape(-1, q.shape[-1]), *self.rows[nodes]

    def values(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        return self.value.run(self._inputs(q))[0].view(q.shape[:-1])

    def add(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks) -> None:
        gradient, hessian = self.expansion.run(self._inputs(q))
        nv = gradient.shape[-1]
        into.x[..., :nv] += gradient.view(*q.shape[:-1], nv)
        into.xx[..., :nv, :nv] += hessian.view(*q.shape[:-1], nv, nv)
