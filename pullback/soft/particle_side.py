"""Particles as `Coupled` sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pullback.core.errors import PullbackError
from pullback.soft.advice import refuse_failures
from pullback.soft.sim import SoftSim
from pullback.soft.state import SoftState
from pullback.soft.touch import ShapeKinds, TouchSteps
from pullback.soft.variant_kernels import REASONS

Tensor = torch.Tensor

SPARE = 1.5
"""Arenas for each block that there is at the start."""


class ParticleSide:
    """The particles of one rollout: how many arenas were enough so far, which were lost, why and in which soft step."""

    def __init__(self, soft: SoftSim, kinds: ShapeKinds, state: SoftState) -> None:
        if soft.shared:
            raise PullbackError("particles that ranks share cannot be coupled with robots; leave shared=True away")
        self.soft, self.kinds, self.dt = soft, kinds, soft.dt
        self.parts = soft._parts(state)
        self.worlds = len(self.parts[0])
        self.setup = soft._setup(self.worlds)
        blocks = len(torch.unique(self.setup.block_keys(self.parts[0].detach())))
        self.capacity = int(SPARE * blocks) + 8
        self.code = torch.zeros(self.setup.count, dtype=torch.int32, device=soft.device)

    def start(self) -> Tensor:
        """Return the state as one row of numbers."""
        return torch.cat([part.reshape(-1) for part in self.parts])

    def drive(self, steps: int, actuation: Tensor | None, pins: Tensor | None) -> Tensor:
        """Return what muscles are told, (N, B a)."""
        if pins is not None:
            raise PullbackError("pins are those of cloth; particles have none")
        return self.soft._actuation(actuation, steps, self.worlds)

    def constants(self, materials: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the numbers of the particles and gravity."""
        return self.soft._numbers(materials, self.worlds), self.soft._gravity(None, self.worlds)

    def steps(self, numbers: Tensor, gravity: Tensor, drive: Tensor) -> TouchSteps:
        """Return the steps of a piece as functions of the state and the shapes."""
        return TouchSteps(self.setup, self.kinds, self.capacity, (numbers, gravity, drive))

    def finish(self, steps: TouchSteps, first: int) -> bool:
        """Note which particles were lost; return whether there was room enough, or else make more."""
        if steps.run.needs_room:
            self.capacity *= 2
            return False
        code = steps.run.tensors["code"]
        assert code is not None
        later = code + int(REASONS) * first
        self.code = torch.where((self.code == 0) & (code != 0), later, self.code)
        return True

    def refuse(self, flat: Tensor) -> None:
        """Raise for particles that were lost."""
        soft = self.soft
        x = self.setup.split(flat.detach())["x"]
        refuse_failures(self.code, x, soft.bodies, soft.dt, soft.domain.cell, soft.stable_dt, self.worlds)

    @property
    def failed(self) -> Tensor:
        """Return the worlds (B,) in which a particle was lost."""
        return (self.code != 0).view(self.worlds, -1).any(1)

    def states(self, rows: Tensor) -> SoftState:
        """Return states (S, numbers) as parts (S, B, n, ...)."""
        setup = self.setup
        shape = (len(rows), setup.worlds, setup.particles)
        sizes = {name: part.shape[1:] for name, part in setup.split(rows.new_zeros(setup.count * setup.width)).items()}
        return SoftState(*_cut(rows, shape, list(sizes.values())))


def _cut(rows: Tensor, shape: tuple[int, ...], sizes: Sequence[torch.Size]) -> list[Tensor]:
    parts, at = [], 0
    for size in sizes:
        count = shape[1] * shape[2] * size.numel()
        parts.append(rows[:, at : at + count].reshape(*shape, *size))
        at += count
    return parts
