"""The way back through steps, along a plan of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pullback.core.tensors import view
from pullback.rollout.checkpoint import ADVANCE, RESTORE, SAVE, VJP, Plan
from pullback.soft.adjoint_kernels import PIECES, adjoint_kernels
from pullback.soft.forward import PARTS, Forward, copy, filled
from pullback.soft.grid_kernels import grid_kernels
from pullback.soft.variant_kernels import NUMBERS

Tensor = torch.Tensor


class Backward(Forward):
    """A backward pass: `adj` is the buffer of the cotangents of the current state."""

    def __init__(self, *arguments: Any, wanted: Sequence[bool]) -> None:
        wants_numbers, wants_gravity, wants_actuation = wanted
        super().__init__(*arguments)
        setup = self.setup
        n, d = setup.count, setup.dim
        self.adj = setup.new(n * setup.width)
        self.adj_numbers = setup.new(n, NUMBERS) if wants_numbers else None
        self.adj_gravity = setup.new(n, d) if wants_gravity else None
        self.wants_actuation = wants_actuation and self.actuation is not None
        self.pull = setup.new(n) if self.wants_actuation else None
        self.sums = filled(
            self.types.Sums,
            numbers=view(self.adj_numbers, self.types.numbers),
            gravity=view(self.adj_gravity, self.types.vec),
            pull=view(self.pull),
        )
        self.tensors["cotangent"] = torch.zeros_like(self.tensors["momentum"])
        super().make_passes()
        kernels, adj = adjoint_kernels(setup.variant), self.points_of(self.adj)
        state = self.job, self.points, self.grid, adj, self.sums
        self.from_grid_vjp = self.make(kernels.from_grid_vjp, *state, fine=False)
        self.to_grid_vjp = self.make(kernels.to_grid_vjp, *state, integers=1, fine=False)
        nodes = grid_kernels(setup.variant.plain)
        self.clear_adjoint = self.make(nodes.clear, self.grid, view(self.tensors["cotangent"], self.types.row))
        self.move_nodes_vjp = self.make(nodes.move_nodes_vjp, self.job, self.grid)
        self.adj_actuation = None
        if self.wants_actuation and self.actuation is not None:
            self.adj_actuation = torch.zeros_like(self.actuation)
            self.groups = setup.worlds * setup.actuators
            self.parts = setup.new(self.groups * PIECES)
            lists = view(setup.actuator_starts), view(setup.actuator_particles)
            self.add_pulls = self.make(kernels.add_pulls, *lists, view(self.pull), view(self.parts))
            sums = view(self.parts), view(self.adj_actuation)
            self.add_parts = self.make(kernels.add_parts, *sums, integers=1)

    def make_passes(self) -> None:
        """Wait until there is an arena for cotangents."""

    def pull_back(self, step: int) -> None:
        """Pull the cotangents back through a step, from which the current state sets out."""
        rows = self.fill_grid(step)
        self.clear_adjoint(0, rows)
        self.from_grid_vjp(0, self.pieces)
        # what is summed over ranks has cotangents that are summed over ranks
        self.setup.halo.sum(self.tensors["cotangent"])
        self.move_nodes_vjp(0, rows)
        self.to_grid_vjp(0, self.pieces, step)
        if self.adj_actuation is not None:
            self.add_pulls(0, self.groups * PIECES)
            self.add_parts(0, self.groups, step)

    def run(self, plan: Plan, kept: Tensor, observe: Any) -> dict[str, Tensor]:
        """Walk back along a plan from the last state, and return the cotangents of the first by part.

        observe(step) adds the cotangents of what was seen of a state to `adj`.
        """
        scratch = self.setup.new(plan.slots, len(self.flat))
        count = len(plan.kept)

        def slot(index: int) -> Tensor:
            return kept[index] if index < count else scratch[index - count]

        observe(int(plan.kept[-1]))
        for op, step, index in plan.actions.tolist():
            if op == RESTORE:
                copy(self.flat, slot(index))
            elif op == ADVANCE:
                self.advance(step)
            elif op == SAVE:
                copy(slot(index), self.flat)
            elif op == VJP:
                self.pull_back(step)
                observe(step)
        return {name: self.setup.split(self.adj)[name] for name in PARTS}
