"""The energy balance of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pullback.thermal.material import enthalpies, segment_rows


@dataclass(frozen=True)
class EnergyLedger:
    """Heat [J] that came in from each side, negative where it left, and how much more is stored than at the start.

    births: what new material brought with it, counted from the first temperature of its table, as `stored` is.
    """

    laser: float
    convection: float
    radiation: float
    fixed: float
    births: float
    stored: float

    @property
    def incoming(self) -> float:
        """Return the total heat that came in."""
        return self.laser + self.convection + self.radiation + self.fixed + self.births

    @property
    def error(self) -> float:
        """Return the balance's residual, relative to the heat exchanged."""
        turnover = sum(abs(x) for x in (self.laser, self.convection, self.radiation, self.fixed, self.births))
        return (self.stored - self.incoming) / max(turnover, 1e-300)


def make_ledger(march: Any, heat: torch.Tensor, initial: torch.Tensor, numbers: torch.Tensor, final: torch.Tensor):
    """Return the ledger of a finished run."""
    model = march.model
    region, growth = model.region, model.growth
    values = numbers.cpu().double().numpy()
    rows, phases = segment_rows(model.materials, values[4:])
    tables = rows.reshape(len(model.materials), -1, rows.shape[1])
    tensors = {name: x.cpu().double().numpy() for name, x in model.tensors.items()}
    held = tensors["held"] != 0
    birth = np.array([values[3]])
    before = np.where(held, tensors["held_temperature"], initial.cpu().double().numpy()[growth.user])
    after = final.cpu().double().numpy()[growth.user]
    volume = march.final_volume.cpu().double().numpy()
    gained = tensors["volume_after"] - tensors["volume_before"]
    stored = born = 0.0
    for m, (table, phase) in enumerate(zip(tables, phases)):
        start, end = (
            tensors["volume"][m] * enthalpies(table, phase, before),
            volume[m] * enthalpies(table, phase, after),
        )
        stored += float(phase[3] * region.sum_nodes(end - start))
        born += float(phase[3] * region.sum_events(gained[m]) * enthalpies(table, phase, birth)[0])
    flows = region.sum_nodes(march.ledger.cpu().numpy())
    return EnergyLedger(
        laser=model.dt * float(heat.double().sum()),
        convection=float(flows[0]),
        radiation=float(flows[1]),
        fixed=float(flows[2]),
        births=born,
        stored=stored,
    )
