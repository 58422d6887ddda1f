"""Some steps of particles and bodies as one function of both states, controls and all numbers.

The way back does them again with their graph: docs/derivations/soft_coupling.md, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pullback.rigid.outcome import tell
from pullback.rigid.shape_motion import ShapeMotion, ShapeParameters
from pullback.rigid.state import State
from pullback.soft.forward import Setup
from pullback.soft.touch import ShapeKinds, TouchSteps
from pullback.soft.variant_kernels import REASONS
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


@dataclass
class Watch:
    """How many arenas were enough so far, and which particles were lost, why and in which soft step."""

    capacity: int
    code: Tensor


class Piece:
    """Steps `span` of the world, each with `substeps` of the particles.

    Inputs: particles, q, qd, impulses, controls (K, B, nu), actuation (K k, B a), and `Constants`. Outputs: particles,
    q (K, B, nq), qd, impulses, what shapes got (K, B, S, 7), and particles before the steps that are in `frames`.
    """

    name = "the coupled simulation"

    def __init__(
        self,
        motion: ShapeMotion,
        setup: Setup,
        kinds: ShapeKinds,
        watch: Watch,
        span: range,
        substeps: int,
        frames: Sequence[int],
        warm: bool,
    ) -> None:
        self.motion, self.setup, self.kinds, self.watch = motion, setup, kinds, watch
        self.span, self.substeps, self.frames, self.warm = span, substeps, set(frames), warm

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Any]:
        """Do the steps; again with more room where particles spread over more blocks than there was room for."""
        while True:
            steps = self._steps(inputs)
            outputs = self._run(steps, inputs, told=True)
            if not steps.run.needs_room:
                break
            self.watch.capacity *= 2
        code = steps.run.tensors["code"]
        assert code is not None
        later = code + int(REASONS) * self.span.start * self.substeps
        self.watch.code = torch.where((self.watch.code == 0) & (code != 0), later, self.watch.code)
        return outputs, self.watch.capacity

    def backward(
        self, kept: int, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Do the steps again with their graph, and pull back through it."""
        with torch.enable_grad():
            given = [x.detach().requires_grad_(want) for x, want in zip(inputs, wanted)]
            outputs = self._run(self._steps(given), given, told=False)
            pairs = [(y, g) for y, g in zip(outputs, adj_outputs) if g is not None and y.requires_grad]
            asked = [x for x in given if x.requires_grad]
            ends, adj = [y for y, _ in pairs], [g for _, g in pairs]
            found = iter(torch.autograd.grad(ends, asked, adj, allow_unused=True) if pairs else [None] * len(asked))
        return tuple(next(found) if want else None for want in wanted)

    def _steps(self, inputs: Sequence[Tensor]) -> TouchSteps:
        constants = Constants(*inputs[6:])
        return TouchSteps(
            self.setup, self.kinds, self.watch.capacity, (constants.numbers, constants.gravity, inputs[5])
        )  # fmt: skip

    def _run(self, steps: TouchSteps, inputs: Sequence[Tensor], *, told: bool) -> tuple[Tensor, ...]:
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
            if told and status.shows():
                tell(self.motion.sim, start, status, (q, qd), None)
            impulses = impulses if left is None else left
            qs.append(q)
            qds.append(qd)
            touches.append(touch)
        frames = torch.stack(seen) if seen else flat.new_zeros(0, len(flat))
        return flat, torch.stack(qs), torch.stack(qds), impulses, torch.stack(touches), frames

    def _soft_steps(
        self, steps: TouchSteps, number: int, flat: Tensor, motion: Sequence[Tensor], sizes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Do the soft steps of one of the world; return the particles and what shapes got (B, S, 7), section 3."""
        origin, R, v, spin = motion
        dt, shape = self.setup.dt, origin.shape[:2]
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
