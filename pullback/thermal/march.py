"""Marching a growing part through its steps: a run as a function of three tensors, with its adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.core.finite import are_finite
from pullback.core.tensors import REAL, view
from pullback.rollout.checkpoint import Schedule
from pullback.thermal.reverse import Reverse
from pullback.thermal.step_kernels import step_kernels
from pullback.thermal.walker import Beam, Fixed, Probes, Walker

Tensor = torch.Tensor


class Method:
    """How a step is done, and how it is pulled back: explicitly."""

    explicit_share = 1.0
    """The weight of the heat that flows at the beginning of a step."""

    def walker(self, *arguments: Any, **options: Any) -> Walker:
        """Return what does steps."""
        return Walker(*arguments, **options)

    def reverse(self, *arguments: Any) -> Reverse:
        """Return a backward pass."""
        return Reverse(*arguments)


class ThermalMarch:
    """Process.run as a function of three tensors, with its adjoint: heat entries, initial temperatures, numbers."""

    name = "the thermal process"

    def __init__(
        self,
        fixed: Fixed,
        beam: Beam,
        probes: Probes | None,
        snapshots: np.ndarray,
        schedule: Schedule,
        method: Method | None = None,
    ) -> None:
        self.fixed, self.beam, self.probes = fixed, beam, probes
        self.method = Method() if method is None else method
        self.snapshots = {int(step): row for row, step in enumerate(snapshots)}
        self.schedule = schedule
        self.ledger: Tensor | None = None

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Tensor]:
        """March forward; return probes, snapshots and the final state, and keep states for the way back."""
        power, initial, numbers = inputs
        fixed, probes = self.fixed, self.probes
        walker = self.method.walker(fixed, numbers, power=power, beam=self.beam, ledger=True)
        walker.begin(initial)
        kept_steps = self.schedule.kept(fixed.steps) if keep else []
        kept = walker.new(len(kept_steps), fixed.nodes)
        slot_of = {int(step): slot for slot, step in enumerate(kept_steps)}
        watched = 0 if probes is None else len(probes)
        seen = walker.new(fixed.steps + 1, watched)
        shots = walker.new(len(self.snapshots), fixed.nodes)
        look = None
        if probes is not None and watched:
            names = {f"probe_{name}": view(getattr(probes, name)) for name in ("starts", "node", "weight")}
            look = walker.make(
                step_kernels(REAL[fixed.dtype]).look,
                "probe_starts probe_node probe_weight T seen",
                integers=1,
                seen=view(probes.lines(seen)),
                **names,
            )
        rank = fixed.tensors["rank"]
        for step in range(fixed.steps + 1):
            if step:
                walker.advance()
            if look is not None and probes is not None:
                look(*probes.rows_at(step))
            if step in self.snapshots:
                torch.index_select(walker.T, 0, rank, out=shots[self.snapshots[step]])
            if step in slot_of:
                kept[slot_of[step]].copy_(walker.T)
        self.ledger = walker.ledger
        self.final_volume = walker.volume
        final = walker.T[rank]
        if not are_finite(final[None]):
            node = int(torch.nonzero(~torch.isfinite(final))[0])
            raise PullbackError(
                f"the temperature of node {node} is {float(final[node])} at the end; powers and parameters are finite, "
                f"so some of them are far from any metal's, or steps too long for temperatures above the table's last"
            )
        return (seen, shots, final), kept

    def backward(
        self, kept: Tensor, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """March backward along the plan of checkpoints."""
        return self.method.reverse(self, kept, wanted, adj_outputs, inputs).run()
