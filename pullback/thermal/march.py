"""A run of a growing part as a function of three tensors, with its adjoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.core.finite import are_finite
from pullback.core.passes import Pass
from pullback.core.tensors import REAL
from pullback.rollout.checkpoint import Schedule
from pullback.rollout.store import Store, open_store
from pullback.thermal.backward import Backward
from pullback.thermal.forward import Forward
from pullback.thermal.part import Beam, PartModel, Probes
from pullback.thermal.step_kernels import step_kernels

Tensor = torch.Tensor


class Method:
    """How a step is computed and differentiated: explicitly."""

    explicit_share = 1.0
    """The weight of the heat that flows at the temperatures before a step."""

    def forward(self, *arguments: Any, **options: Any) -> Forward:
        """Return a forward pass."""
        return Forward(*arguments, **options)

    def backward(self, *arguments: Any) -> Backward:
        """Return a backward pass."""
        return Backward(*arguments)


class ThermalMarch:
    """`Process.run` as a function of the beam's entries [W], initial temperatures and shared numbers, and its vjp."""

    name = "the thermal process"

    def __init__(
        self,
        model: PartModel,
        beam: Beam,
        probes: Probes | None,
        snapshots: np.ndarray,
        schedule: Schedule,
        method: Method | None = None,
    ) -> None:
        self.model, self.beam, self.probes = model, model.region.take_beam(beam), model.region.take_probes(probes)
        self.method = Method() if method is None else method
        self.snapshots = {int(step): row for row, step in enumerate(snapshots)}
        self.schedule = schedule
        self.ledger: Tensor | None = None

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Store | None]:
        """Return probes, snapshots and the final state, and the states kept for the backward pass."""
        power, initial, numbers = inputs
        model, probes, region = self.model, self.probes, self.model.region
        power = region.take_power(power)
        forward = self.method.forward(model, numbers, power=power, beam=self.beam, ledger=True)
        forward.begin(initial)
        kept_steps = self.schedule.kept(model.steps) if keep else []
        kept = open_store(self.schedule, len(kept_steps), forward.T) if len(kept_steps) else None
        slot_of = {int(step): slot for slot, step in enumerate(kept_steps)}
        seen = forward.new(model.steps + 1, 0 if probes is None else len(probes))
        taken = forward.new(len(self.snapshots), len(model.tensors["rank"]))
        probe = self._probe_pass(forward, seen)
        rank = model.tensors["rank"]
        for state in range(model.steps + 1):
            if state:
                forward.advance()
            if probe is not None and probes is not None:
                probe(*probes.rows_at(state))
            if state in self.snapshots:
                region.on_mesh(forward.T, rank, out=taken[self.snapshots[state]])
            if kept is not None and state in slot_of:
                kept.write(slot_of[state], forward.T)
        self.ledger, self.final_volume = forward.ledger, forward.volume
        final = region.on_mesh(forward.T, rank)
        _check_finite(final)
        return (region.give_seen(seen), taken, final), kept

    def _probe_pass(self, forward: Forward, seen: Tensor) -> Pass | None:
        probes = self.probes
        if probes is None or not len(probes):
            return None
        return forward.make(
            step_kernels(REAL[self.model.dtype]).probe,
            integers=1,
            starts=probes.starts,
            node=probes.node,
            weight=probes.weight,
            T=forward.T,
            seen=probes.lines(seen),
        )

    def backward(
        self, kept: Store, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Return the cotangents of the inputs."""
        return self.method.backward(self, kept, wanted, adj_outputs, inputs).run()


def _check_finite(final: Tensor) -> None:
    if not are_finite(final[None]):
        node = int(torch.nonzero(~torch.isfinite(final))[0])
        raise PullbackError(
            f"the temperature of node {node} is {float(final[node])} at the end; powers and parameters are finite, "
            f"so some of them are far from any metal's, or steps too long for temperatures above the table's last"
        )
