"""Marching a growing part through its steps, forward and, along a plan of checkpoints, backward."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pullback.core.bridge import REAL, current_stream, device_name, view
from pullback.core.launch import Pass
from pullback.rollout.checkpoint import ADVANCE, RESTORE, SAVE, VJP, Schedule
from pullback.thermal.accumulate_kernels import AIR_ROWS, PHASE_ROWS, TABLE_ROWS
from pullback.thermal.adjoint_kernels import adjoint_kernels
from pullback.thermal.conduction_kernels import flow_kernel, vectors
from pullback.thermal.material import Material, segment_rows, table_cotangents
from pullback.thermal.step_kernels import LEDGER_ROWS, row_types, step_kernels

Tensor = torch.Tensor

STEFAN_BOLTZMANN = 5.670374419e-8
"""W/(m² K⁴), CODATA 2018."""

AIR_NUMBERS = 4
"""Of the numbers of a march the first: convection, emissivity, ambient, birth temperature."""


@dataclass(frozen=True, eq=False)
class Fixed:
    """What no run changes, as tensors on the device: the growing part of `growth.py`, and where temperatures are held.

    shape, conductances: the shape of each element and its 56 numbers; material (e,) or None where there is one only;
    held (n,) int32; held_temperature (n,).
    """

    growth: Any
    dt: float
    steps: int
    materials: tuple[Material, ...]
    dtype: torch.dtype
    device: torch.device
    threads: int
    tensors: dict[str, Tensor]

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.growth.user)


@dataclass(frozen=True, eq=False)
class Beam:
    """Where the laser's heat goes: entries of step k are those from starts[k] to starts[k + 1]; node (entries,)."""

    starts: np.ndarray
    node: Tensor


@dataclass(frozen=True, eq=False)
class Probes:
    """Places to look at: probe p is the sum of weight times temperature over its nodes, from starts[p] on.

    The same by node: `nodes` are looked at by the probes from node_starts[j] on.
    """

    starts: Tensor
    node: Tensor
    weight: Tensor
    nodes: Tensor
    node_starts: Tensor
    probe: Tensor
    node_weight: Tensor

    def __len__(self) -> int:
        return len(self.starts) - 1


class Walker:
    """The state of a march on its way: temperatures, what is there now, and the passes that change them."""

    def __init__(self, fixed: Fixed, numbers: Tensor, *, power: Tensor, beam: Beam, ledger: bool = False) -> None:
        self.fixed, self.growth, self.beam = fixed, fixed.growth, beam
        self.step = 0
        t = fixed.tensors
        real = REAL[fixed.dtype]
        row, phase = row_types(real)
        _, vec8, vec56 = vectors(real)
        vec8i = vectors(real)[0]
        values = numbers.detach().to("cpu", torch.float64).numpy()
        rows, phases = segment_rows(fixed.materials, values[AIR_NUMBERS:])
        air = values[:AIR_NUMBERS] * [1.0, STEFAN_BOLTZMANN, 1.0, 1.0]
        self.birth_temperature = float(values[3])
        count, materials = fixed.nodes, len(fixed.materials)
        self.segments = len(rows) // materials
        self.rows, self.phases, self.air = (self.put(x) for x in (rows, phases, air))
        self.T = self.new(count)
        self.u = self.new(materials, count)
        self.flows = self.new(len(t["corners"]) + 1, 8)
        self.volume, self.area = t["volume"].clone(), t["area"].clone()
        first = torch.arange(materials, dtype=torch.int32, device=fixed.device) * self.segments
        self.hints = first[:, None].expand(materials, count).contiguous()
        self.ledger = torch.zeros(LEDGER_ROWS, count, dtype=torch.float64, device=fixed.device) if ledger else None
        self.power = power
        self.fresh = False
        self.views = {
            "corners": view(t["corners"], vec8i),
            "shape": view(t["shape"]),
            "conductances": view(t["conductances"], vec56),
            "material": view(t.get("material")),
            "slots": view(t["slots"], vec8i),
            "more_starts": view(t["more_starts"]),
            "more": view(t["more"]),
            "held": view(t["held"]),
            "rows": view(self.rows, row),
            "phases": view(self.phases, phase),
            "air": view(self.air),
            "volume": view(self.volume),
            "area": view(self.area),
            "flows": view(self.flows, vec8),
            "flow": view(self.flows.view(-1)),
            "hints": view(self.hints),
            "T": view(self.T),
            "u": view(self.u),
            "ledger": view(self.ledger),
            "beam": view(beam.node),
            "power": view(power),
            "event_node": view(t["event_node"]),
        }
        forward, flow = step_kernels(real), flow_kernel(real)
        # a solve ends when a step no longer shows in the temperature
        tolerance = torch.finfo(fixed.dtype).eps
        self.flow = self.make(flow, "corners shape conductances material u flows")
        self.potentials = self.make(forward.potentials, "rows hints T u")
        self.shine = self.make(forward.shine, "beam slots power flow")
        self.move = self.make(
            forward.advance,
            "slots more_starts more held rows phases air volume area flow hints T u ledger",
            scalars=(fixed.dt, tolerance),
            integers=1,
        )
        self.to_after, self.to_before = (
            self.make(
                forward.change,
                "event_node volume_then area_then held rows phases air volume area hints T u ledger",
                scalars=(tolerance,),
                integers=1,
                volume_then=view(t[f"volume_{when}"]),
                area_then=view(t[f"area_{when}"]),
            )
            for when in ("after", "before")
        )

    def put(self, x: np.ndarray) -> Tensor:
        """Return an array as a tensor of the march's type on its device."""
        return torch.as_tensor(x).to(self.fixed.device, self.fixed.dtype).contiguous()

    def new(self, *shape: int) -> Tensor:
        """Return zeros."""
        return torch.zeros(*shape, dtype=self.fixed.dtype, device=self.fixed.device)

    def make(self, kernel: Any, names: str, scalars: tuple = (), integers: int = 0, **others: Any) -> Pass:
        """Return a pass of a kernel over views by name."""
        arguments = [*scalars, *({**self.views, **others}[name] for name in names.split())]
        fixed = self.fixed
        made = Pass(kernel, arguments, device_name(fixed.device), integers, fixed.threads)
        made.stream = current_stream(fixed.device)
        return made

    def begin(self, initial: Tensor) -> None:
        """Set state 0 from the temperatures of the mesh's nodes."""
        t = self.fixed.tensors
        alive = int(self.growth.nodes_alive[0])
        self.T.copy_(initial[t["user"]])
        self.T[alive:] = self.birth_temperature
        held = t["held"] != 0
        self.T[held] = t["held_temperature"][held]
        self.go_to(0)
        self.fresh = False

    def restore(self, state: Tensor, step: int) -> None:
        """Make a kept state current."""
        self.T.copy_(state)
        self.go_to(step)
        self.fresh = False

    def go_to(self, step: int) -> None:
        """Let the part be as large as it is at a step; temperatures stay what they are."""
        starts = self.growth.event_starts
        while self.step < step:
            self.step += 1
            self.to_after(starts[self.step], starts[self.step + 1] - starts[self.step], 0)
        while self.step > step:
            self.to_before(starts[self.step], starts[self.step + 1] - starts[self.step], 0)
            self.step -= 1

    def advance(self) -> None:
        """Do one step, births at its end included."""
        step, growth = self.step, self.growth
        elements, nodes = int(growth.elements_alive[step]), int(growth.nodes_alive[step])
        if not self.fresh:
            self.potentials(0, nodes)
            self.fresh = True
        self.heat_up(step, elements, nodes)
        self.step += 1
        first, last = growth.event_starts[self.step], growth.event_starts[self.step + 1]
        self.to_after(int(first), int(last - first), 1)

    def heat_up(self, step: int, elements: int, nodes: int) -> None:
        """Change temperatures and potentials by a step, explicitly."""
        self.flow(0, elements)
        lit = self.beam.starts
        self.shine(int(lit[step]), int(lit[step + 1] - lit[step]))
        self.move(0, nodes, 8 * elements)


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
        self.seconds = 0.0

    def forward(self, inputs):
        """March forward; return probes, snapshots and the final state, and keep states for the way back."""
        power, initial, numbers = inputs
        fixed, probes, began = self.fixed, self.probes, time.perf_counter()
        walker = self.method.walker(fixed, numbers, power=power, beam=self.beam, ledger=True)
        walker.begin(initial)
        kept_steps = self.schedule.kept(fixed.steps)
        kept = walker.new(len(kept_steps), fixed.nodes)
        slot_of = {int(step): slot for slot, step in enumerate(kept_steps)}
        seen = walker.new(fixed.steps + 1, 0 if probes is None else len(probes))
        shots = walker.new(len(self.snapshots), fixed.nodes)
        look = None
        if probes is not None and len(probes):
            names = {f"probe_{name}": view(getattr(probes, name)) for name in ("starts", "node", "weight")}
            look = walker.make(
                step_kernels(REAL[fixed.dtype]).look,
                "probe_starts probe_node probe_weight T seen",
                integers=1,
                seen=view(seen),
                **names,
            )
        rank = fixed.tensors["rank"]
        for step in range(fixed.steps + 1):
            if step:
                walker.advance()
            if look is not None:
                look(0, len(probes), step)
            if step in self.snapshots:
                torch.index_select(walker.T, 0, rank, out=shots[self.snapshots[step]])
            if step in slot_of:
                kept[slot_of[step]].copy_(walker.T)
        self.ledger = walker.ledger
        self.final_volume = walker.volume
        self.seconds = time.perf_counter() - began
        return (seen, shots, walker.T[rank]), kept

    def backward(self, kept, wanted, adj_outputs, inputs):
        """March backward along the plan of checkpoints."""
        return self.method.reverse(self, kept, wanted, adj_outputs, inputs).run()


class Reverse:
    """A backward pass."""

    def __init__(self, march: ThermalMarch, kept, wanted, adj_outputs, inputs) -> None:
        power, self.initial, self.numbers = inputs
        self.march, self.kept = march, kept
        self.fixed, self.beam, self.probes = march.fixed, march.beam, march.probes
        fixed, probes = self.fixed, self.probes
        self.wanted = wanted
        self.adj_seen, self.adj_shots, self.adj_final = adj_outputs
        walker = self.walker = march.method.walker(fixed, self.numbers, power=power, beam=self.beam)
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
            "gain": view(t["volume_after"] - t["volume_before"]),
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
        self.look_vjp = None
        if probes is not None and len(probes) and self.adj_seen is not None:
            self.adj_seen = self.adj_seen.contiguous()
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
        if self.look_vjp is not None:
            self.look_vjp(0, len(self.probes.nodes), step)
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
