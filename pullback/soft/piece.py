"""Some steps of particles and bodies as one function of both states, controls and all numbers.

The way back does them again with their graph: docs/derivations/soft_coupling.md, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch

from pullback.rigid.outcome import warn_or_raise
from pullback.rigid.shape_motion import ShapeMotion, ShapeParameters
from pullback.rigid.state import State
from pullback.spatial.rotations_torch import quaternion_from_vector, rotation_from_quaternion

Tensor = torch.Tensor


class Constants(NamedTuple):
    """What does not change: numbers of particles, gravity, sizes of shapes, and numbers of the world."""

    numbers: Tensor
    gravity: Tensor
    sizes: Tensor
    packed: Tensor
    placements: Tensor
    inertias: Tensor
    dofs: Tensor
    frames: Tensor

    @property
    def world(self) -> ShapeParameters:
        """The numbers of the world."""
        return ShapeParameters(*self[3:])


class Steps(Protocol):
    """Soft steps as functions of the number of the step, the state and the shapes (B K, 23)."""

    def __call__(self, step: int, flat: Tensor, shapes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state after a step, and what shapes got (B K, 7)."""
        ...


class Side(Protocol):
    """What is soft in one rollout: `ParticleSide`, `ClothSide`."""

    dt: float

    def steps(self, numbers: Tensor, gravity: Tensor, drive: Tensor) -> Any:
        """Return `Steps`, with what does not change and what drives each of them."""
        ...

    def finish(self, steps: Any, first: int) -> bool:
        """Note what failed, steps being counted from `first`; return False if they must be done again."""
        ...


class Piece:
    """Steps `span` of the world, each with `substeps` of the particles.

    Inputs: particles, q, qd, impulses, controls (K, B, nu), actuation (K k, B a), and `Constants`. Outputs: particles,
    q (K, B, nq), qd, impulses, what shapes got (K, B, S, 7), and particles before the steps that are in `frames`.
    """

    name = "the coupled simulation"

    def __init__(
        self,
        motion: ShapeMotion,
        side: Side,
        span: range,
        substeps: int,
        frames: Sequence[int],
        warm: bool,
    ) -> None:
        self.motion, self.side = motion, side
        self.span, self.substeps, self.frames, self.warm = span, substeps, set(frames), warm

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Any]:
        """Do the steps; again where particles spread over more blocks than there was room for."""
        while True:
            steps = self._steps(inputs)
            outputs = self._run(steps, inputs, warn=True)
            if self.side.finish(steps, self.span.start * self.substeps):
                return outputs, None

    def backward(
        self, kept: None, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Do the steps again with their graph, and pull back through it."""
        with torch.enable_grad():
            given = [x.detach().requires_grad_(want) for x, want in zip(inputs, wanted)]
            outputs = self._run(self._steps(given), given, warn=False)
            pairs = [(y, g) for y, g in zip(outputs, adj_outputs) if g is not None and y.requires_grad]
            asked = [x for x in given if x.requires_grad]
            ends, adj = [y for y, _ in pairs], [g for _, g in pairs]
            found = iter(torch.autograd.grad(ends, asked, adj, allow_unused=True) if pairs else [None] * len(asked))
        return tuple(next(found) if want else None for want in wanted)

    def _steps(self, inputs: Sequence[Tensor]) -> Steps:
        constants = Constants(*inputs[6:])
        return self.side.steps(constants.numbers, constants.gravity, inputs[5])

    def _run(self, steps: Steps, inputs: Sequence[Tensor], *, warn: bool) -> tuple[Tensor, ...]:
        flat, q, qd, impulses, u, _pulls = inputs[:6]
        constants = Constants(*inputs[6:])
        world = constants.world
        qs, qds, touches, seen = [], [], [], []
        for number, step in enumerate(self.span):
            if step in self.frames:
                seen.append(flat)
            origin, R, v, spin = self.motion.motion(world, q, qd)
            flat, touch = self._soft_steps(steps, number, flat, (origin, R, v, spin), constants.sizes)
            kicked = self.motion.kicked(world, q, qd, R, touch[..., :6])
            start = State(q, kicked, impulses if self.warm else None)
            q, qd, left, status = self.motion.step(world, q, kicked, start.impulses, u[number])
            if warn and status.shows():
                warn_or_raise(self.motion.sim, start, status, (q, qd), None)
            impulses = impulses if left is None else left
            qs.append(q)
            qds.append(qd)
            touches.append(touch)
        frames = torch.stack(seen) if seen else flat.new_zeros(0, len(flat))
        return flat, torch.stack(qs), torch.stack(qds), impulses, torch.stack(touches), frames

    def _soft_steps(
        self, steps: Steps, number: int, flat: Tensor, motion: Sequence[Tensor], sizes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Do the soft steps of one of the world; return the particles and what shapes got (B, S, 7), section 3."""
        origin, R, v, spin = motion
        dt, shape = self.side.dt, origin.shape[:2]
        sizes = sizes.expand(*shape, -1)
        wrench, most = None, None
        for i in range(self.substeps):
            p, turned = origin, R
            if i:
                p = origin + (i * dt) * v
                turned = rotation_from_quaternion(quaternion_from_vector((i * dt) * spin)) @ R
            rows = torch.cat([p, turned.flatten(2), v, spin, sizes], -1).flatten(0, 1)
            flat, touch = steps(number * self.substeps + i, flat, rows)
            gained, mass = touch[:, :6].view(*shape, 6), touch[:, 6:].detach().view(*shape, 1)
            if wrench is None or most is None:
                wrench, most = gained, mass
            else:
                lever = torch.linalg.cross(p - origin, gained[..., 3:])
                wrench = wrench + gained + torch.nn.functional.pad(lever, (0, 3))
                most = torch.maximum(most, mass)
        assert wrench is not None
        assert most is not None
        return flat, torch.cat([wrench, most], -1)
