"""Cost of the contact force on a body; forces and their derivatives are computed for a whole motion at once."""

from __future__ import annotations

import torch

from pullback.control.costs.costs import Blocks, BoundCost, Cost, Place, Values
from pullback.core.errors import PullbackError
from pullback.rigid.observe import pair_signs
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.integrators import SMOOTH

Tensor = torch.Tensor

STEPS = {torch.float64: (1e-7, 1e-6, 1e-5), torch.float32: (1e-5, 1e-3, 1e-2)}
"""Step of central differences in coordinates, velocities, and controls of magnitude 1 or less."""

CHUNK_BYTES = 2**29
"""Approximate limit on the memory of one launch."""


class ContactForce(Cost):
    """Half the weighted squared difference of the contact force [N] on a body, in world axes, from a target.

    `body` is a link `robot/link`, a free body, a static one, or a whole robot; the force is the sum over all its
    contacts, or over those with `other` alone, and that of the step which the control drives (of its first substep).
    `target` is (3,), (B, 3) for one per problem, or (N, B, 3) for one per node; `weights` a number or the same shapes.
    Warm-start impulses count as zero. If contacts exceed the capacity the cost is NaN, so that a line search rejects
    the step.

    Second derivatives are Gauss–Newton's. The force's Jacobian comes from central differences, all nodes and
    directions in parallel: 2 (2 nv + nu) contact problems per node. Perturbations are 1e-7 in coordinates, 1e-6 in
    velocities and 1e-5 max(1, |u|) in a control u in float64; 1e-5, 1e-3 and 1e-2 max(1, |u|) in float32. Forces have
    kinks where a contact is made or lost, sticking turns into sliding, or a gap closes: there the derivative is the
    mean of both sides, for instance by the height of a body at rest on hard ground. Without contact the force and its
    derivative are zero, so a search needs a first guess that touches.
    """

    def __init__(
        self, body: str, target: Values = (0.0, 0.0, 0.0), weights: Values = 1.0, other: str | None = None
    ) -> None:
        self.body, self.target, self.weights, self.other = body, target, weights, other

    def bind(self, place: Place, scale: Tensor) -> BoundCost:
        """Find the pairs of shapes that count, and check target and weights."""
        sim, what = place.sim, f"ContactForce on {self.body!r}"
        if place.is_end:
            raise PullbackError(f"a {what} is in the terminal cost, where there is no control; make it running")
        if sim.integrator in SMOOTH:
            raise PullbackError(
                f"a {what} has no contacts: integrator={sim.integrator!r} is for motion without them; "
                f"compile with integrator='semi_implicit'"
            )
        signs = pair_signs(sim, self.body, self.other)
        target = place.tensor(f"the target of a {what}", self.target, 3)
        weights = scale * place.weights(f"the weights of a {what}", self.weights, 3)
        return _BoundForce(sim, torch.as_tensor(signs, dtype=sim.dtype, device=sim.device), target, weights)


class _BoundForce(BoundCost):
    def __init__(self, sim: Sim, signs: Tensor, target: Tensor, weights: Tensor) -> None:
        self.sim, self.signs, self.target, self.weights = sim, signs, target, weights
        report = sim._programs.contacts()
        rows = report.scratch[0] + report.rows[0] + sim.parameters.packed().shape[1]
        self.chunk = max(1, CHUNK_BYTES // (rows * signs.element_size()))
        impulses = sim._programs.nimpulse
        self.impulses = signs.new_zeros(1, impulses) if impulses else None

    def values(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        r = self.force(q, qd, u) - self.target
        return 0.5 * (self.weights * r * r).sum(-1)

    def add(self, q: Tensor, qd: Tensor, u: Tensor | None, into: Blocks) -> None:
        assert into.u is not None
        assert into.uu is not None
        assert into.ux is not None
        J, n = self.jacobian(q, qd, u), 2 * self.sim.nv
        slope = self.weights * (self.force(q, qd, u) - self.target)
        gradient = (slope[..., None, :] @ J)[..., 0, :]
        hessian = J.mT @ (self.weights[..., None] * J)
        into.x.add_(gradient[..., :n])
        into.u.add_(gradient[..., n:])
        into.xx.add_(hessian[..., :n, :n])
        into.uu.add_(hessian[..., n:, n:])
        into.ux.add_(hessian[..., n:, :n])

    def force(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        """Return the force on the body (..., B, 3)."""
        x, v, c = self._rows(q, qd, u)
        numbers = torch.arange(len(x), device=x.device).split(self.chunk)
        return torch.cat([self._total(x[k], v[k], c[k], k) for k in numbers]).view(*q.shape[:-1], 3)

    def jacobian(self, q: Tensor, qd: Tensor, u: Tensor | None) -> Tensor:
        """Return the force's derivatives by state and control (..., B, 3, 2 nv + nu)."""
        x, v, c = self._rows(q, qd, u)
        by_q, by_qd, by_u = STEPS[self.sim.dtype]
        steps = torch.cat([torch.full_like(v, by_q), torch.full_like(v, by_qd), by_u * c.abs().clamp(min=1.0)], -1)
        size = steps.shape[-1]
        numbers = torch.arange(len(x), device=x.device).split(max(1, self.chunk // (2 * size)))
        rows = torch.cat([self._differences(x[k], v[k], c[k], steps[k], k) for k in numbers])
        return rows.view(*q.shape[:-1], 3, size)

    @staticmethod
    def _rows(q: Tensor, qd: Tensor, u: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return nodes as rows."""
        assert u is not None
        return q.reshape(-1, q.shape[-1]), qd.reshape(-1, qd.shape[-1]), u.reshape(-1, u.shape[-1])

    def _differences(self, q: Tensor, qd: Tensor, u: Tensor, steps: Tensor, numbers: Tensor) -> Tensor:
        """Return the derivatives (k, 3, 2 nv + nu) at k nodes, all directions in one launch."""
        n, (k, size) = 2 * self.sim.nv, steps.shape
        moves = torch.diag_embed(steps).movedim(1, 0)
        moves = torch.cat([moves, -moves])
        moved = self.sim.retract(State(q.expand(2 * size, -1, -1), qd.expand(2 * size, -1, -1)), moves[..., :n])
        q, qd, u = (x.flatten(0, 1) for x in (moved.q, moved.qd, u + moves[..., n:]))
        ahead, behind = self._total(q, qd, u, numbers.repeat(2 * size)).view(2, size, k, 3)
        return (ahead - behind).permute(1, 2, 0) / (2.0 * steps[:, None])

    def _total(self, q: Tensor, qd: Tensor, u: Tensor, numbers: Tensor) -> Tensor:
        """Return the force (W, 3) in worlds that belong to these nodes; NaN where it is unknown."""
        parameters = self.sim.parameters.packed().detach()
        if len(parameters) > 1:
            parameters = parameters[numbers % len(parameters)]
        (report,) = self.sim._programs.contacts().run((q, qd, self.impulses, u, parameters))
        found, records = report[:, 0], report[:, 1:].unflatten(1, (-1, self.sim._programs.record_rows))
        room = records.shape[1]
        present = torch.arange(room, device=q.device) < found[:, None]
        pair = torch.where(present, records[..., 0], 0.0).long()
        signs = torch.where(present, self.signs[pair], 0.0)
        # unwritten records are uninitialised
        force = torch.where(present[..., None], signs[..., None] * records[..., 8:11], 0.0).sum(1)
        known = (found <= room) & torch.cat([q, qd, u], -1).isfinite().all(-1)
        return torch.where(known[:, None], force, float("nan"))
