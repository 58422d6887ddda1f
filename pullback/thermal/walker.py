"""What goes through the steps of a growing part: temperatures, what is there now, and the passes that change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pullback.core.passes import Pass
from pullback.core.tensors import REAL, current_stream, device_name, view
from pullback.thermal.conduction_kernels import flow_kernel, vectors
from pullback.thermal.material import Material, segment_rows
from pullback.thermal.step_kernels import LEDGER_ROWS, row_types, step_kernels

Tensor = torch.Tensor

STEFAN_BOLTZMANN = 5.670374419e-8
"""W/(m² K⁴), CODATA 2018."""

AIR_NUMBERS = 4
"""Of the numbers of a march the first: convection, emissivity, ambient, birth temperature."""


@dataclass(frozen=True, eq=False)
class Fixed:
    """What no run changes, as tensors on the device: the growing part of `growth.py`, and where temperatures are held.

    shape, conductances: the shape of each element and its 28 numbers; material (e,) or None where there is one only;
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

    The same by node: `nodes` are looked at by the probes from node_starts[j] on. Probes that move have rows (state,
    probe), one after the other, and state_starts (states + 1,) says where the nodes of each state begin.
    """

    starts: Tensor
    node: Tensor
    weight: Tensor
    nodes: Tensor
    node_starts: Tensor
    probe: Tensor
    node_weight: Tensor
    state_starts: np.ndarray | None = None

    def __len__(self) -> int:
        rows = len(self.starts) - 1
        return rows if self.state_starts is None else rows // (len(self.state_starts) - 1)

    def lines(self, seen: Tensor) -> Tensor:
        """Return what was seen (states, p) as the kernels want it: all in one line if the probes move."""
        return seen if self.state_starts is None else seen.view(1, -1)

    def rows_at(self, state: int) -> tuple[int, int, int]:
        """Return the first row of a state, how many it has, and its line."""
        return (0, len(self), state) if self.state_starts is None else (state * len(self), len(self), 0)

    def nodes_at(self, state: int) -> tuple[int, int, int]:
        """Return the first of the nodes looked at in a state, how many there are, and the line of what was seen."""
        if self.state_starts is None:
            return 0, len(self.nodes), state
        first, last = self.state_starts[state : state + 2].tolist()
        return first, last - first, 0


class Walker:
    """The state of a march on its way: temperatures, what is there now, and the passes that change them."""

    def __init__(self, fixed: Fixed, numbers: Tensor, *, power: Tensor, beam: Beam, ledger: bool = False) -> None:
        self.fixed, self.growth, self.beam = fixed, fixed.growth, beam
        self.step = 0
        t = fixed.tensors
        real = REAL[fixed.dtype]
        row, phase = row_types(real)
        _, vec8, vec28 = vectors(real)
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
            "conductances": view(t["conductances"], vec28),
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
        return Pass(
            kernel,
            arguments,
            device_name(fixed.device),
            integers=integers,
            threads=fixed.threads,
            stream=current_stream(fixed.device),
        )

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
