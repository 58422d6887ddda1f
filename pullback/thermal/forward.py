"""The forward pass: temperatures of a growing part, and the kernels that advance them by a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from pullback.core.passes import Pass
from pullback.core.tensors import REAL, current_stream, device_name, make_struct
from pullback.thermal.conduction_kernels import flow_kernel
from pullback.thermal.material import segment_rows
from pullback.thermal.node_kernels import LEDGER_ROWS, part_type
from pullback.thermal.part import Beam, PartModel
from pullback.thermal.step_kernels import step_kernels

Tensor = torch.Tensor

STEFAN_BOLTZMANN = 5.670374419e-8
"""W/(m² K⁴), CODATA 2018."""

AIR_NUMBERS = 4
"""The first of the shared numbers: convection, emissivity, ambient, birth temperature."""


class Forward:
    """The current state of a run, temperatures T and what part is there, and the passes that advance it."""

    def __init__(self, model: PartModel, numbers: Tensor, *, power: Tensor, beam: Beam, ledger: bool = False) -> None:
        self.model, self.growth, self.beam, self.power = model, model.growth, beam, power
        self.state = 0
        self._potentials_valid = False
        t, count, materials = model.tensors, model.nodes, len(model.materials)
        values = numbers.detach().to("cpu", torch.float64).numpy()
        rows, phases = segment_rows(model.materials, values[AIR_NUMBERS:])
        air = values[:AIR_NUMBERS] * [1.0, STEFAN_BOLTZMANN, 1.0, 1.0]
        self.birth_temperature = float(values[3])
        self.segments = len(rows) // materials
        self.rows = self.put(rows)
        self.T = self.new(count)
        self.u = self.new(materials, count)
        self.flows = self.new(len(t["corners"]) + 1, 8)
        self.volume = t["volume"].clone()
        self.ledger = torch.zeros(LEDGER_ROWS, count, dtype=torch.float64, device=model.device) if ledger else None
        first = torch.arange(materials, dtype=torch.int32, device=model.device) * self.segments
        self.part = make_struct(
            part_type(REAL[model.dtype]),
            slots=t["slots"],
            more_starts=t["more_starts"],
            more=t["more"],
            material=t.get("material"),
            held=t["held"],
            rows=self.rows,
            phases=self.put(phases),
            air=self.put(air),
            volume=self.volume,
            area=t["area"].clone(),
            hints=first[:, None].expand(materials, count).contiguous(),
        )
        self._make_passes()

    def _make_passes(self) -> None:
        model, t, part = self.model, self.model.tensors, self.part
        kernels = step_kernels(REAL[model.dtype])
        # a solve ends when a step no longer shows in the temperature
        tolerance = torch.finfo(model.dtype).eps
        flows = self.flows.view(-1)
        self.potentials = self.make(kernels.potentials, part=part, T=self.T, u=self.u)
        self.flow = self.make_flow(self.u, t.get("material"))
        self.add_beam = self.make(kernels.add_beam, part=part, node=self.beam.node, power=self.power, flows=flows)
        self.explicit_step = self.make(
            kernels.step,
            integers=1,
            dt=model.dt,
            tolerance=tolerance,
            part=part,
            flows=flows,
            T=self.T,
            u=self.u,
            ledger=self.ledger,
        )
        self.to_after, self.to_before = (
            self.make(
                kernels.resize,
                integers=1,
                tolerance=tolerance,
                part=part,
                node=t["event_node"],
                volume_then=t[f"volume_{when}"],
                area_then=t[f"area_{when}"],
                T=self.T,
                u=self.u,
                ledger=self.ledger,
            )
            for when in ("after", "before")
        )

    def put(self, x: np.ndarray) -> Tensor:
        """Return an array as a tensor of the run's type on its device."""
        return torch.as_tensor(x).to(self.model.device, self.model.dtype).contiguous()

    def new(self, *shape: int) -> Tensor:
        """Return zeros."""
        return torch.zeros(*shape, dtype=self.model.dtype, device=self.model.device)

    def make(self, kernel: Any, *, integers: int = 0, **arguments: Any) -> Pass:
        """Return a pass of a kernel with its arguments by name; `integers` are given in each call."""
        model = self.model
        return Pass(
            kernel,
            arguments,
            device_name(model.device),
            integers=integers,
            threads=model.threads,
            stream=current_stream(model.device),
        )

    def make_flow(self, u: Tensor, material: Tensor | None = None) -> Pass:
        """Return the pass that writes the flows driven by potentials u (materials, n)."""
        t = self.model.tensors
        return self.make(
            flow_kernel(REAL[self.model.dtype]),
            corners=t["corners"],
            shape=t["shape"],
            conductances=t["conductances"],
            material=material,
            u=u,
            flows=self.flows,
        )

    def begin(self, initial: Tensor) -> None:
        """Set state 0 from the temperatures of the mesh's nodes."""
        t = self.model.tensors
        alive = int(self.growth.nodes_alive[0])
        self.T.copy_(initial[t["user"]])
        self.T[alive:] = self.birth_temperature
        held = t["held"] != 0
        self.T[held] = t["held_temperature"][held]
        self._resize_to(0)

    def restore(self, temperatures: Tensor, state: int) -> None:
        """Make a kept state current."""
        self.T.copy_(temperatures)
        self._resize_to(state)

    def _resize_to(self, state: int) -> None:
        """Give the part the size it has at a state; temperatures stay as they are."""
        while self.state < state:
            self.state += 1
            self.to_after(*self.model.events(self.state), 0)
        while self.state > state:
            self.to_before(*self.model.events(self.state), 0)
            self.state -= 1
        self._potentials_valid = False

    def advance(self) -> None:
        """Advance to the next state: a step, then the births at its end."""
        step, growth = self.state, self.growth
        elements, nodes = int(growth.elements_alive[step]), int(growth.nodes_alive[step])
        if not self._potentials_valid:
            self.potentials(0, nodes)
            self._potentials_valid = True
        self.step(step, elements, nodes)
        self.state += 1
        self.to_after(*self.model.events(self.state), 1)

    def step(self, step: int, elements: int, nodes: int) -> None:
        """Change temperatures and potentials by an explicit step."""
        self.flow(0, elements)
        self.add_beam(*self.beam.entries(step))
        self.explicit_step(0, nodes, 8 * elements)
        self.model.region.exchange(self.T, *self.u)
