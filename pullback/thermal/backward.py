"""The backward pass: cotangents pulled back through the steps of a growing part, along a schedule of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from pullback.core.tensors import REAL
from pullback.rollout.checkpoint import ADVANCE, RESTORE, SAVE, VJP
from pullback.rollout.store import Store
from pullback.thermal.accumulate_kernels import AIR_ROWS, PHASE_ROWS, TABLE_ROWS
from pullback.thermal.forward import AIR_NUMBERS, STEFAN_BOLTZMANN
from pullback.thermal.material import table_cotangents
from pullback.thermal.step_vjp_kernels import step_vjp_kernels

if TYPE_CHECKING:
    from pullback.thermal.march import ThermalMarch

Tensor = torch.Tensor


class Backward:
    """Cotangents of heat on their way from the last state to the first."""

    def __init__(
        self,
        march: ThermalMarch,
        kept: Store,
        wanted: Sequence[bool],
        adj_outputs: Sequence[Tensor | None],
        inputs: Sequence[Tensor],
    ) -> None:
        power, _, numbers = inputs
        power = march.model.region.take_power(power)
        self.march, self.kept, self.wanted = march, kept, wanted
        self.model, self.beam, self.probes = march.model, march.beam, march.probes
        model = self.model
        self.adj_seen, self.adj_snapshots, self.adj_final = adj_outputs
        forward = self.forward = march.method.forward(model, numbers, power=power, beam=self.beam)
        self.lam = forward.new(1, model.nodes)
        self.adj_power = torch.zeros_like(power)
        self.adj_T = forward.new(model.nodes)
        self.sums = self._new_sums() if wanted[2] else None
        self.gain = model.tensors["volume_after"] - model.tensors["volume_before"]
        self._make_passes()

    def _make_passes(self) -> None:
        forward, model, part = self.forward, self.model, self.forward.part
        kernels, node = step_vjp_kernels(REAL[model.dtype]), model.tensors["event_node"]
        lam, T, sums = self.lam[0], forward.T, self.sums
        self.flow = forward.make_flow(self.lam)
        self.explicit_step_vjp = forward.make(
            kernels.step_vjp,
            integers=1,
            dt=model.dt * self.march.method.explicit_share,
            part=part,
            flows=forward.flows.view(-1),
            T=T,
            lam=lam,
            sums=sums,
        )
        self.add_beam_vjp = forward.make(
            kernels.add_beam_vjp, dt=model.dt, node=self.beam.node, lam=lam, adj_power=self.adj_power
        )
        self.birth_vjp = forward.make(kernels.birth_vjp, part=part, node=node, gain=self.gain, lam=lam, sums=sums)
        self.snapshot_vjp = forward.make(kernels.snapshot_vjp, part=part, T=T, adj_T=self.adj_T, lam=lam, sums=sums)
        self.initial_vjp = forward.make(kernels.initial_vjp, part=part, T=T, lam=lam, adj_T=self.adj_T, sums=sums)
        self.probe_vjp, probes = None, self.probes
        if probes is not None and len(probes) and self.adj_seen is not None:
            self.probe_vjp = forward.make(
                kernels.probe_vjp,
                integers=1,
                part=part,
                node=probes.nodes,
                starts=probes.node_starts,
                probe=probes.probe,
                weight=probes.node_weight,
                T=T,
                adj_seen=probes.lines(self.adj_seen.contiguous()),
                lam=lam,
                sums=sums,
            )

    def _new_sums(self) -> Tensor:
        """Return zeros (rows, nodes) in float64, laid out as the device likes it."""
        model = self.model
        rows = AIR_ROWS + len(model.materials) * (PHASE_ROWS + TABLE_ROWS * self.forward.segments)
        if model.device.type == "cpu":
            return torch.zeros(model.nodes, rows, dtype=torch.float64).t()
        return torch.zeros(rows, model.nodes, dtype=torch.float64, device=model.device)

    def run(self) -> tuple[Tensor | None, ...]:
        """Return the cotangents of power, initial temperatures and shared numbers."""
        forward, model = self.forward, self.model
        plan = self.march.schedule.plan(model.steps)
        scratch = forward.new(plan.slots, model.nodes)
        count = len(plan.kept)

        def slot(index: int) -> Tensor:
            return self.kept.read(index) if index < count else scratch[index - count]

        forward.restore(self.kept.read(count - 1), model.steps)
        self._observation_vjp(model.steps)
        for op, step, index in plan.actions.tolist():
            if op == RESTORE:
                forward.restore(slot(index), step)
            elif op == ADVANCE:
                forward.advance()
            elif op == SAVE:
                slot(index).copy_(forward.T)
            elif op == VJP:
                self._advance_vjp(step)
        if model.steps == 0:
            forward.restore(self.kept.read(0), 0)
        self.adj_T.zero_()
        self.initial_vjp(0, int(model.growth.nodes_alive[0]))
        return self._power(), self._initial(), self._numbers()

    def _advance_vjp(self, step: int) -> None:
        """Pull the cotangents back through a step; the current state is the one before it."""
        growth = self.model.growth
        if self.sums is not None:
            self.birth_vjp(*self.model.events(step + 1))
        self.step_vjp(step, int(growth.elements_alive[step]), int(growth.nodes_alive[step]))
        self._observation_vjp(step)

    def step_vjp(self, step: int, elements: int, nodes: int) -> None:
        """Pull back through `Forward.step`."""
        self.add_beam_vjp(*self.beam.entries(step))
        self.flow(0, elements)
        self.explicit_step_vjp(0, nodes, 8 * elements)
        self.model.region.exchange(self.lam[0])

    def _observation_vjp(self, state: int) -> None:
        """Add the cotangents of probes, snapshots and the final temperatures at the current state."""
        if self.probe_vjp is not None and self.probes is not None:
            self.probe_vjp(*self.probes.nodes_at(state))
        snapshots, user = self.march.snapshots, self.model.tensors["user"]
        if self.adj_snapshots is not None and state in snapshots:
            torch.index_select(self.adj_snapshots[snapshots[state]], 0, user, out=self.adj_T)
            self.snapshot_vjp(0, self.model.nodes)
        if self.adj_final is not None and state == self.model.steps:
            torch.index_select(self.adj_final, 0, user, out=self.adj_T)
            self.snapshot_vjp(0, self.model.nodes)

    def _power(self) -> Tensor | None:
        return self.model.region.give_power(self.adj_power) if self.wanted[0] else None

    def _initial(self) -> Tensor | None:
        return self.model.region.on_mesh(self.adj_T, self.model.tensors["rank"]) if self.wanted[1] else None

    def _numbers(self) -> Tensor | None:
        """Return the cotangents of the shared numbers, summed over all nodes in a fixed order."""
        if self.sums is None:
            return None
        # on a CPU by numpy: torch would split the sum among its threads
        region = self.model.region
        sums = region.sum_nodes(self.sums.numpy() if self.sums.is_cpu else self.sums.cpu().numpy())
        adj = [sums[:AIR_NUMBERS] * [1.0, STEFAN_BOLTZMANN, 1.0, 1.0]]
        segments = self.forward.segments
        blocks = sums[AIR_NUMBERS:].reshape(len(self.model.materials), -1)
        for one, block in zip(self.model.materials, blocks):
            tables = block[PHASE_ROWS:].reshape(segments, 2, 3)
            adj += [block[:PHASE_ROWS], table_cotangents(one, tables[:, 0]), table_cotangents(one, tables[:, 1])]
        return torch.as_tensor(np.concatenate(adj)).to(self.model.device, self.model.dtype)
