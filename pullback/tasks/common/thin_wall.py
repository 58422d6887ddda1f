"""A thin wall of Inconel 718, printed track on track on a small plate: the part of the smaller thermal tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import pullback.thermal as th
from pullback.core.errors import PullbackError

THICKNESS = 1.5e-3
LAYER = 0.75e-3
SPEED = 7e-3
"""Of the beam [m/s]."""
BEAM = th.Gaussian(radius=1.12e-3, absorptivity=0.4)
AHEAD = 2e-3
"""So far before the beam [m] the material is there: an element that came up cold under it would shake the melt pool."""
CONVECTION, EMISSIVITY = 50.0, 0.2
MARGIN = 0.02
"""A plate is this much longer than the wall, half of it on either side [m]."""
WIDTH = 0.012
SHARE = 0.95
"""Of the largest stable step that is taken."""


def thin_wall(
    *,
    length: float,
    layers: int,
    cell: tuple[float, float, float],
    plate: float,
    dwell: float,
    cooling: float,
    faster: float = 1.0,
    **options: Any,
) -> th.Process:
    """Return the printing of a wall of so many layers, and what follows.

    Args:
        length: of the wall [m]; plate: its thickness [m]; cell: edges of the wall's elements [m].
        dwell: pause between two layers [s]; cooling: time after the last [s].
        faster: by how much larger than that of the material the thermal diffusivity may become in a run.
        options: more of the process.
    """
    for name, value, least in (("length", length, 2e-3), ("layers", layers, 1), ("cooling", cooling, 0.0)):
        if not value >= least:
            raise PullbackError(f"{name} is {value:g}; give at least {least:g}")
    size = (length, THICKNESS, layers * LAYER)
    mesh = th.box_on_plate(size=size, cell=cell, plate=(length + MARGIN, WIDTH, plate))
    path = th.layers(mesh, speed=SPEED, hatch=2 * THICKNESS, layer=LAYER, dwell=dwell)
    settings = {
        "material": th.material("in718"),
        "births": th.births(mesh, path, radius=AHEAD),
        "duration": path.duration + cooling,
        "source": BEAM,
        "convection": CONVECTION,
        "emissivity": EMISSIVITY,
        **options,
    }
    limit = th.Process(mesh, path, dt=0.25 * cell[0] / SPEED, **settings).stable_dt
    return th.Process(mesh, path, dt=SHARE * limit / faster, **settings)


def rough_power(watts: float, knots: int, bounds: tuple[float, float], seed: int) -> torch.Tensor:
    """Return a power [W] at knots to start from: about the same everywhere, not quite, so that nothing is symmetric."""
    wish = torch.rand(knots, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5
    return (watts + 0.02 * (bounds[1] - bounds[0]) * wish).clamp(*bounds)


def moments(process: th.Process, count: int = 40) -> list[int]:
    """Return about this many steps, evenly spread from the first state to the last."""
    return np.unique(np.linspace(0, process.steps, count).round().astype(int)).tolist()
