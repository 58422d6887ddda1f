"""The largest stable step of an explicit run (docs/derivations/thermal.md, eq. (9))."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from pullback.thermal.forward import STEFAN_BOLTZMANN
from pullback.thermal.growth import Growth
from pullback.thermal.material import Material


class Stability:
    """What bounds the step of a growing part: rates (e,), each element's fastest mode at diffusivity 1 [1/m²]."""

    def __init__(
        self, growth: Growth, materials: Sequence[Material], element_material: np.ndarray, rates: np.ndarray
    ) -> None:
        self.growth, self.materials, self.rates = growth, materials, rates
        self.material = element_material[growth.elements]

    def limit(self, numbers: torch.Tensor) -> tuple[float, int]:
        """Return the largest stable step [s] for the shared numbers, and the mesh's element that sets it."""
        values = numbers.detach().cpu().double().numpy()
        convection, emissivity, ambient, birth = values[:4]
        place, diffusivity, cold = 4, [], 0.0
        hottest = max(ambient, birth)
        for one in self.materials:
            count = len(one.temperatures)
            _, _, liquidus, density = values[place : place + 4]
            cp, k = values[place + 4 : place + 4 + count], values[place + 4 + count : place + 4 + 2 * count]
            diffusivity.append((k / cp).max() / density)
            cold = max(cold, 1.0 / (density * cp.min()))
            hottest = max(hottest, one.temperatures[-1], liquidus if liquidus < 1e7 else 2000.0)
            place += 4 + 2 * count
        rates = self.rates * np.array(diffusivity)[self.material]
        slope = convection + 4.0 * emissivity * STEFAN_BOLTZMANN * hottest**3
        worst = int(rates.argmax())
        return 2.0 / (rates[worst] + slope * cold * self._widest), int(self.growth.elements[worst])

    @cached_property
    def _widest(self) -> float:
        """Return the largest area per volume of a node at any time [1/m]."""
        growth = self.growth
        volume = np.concatenate([growth.volume.sum(axis=0), growth.volume_after.sum(axis=0)])
        area = np.concatenate([growth.area, growth.area_after])
        there = volume > 0
        return float((area[there] / volume[there]).max(initial=0.0))
