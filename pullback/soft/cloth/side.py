"""Sheets and ropes as `Coupled` sees them: docs/derivations/cloth.md, section 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pullback.core.custom_vjp import call
from pullback.core.errors import PullbackError
from pullback.soft.cloth.equations import Equations
from pullback.soft.cloth.sim import ClothSim, ClothState
from pullback.soft.cloth.step import Drive, advance, pull_back
from pullback.soft.cloth.strain_kernels import KINDS
from pullback.soft.touch import ShapeKinds
from pullback.spatial.rotations_torch import quaternion_from_vector, rotation_from_quaternion

Tensor = torch.Tensor


class ClothSide:
    """Sheets and ropes of one rollout; `held`: pin -> shape that it moves with."""

    def __init__(self, cloth: ClothSim, kinds: ShapeKinds, state: ClothState, held: Mapping[int, int]) -> None:
        self.cloth, self.dt, self.kinds, self.held = cloth, cloth.dt, kinds, dict(held)
        self.x, self.v = cloth._parts(state)
        self.worlds = len(self.x)
        self.equations = cloth.equations_among(self.worlds, kinds.geometry)
        self.failed_at = np.full(self.worlds, -1)

    def start(self) -> Tensor:
        """Return the state as one row of numbers."""
        return torch.cat([self.x.reshape(-1), self.v.reshape(-1)]).to(self.cloth.dtype)

    def drive(self, steps: int, actuation: Tensor | None, pins: Tensor | None) -> Tensor:
        """Return where pins are after each step, (N, B p 3)."""
        if actuation is not None:
            raise PullbackError("actuation is that of particles; cloth has pins")
        return self.cloth._pins(pins, self.x, steps).reshape(steps, -1).to(self.cloth.dtype)

    def hold(self, drive: Tensor, origins: Tensor, rotations: Tensor) -> Tensor:
        """Return the drive with pins that are held given in the frames (B, K, 3), (B, K, 3, 3) of their shapes."""
        if not self.held:
            return drive
        pins, shapes = list(self.held), list(self.held.values())
        x = self.x[:, torch.as_tensor(self.cloth.pins[pins])].to(origins.dtype)
        local = (rotations[:, shapes].mT @ (x - origins[:, shapes])[..., None])[..., 0]
        led = drive.view(len(drive), self.worlds, -1, 3)
        index = torch.as_tensor(pins)
        return led.index_copy(2, index, local.expand(len(drive), *local.shape)).reshape(drive.shape)

    def constants(self, materials: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return masses and numbers of all elements (B, m), and gravity (B, 3)."""
        masses, gravity, _, *numbers = self.cloth._drive(self.worlds, None, None, None, materials)
        rows = torch.cat([masses, *[x.reshape(self.worlds, -1) for x in numbers]], 1)
        return rows.to(self.cloth.dtype), gravity.to(self.cloth.dtype)

    def steps(self, numbers: Tensor, gravity: Tensor, drive: Tensor) -> ClothSteps:
        """Return the steps of a piece as functions of the state and the shapes."""
        return ClothSteps(self, numbers, gravity, drive)

    def finish(self, steps: ClothSteps, first: int) -> bool:
        """Note which worlds could not be solved."""
        new = (steps.failed_at >= 0) & (self.failed_at < 0)
        self.failed_at = np.where(new, steps.failed_at + first, self.failed_at)
        return True

    def refuse(self, flat: Tensor) -> None:
        """Raise for a world that could not be solved."""
        bad = self.failed_at >= 0
        if bad.any():
            self.cloth._refuse(int(self.failed_at[bad].min()), bad, flat)

    @property
    def failed(self) -> Tensor:
        """Return the worlds (B,) that could not be solved."""
        return torch.from_numpy(self.failed_at >= 0)

    def states(self, rows: Tensor) -> ClothState:
        """Return states (S, numbers) as parts (S, B, n, 3)."""
        x, v = rows.reshape(len(rows), 2, self.worlds, self.cloth.vertices, 3).unbind(1)
        return ClothState(x, v)


class ClothSteps:
    """Steps as functions of state (2 B n 3,) and shapes (B K, 23), which move on through the step."""

    name = "the cloth simulation"

    def __init__(self, side: ClothSide, numbers: Tensor, gravity: Tensor, drive: Tensor) -> None:
        self.side, self.equations, self.drive, self.gravity = side, side.equations, drive, gravity
        counts = side.cloth.layout.counts
        sizes = [side.cloth.vertices, *[counts[kind] * row.numbers for kind, row in KINDS.items()]]
        self.masses, *rows = numbers.split(sizes, 1)
        self.numbers = [x.reshape(side.worlds, -1, row.numbers) for x, row in zip(rows, KINDS.values())]
        self.failed_at = np.where(side.failed_at >= 0, 0, -1)

    def __call__(self, step: int, flat: Tensor, shapes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state after a step, and what shapes got (B K, 7): torque about their origins, force, mass."""
        side, dt = self.side, self.side.dt
        x, v = flat.view(2, side.worlds, -1, 3).unbind(0)
        origin, R = shapes[:, :3], shapes[:, 3:12].view(-1, 3, 3)
        moved = origin + dt * shapes[:, 12:15]
        turned = rotation_from_quaternion(quaternion_from_vector(dt * shapes[:, 15:18])) @ R
        after = torch.cat([moved, turned.flatten(1), shapes[:, 12:]], 1)
        pins = self.drive[step].view(side.worlds, -1, 3)
        by_world = (side.worlds, len(side.kinds))
        index = list(side.held), list(side.held.values())
        if side.held:
            frames = turned.view(*by_world, 3, 3)[:, index[1]]
            led = moved.view(*by_world, 3)[:, index[1]] + (frames @ pins[:, index[0], :, None])[..., 0]
            pins = pins.index_copy(1, torch.as_tensor(index[0]), led)
        inputs = (x, v, self.masses, self.gravity, pins, *self.numbers, shapes, after)
        x1, v1, reaction, touch = (y.to(flat.dtype) for y in call(_Step(self, step), *[y.double() for y in inputs]))
        if side.held:
            # a shape gets what the pins that it holds take from the cloth
            j = -dt * reaction[:, index[0]]
            lever = x[:, torch.as_tensor(side.cloth.pins[index[0]])] - origin.view(*by_world, 3)[:, index[1]]
            got = torch.cat([torch.linalg.cross(lever, j), j, torch.zeros_like(j[..., :1])], -1)
            touch = touch.view(*by_world, -1).index_add(1, torch.as_tensor(index[1]), got).flatten(0, 1)
        return torch.cat([x1.reshape(-1), v1.reshape(-1)]), touch


class _Step:
    """One step, as `core/custom_vjp.py` calls it."""

    name = ClothSteps.name

    def __init__(self, steps: ClothSteps, step: int) -> None:
        self.steps, self.step = steps, step

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Any]:
        """Do the step."""
        x, v, drive = self._drive(inputs)
        failed = self.steps.failed_at
        after = advance(self.steps.equations, x, v, drive, failed >= 0)
        failed[~after.solved & (failed < 0)] = self.step
        assert after.touch is not None
        return (after.x, after.v, after.reaction, after.touch), after.x

    def backward(
        self, kept: Tensor, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Pull back through the step."""
        equations: Equations = self.steps.equations
        x, v, drive = self._drive(inputs)
        for numbers in equations.adj_numbers.values():
            numbers.zero_()
        adj_x, adj_v = (torch.zeros_like(x) if a is None else a.contiguous() for a in adj_outputs[:2])
        reaction, touch = (None if a is None else a.contiguous() for a in adj_outputs[2:])
        found = pull_back(equations, x, v, drive, kept, (adj_x, adj_v, reaction, touch))
        assert found.shapes is not None
        numbers = [equations.adj_numbers.get(kind) for kind in KINDS]
        values = [found.x, found.v, found.masses, found.gravity, found.pins]
        values += [
            torch.zeros_like(y) if x is None else x.clone().reshape(y.shape) for x, y in zip(numbers, inputs[5:-2])
        ]
        return tuple(y if want else None for y, want in zip([*values, *found.shapes], wanted))

    def _drive(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor, Drive]:
        x, v, masses, gravity, pins, *numbers, before, after = (y.contiguous() for y in inputs)
        return x, v, Drive(masses, gravity, torch.zeros_like(x), pins, dict(zip(KINDS, numbers)), (before, after))
