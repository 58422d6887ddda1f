"""The way back through the steps of a growing part, along a plan of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from pullback.core.tensors import REAL, view
from pullback.rollout.checkpoint import ADVANCE, RESTORE, SAVE, VJP
from pullback.thermal.accumulate_kernels import AIR_ROWS, PHASE_ROWS, TABLE_ROWS
from pullback.thermal.adjoint_kernels import adjoint_kernels
from pullback.thermal.conduction_kernels import flow_kernel
from pullback.thermal.material import table_cotangents
from pullback.thermal.walker import AIR_NUMBERS, STEFAN_BOLTZMANN

if TYPE_CHECKING:
    from pullback.thermal.march import ThermalMarch

Tensor = torch.Tensor


class Reverse:
    """A backward pass: cotangents of heat on their way from the last state to the first."""

    def __init__(
        self,
        march: ThermalMarch,
        kept: Tensor,
        wanted: Sequence[bool],
        adj_outputs: Sequence[Tensor | None],
        inputs: Sequence[Tensor],
    ) -> None:
        power, _, numbers = inputs
        self.march, self.kept = march, kept
        self.fixed, self.beam = march.fixed, march.beam
        fixed, probes = self.fixed, march.probes
        self.wanted = wanted
        self.adj_seen, self.adj_shots, self.adj_final = adj_outputs
        walker = self.walker = march.method.walker(fixed, numbers, power=power, beam=self.beam)
        self.lam = walker.new(1, fixed.nodes)
        self.adj_power = torch.zeros_like(power)
        self.adj_T = walker.new(fixed.nodes)
        self.sums = self._sums() if wanted[2] else None
        real = REAL[fixed.dtype]
        kernels, t = adjoint_kernels(real), fixed.tensors
        walker.views |= {
            "lam": view(self.lam[0]),
            "lam_row": view(self.lam),
            "sums": view(self.sums),
            "adj_power": view(self.adj_power),
            "adj_T": view(self.adj_T),
        }
        self.gain = t["volume_after"] - t["volume_before"]
        self.flow = walker.make(flow_kernel(real), "corners shape conductances none lam_row flows", none=None)
        self.pull = walker.make(
            kernels.pull,
            "slots more_starts more material held rows phases air volume area flow T hints lam sums",
            scalars=(fixed.dt * march.method.explicit_share,),
            integers=1,
        )
        self.shine_vjp = walker.make(kernels.shine_vjp, "beam lam adj_power", scalars=(fixed.dt,))
        self.enter_vjp = walker.make(
            kernels.enter_vjp, "event_node gain held rows phases air lam sums", gain=view(self.gain)
        )
        self.look_all_vjp = walker.make(kernels.look_all_vjp, "held rows phases volume T adj_T hints lam sums")
        self.begin_vjp = walker.make(kernels.begin_vjp, "held rows phases volume T lam hints adj_T sums")
        self.look_vjp, self.probes = None, probes
        if probes is not None and len(probes) and self.adj_seen is not None:
            self.adj_seen = probes.lines(self.adj_seen.contiguous())
            names = {f"probe_{n}": view(getattr(probes, n)) for n in ("nodes", "node_starts", "probe", "node_weight")}
            self.look_vjp = walker.make(
                kernels.look_vjp,
                "probe_nodes probe_node_starts probe_probe probe_node_weight "
                "held rows phases volume T adj_seen hints lam sums",
                integers=1,
                adj_seen=view(self.adj_seen),
                **names,
            )

    def _sums(self) -> Tensor:
        """Return zeros (rows, nodes) in float64, laid out as the device likes it."""
        fixed = self.fixed
        rows = AIR_ROWS + len(fixed.materials) * (PHASE_ROWS + TABLE_ROWS * self.walker.segments)
        if fixed.device.type == "cpu":
            return torch.zeros(fixed.nodes, rows, dtype=torch.float64).t()
        return torch.zeros(rows, fixed.nodes, dtype=torch.float64, device=fixed.device)

    def run(self) -> tuple[Tensor | None, ...]:
        """Return the cotangents of power, initial temperatures and numbers."""
        walker, fixed = self.walker, self.fixed
        plan = self.march.schedule.plan(fixed.steps)
        scratch = walker.new(plan.slots, fixed.nodes)
        count = len(plan.kept)

        def slot(index: int) -> Tensor:
            return self.kept[index] if index < count else scratch[index - count]

        walker.restore(self.kept[-1], fixed.steps)
        self._observe(fixed.steps)
        for op, step, index in plan.actions.tolist():
            if op == RESTORE:
                walker.restore(slot(index), step)
            elif op == ADVANCE:
                walker.advance()
            elif op == SAVE:
                slot(index).copy_(walker.T)
            elif op == VJP:
                self._pull_back(step)
        if fixed.steps == 0:
            walker.restore(self.kept[0], 0)
        self.adj_T.zero_()
        self.begin_vjp(0, int(fixed.growth.nodes_alive[0]))
        return self._power(), self._initial(), self._numbers()

    def _pull_back(self, step: int) -> None:
        """Pull the cotangents back through a step, from which the current state sets out."""
        growth = self.fixed.growth
        if self.sums is not None:
            first, last = growth.event_starts[step + 1], growth.event_starts[step + 2]
            self.enter_vjp(int(first), int(last - first))
        self.cool_down(step, int(growth.elements_alive[step]), int(growth.nodes_alive[step]))
        self._observe(step)

    def cool_down(self, step: int, elements: int, nodes: int) -> None:
        """Pull back through what `heat_up` does."""
        lit = self.beam.starts
        self.shine_vjp(int(lit[step]), int(lit[step + 1] - lit[step]))
        self.flow(0, elements)
        self.pull(0, nodes, 8 * elements)

    def _observe(self, step: int) -> None:
        """Add the cotangents of what was seen of the current state."""
        if self.look_vjp is not None and self.probes is not None:
            self.look_vjp(*self.probes.nodes_at(step))
        shots, user = self.march.snapshots, self.fixed.tensors["user"]
        if self.adj_shots is not None and step in shots:
            torch.index_select(self.adj_shots[shots[step]], 0, user, out=self.adj_T)
            self.look_all_vjp(0, self.fixed.nodes)
        if self.adj_final is not None and step == self.fixed.steps:
            torch.index_select(self.adj_final, 0, user, out=self.adj_T)
            self.look_all_vjp(0, self.fixed.nodes)

    def _power(self) -> Tensor | None:
        return self.adj_power if self.wanted[0] else None

    def _initial(self) -> Tensor | None:
        return self.adj_T[self.fixed.tensors["rank"]] if self.wanted[1] else None

    def _numbers(self) -> Tensor | None:
        """Return the cotangents of the numbers from the sums of all nodes, in a fixed order."""
        if self.sums is None:
            return None
        # on a CPU by numpy: torch would share the sum out to its threads
        sums = self.sums.numpy().sum(axis=1) if self.sums.is_cpu else self.sums.sum(1).cpu().numpy()
        adj = [sums[:AIR_NUMBERS] * [1.0, STEFAN_BOLTZMANN, 1.0, 1.0]]
        segments = self.walker.segments
        blocks = sums[AIR_NUMBERS:].reshape(len(self.fixed.materials), -1)
        for one, block in zip(self.fixed.materials, blocks):
            tables = block[PHASE_ROWS:].reshape(segments, 2, 3)
            adj += [block[:PHASE_ROWS], table_cotangents(one, tables[:, 0]), table_cotangents(one, tables[:, 1])]
        return torch.as_tensor(np.concatenate(adj)).to(self.fixed.device, self.fixed.dtype)
