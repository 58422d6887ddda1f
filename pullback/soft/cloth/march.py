"""A rollout of sheets and ropes as a function of tensors, with its adjoint along a plan of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pullback.rollout.checkpoint import ADVANCE, RESTORE, SAVE, VJP, Schedule
from pullback.soft.cloth.equations import Equations
from pullback.soft.cloth.step import Drive, advance, pull_back
from pullback.soft.cloth.strain_kernels import KINDS

Tensor = torch.Tensor


class Inputs(NamedTuple):
    """x, v (B, n, 3), masses (B, n), gravity (B, 3), force (N or 1, B, n, 3), pins (N, B, p, 3); numbers of kinds."""

    x: Tensor
    v: Tensor
    masses: Tensor
    gravity: Tensor
    force: Tensor
    pins: Tensor
    numbers: Sequence[Tensor]

    def drive(self, step: int) -> Drive:
        """Return what drives a step."""
        numbers = dict(zip(KINDS, self.numbers))
        return Drive(self.masses, self.gravity, self.force[step % len(self.force)], self.pins[step], numbers, None)


class ClothMarch:
    """N steps; returns the final x, v, then x, v (S, B, n, 3) at `frames` and what pins do (N, B, p, 3) [N].

    refuse: called with the step and the worlds (B,) that could not be solved; None: these come back as NaN.
    """

    name = "the cloth simulation"

    def __init__(
        self,
        equations: Equations,
        steps: int,
        frames: Sequence[int],
        schedule: Schedule,
        refuse: Callable[[int, np.ndarray, Tensor], None] | None,
    ) -> None:
        self.equations, self.steps, self.schedule, self.refuse = equations, steps, schedule, refuse
        self.frames = {step: row for row, step in enumerate(frames)}
        self.failed = np.zeros(equations.worlds, bool)
        self.newton = np.zeros((steps, equations.worlds), int)

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Any]:
        """Do all steps."""
        given = Inputs(*inputs[:6], numbers=inputs[6:])
        x, v = given.x.contiguous(), given.v.contiguous()
        wanted = set(self.schedule.kept(self.steps).tolist()) if keep else set()
        kept, reactions = [], []
        seen = torch.zeros(2, len(self.frames), *x.shape, dtype=x.dtype)
        for step in range(self.steps + 1):
            if step:
                after = advance(self.equations, x, v, given.drive(step - 1), self.failed)
                x, v = after.x, after.v
                self.newton[step - 1] = after.steps
                reactions.append(after.reaction)
                new = ~after.solved & ~self.failed
                self.failed |= new
                if self.refuse is not None and new.any():
                    self.refuse(step - 1, new, x)
            if step in self.frames:
                seen[0, self.frames[step]], seen[1, self.frames[step]] = x, v
            if step in wanted:
                kept.append((x, v))
        forces = torch.stack(reactions) if reactions else torch.zeros_like(given.pins)
        outputs = x.clone(), v.clone(), seen[0], seen[1], forces
        bad = torch.from_numpy(self.failed)
        for part in (outputs[0], outputs[1], *[y.transpose(0, 1) for y in outputs[2:]]):
            part[bad] = torch.nan
        return outputs, kept

    def backward(
        self, kept: Any, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Walk back along the plan; the state after a step is the one that was walked through before."""
        given, plan = Inputs(*inputs[:6], numbers=inputs[6:]), self.schedule.plan(self.steps)
        adj = _Cotangents(given, adj_outputs, self.frames)
        adj.observe(self.steps)
        slots: dict[int, Any] = dict(enumerate(kept))
        x, v = kept[-1]
        end = x
        for numbers in self.equations.adj_numbers.values():
            numbers.zero_()
        for op, step, slot in plan.actions.tolist():
            if op == RESTORE:
                x, v = slots[slot]
            elif op == SAVE:
                slots[slot] = x, v
            elif op == ADVANCE:
                after = advance(self.equations, x, v, given.drive(step))
                x, v = after.x, after.v
            elif op == VJP:
                drive = given.drive(step)
                ask = adj.x, adj.v, adj.reaction(step), None
                adj.add(step, pull_back(self.equations, x, v, drive, end, ask))
                adj.observe(step)
                end = x
        numbers = [self.equations.adj_numbers.get(kind) for kind in KINDS]
        found = [adj.x, adj.v, adj.masses, adj.gravity, adj.force, adj.pins]
        found += [y.clone() if y is not None else torch.zeros_like(x) for y, x in zip(numbers, given.numbers)]
        return tuple(y.reshape(x.shape) if want else None for y, x, want in zip(found, inputs, wanted))


class _Cotangents:
    """Cotangents of the current state, and sums of those of everything else."""

    def __init__(self, given: Inputs, adj_outputs: Sequence[Tensor | None], frames: dict[int, int]) -> None:
        self.outputs, self.frames = adj_outputs, frames
        self.x, self.v = torch.zeros_like(given.x), torch.zeros_like(given.v)
        for target, adj in zip((self.x, self.v), adj_outputs):
            if adj is not None:
                target += adj
        self.masses, self.gravity = torch.zeros_like(given.masses), torch.zeros_like(given.gravity)
        self.force, self.pins = torch.zeros_like(given.force), torch.zeros_like(given.pins)

    def observe(self, step: int) -> None:
        """Add what was asked of the state before a step."""
        if step in self.frames:
            for target, adj in zip((self.x, self.v), self.outputs[2:4]):
                if adj is not None:
                    target += adj[self.frames[step]]

    def reaction(self, step: int) -> Tensor | None:
        """Return the cotangent of what pins do in a step."""
        adj = self.outputs[4]
        return None if adj is None else adj[step].contiguous()

    def add(self, step: int, found: Any) -> None:
        """Take the cotangents that a step pulled back."""
        self.x, self.v = found.x, found.v
        self.masses += found.masses
        self.gravity += found.gravity
        self.force[step % len(self.force)] += found.force
        self.pins[step] = found.pins
