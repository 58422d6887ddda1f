"""Materials: conductivity and heat capacity as tables over temperature, latent heat, density."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

import numpy as np

from pullback.core.errors import PullbackError, unknown_name

SHIPPED = {
    "in718": "in718",
    "in718_agazhanov": "in718",
    "316l": "steel_316l",
    "ti64": "ti64",
}
"""Shipped material -> the file of `materials/` it stands in."""

NEVER_MELTS = (1e8, 2e8)
"""Solidus and liquidus [K] of a material without latent heat."""


@dataclass(frozen=True, eq=False)
class Material:
    """A material; between the temperatures of its table conductivity and heat capacity are linear, outside constant.

    Args:
        temperatures: (K,) [K], increasing.
        conductivity: (K,) [W/(m K)].
        heat_capacity: (K,) [J/(kg K)], without latent heat.
        density: [kg/m³].
        latent_heat: of melting [J/kg], taken up between solidus and liquidus [K] along a smooth step.
        source: where the numbers come from.
    """

    name: str
    temperatures: np.ndarray
    conductivity: np.ndarray
    heat_capacity: np.ndarray
    density: float
    latent_heat: float = 0.0
    solidus: float | None = None
    liquidus: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for column in ("temperatures", "conductivity", "heat_capacity"):
            values = np.array(getattr(self, column), dtype=np.float64)
            values.flags.writeable = False
            object.__setattr__(self, column, values)
        self._check_table()
        if not (np.isfinite(self.density) and self.density > 0):
            raise PullbackError(f"material {self.name!r}: density is {self.density} kg/m³; expected a positive number")
        if not (np.isfinite(self.latent_heat) and self.latent_heat >= 0):
            raise PullbackError(f"material {self.name!r}: latent_heat is {self.latent_heat} J/kg; expected 0 or more")
        if self.solidus is None and self.liquidus is None and self.latent_heat == 0.0:
            object.__setattr__(self, "solidus", NEVER_MELTS[0])
            object.__setattr__(self, "liquidus", NEVER_MELTS[1])
        if self.solidus is None or self.liquidus is None:
            raise PullbackError(f"material {self.name!r} has latent heat; give both solidus and liquidus [K]")
        if not self.solidus < self.liquidus:
            raise PullbackError(
                f"material {self.name!r} melts from {self.solidus:g} to {self.liquidus:g} K; the solidus must be below "
                f"the liquidus (for a pure metal take them a few kelvin apart)"
            )

    def _check_table(self) -> None:
        T = self.temperatures
        if T.ndim != 1 or not len(T):
            raise PullbackError(
                f"material {self.name!r}: temperatures have shape {T.shape}; expected a list of numbers"
            )
        for column in ("temperatures", "conductivity", "heat_capacity"):
            values = getattr(self, column)
            if values.shape != T.shape:
                raise PullbackError(
                    f"material {self.name!r}: {column} has {values.size} entries and temperatures {len(T)}"
                )
            bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
            if len(bad):
                raise PullbackError(
                    f"material {self.name!r}, row {bad[0]} of its table: {column} is {values[bad[0]]:g}; expected a "
                    f"positive number"
                )
        bad = np.flatnonzero(np.diff(T) <= 0)
        if len(bad):
            row = bad[0] + 1
            raise PullbackError(
                f"material {self.name!r}, row {row} of its table: {T[row]:g} K comes after {T[row - 1]:g} K; "
                f"temperatures must increase"
            )

    def with_(self, **changes) -> Material:
        """Return the material with some of its numbers changed."""
        return replace(self, **changes)

    def highest_diffusivity(self) -> float:
        """Return the largest k / (rho cp) [m²/s] at any temperature, without the latent heat, which only lowers it."""
        # a quotient of linear functions is largest at an end of its segment
        return float((self.conductivity / self.heat_capacity).max() / self.density)


def constant_material(
    conductivity: float,
    heat_capacity: float,
    density: float,
    latent_heat: float = 0.0,
    solidus: float | None = None,
    liquidus: float | None = None,
    name: str = "constant",
) -> Material:
    """Return a material whose conductivity [W/(m K)] and heat capacity [J/(kg K)] do not depend on temperature."""
    return Material(
        name,
        np.array([1.0]),
        np.array([conductivity]),
        np.array([heat_capacity]),
        density,
        latent_heat,
        solidus,
        liquidus,
    )


@cache
def material(name: str) -> Material:
    """Return a shipped material: "in718", "in718_agazhanov", "316l" or "ti64"."""
    if name not in SHIPPED:
        raise unknown_name("material", name, SHIPPED)
    module = import_module(f"pullback.thermal.materials.{SHIPPED[name]}")
    return module.MATERIALS[name]


def segment_rows(materials: Sequence[Material], numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of all tables (materials · segments, 10) and the phases (materials, 5) that kernels read.

    numbers: of each material latent heat, solidus, liquidus, density, then heat capacities and conductivities.
    """
    segments = 1 + max(len(m.temperatures) for m in materials)
    rows = np.zeros((len(materials), segments, 10))
    phases = np.zeros((len(materials), 5))
    place = 0
    for m, one in enumerate(materials):
        T, count = one.temperatures, len(one.temperatures)
        phases[m, :4] = numbers[place : place + 4]
        phases[m, 4] = 1.0 / (phases[m, 2] - phases[m, 1])
        cp = numbers[place + 4 : place + 4 + count]
        k = numbers[place + 4 + count : place + 4 + 2 * count]
        place += 4 + 2 * count
        width = np.diff(T)
        u, h = (np.append(0.0, np.cumsum(width * (v[1:] + v[:-1]) / 2)) for v in (k, cp))
        near = np.maximum(np.arange(count + 1) - 1, 0)
        table = rows[m, : count + 1]
        table[:, 0] = np.append(-np.inf, T)
        table[:, 1] = np.append(T, np.inf)
        table[:, 2], table[:, 3], table[:, 5], table[:, 7], table[:, 8] = T[near], cp[near], k[near], u[near], h[near]
        table[1:-1, 4], table[1:-1, 6], table[1:-1, 9] = np.diff(cp) / width, np.diff(k) / width, width
    return rows.reshape(-1, 10), phases


def table_cotangents(one: Material, sums: np.ndarray) -> np.ndarray:
    """Return the cotangents (K,) of a table's values from the sums (segments, 3) over its segments, eq. (15)."""
    T, count = one.temperatures, len(one.temperatures)
    adj = np.zeros(count)
    adj[0] += sums[0, 1]
    adj += sums[1 : count + 1, 1]
    adj[1:] += sums[1:count, 2]
    # an integral up to a segment's lower end is the sum of the trapezoids before it
    beyond = np.cumsum(sums[: count + 1, 0][::-1])[::-1]
    half = np.diff(T) / 2 * beyond[2:]
    adj[:-1] += half
    adj[1:] += half
    return adj


def enthalpies(rows: np.ndarray, phase: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Return the enthalpy [J/kg] at temperatures (n,) from one material's rows of `segment_rows`, eq. (3)."""
    count = int(np.flatnonzero(np.isinf(rows[:, 1]))[0])
    row = rows[np.searchsorted(rows[:count, 1], T, side="right")]
    d = T - row[:, 2]
    x = np.clip((T - phase[1]) / (phase[2] - phase[1]), 0.0, 1.0)
    return row[:, 8] + d * (row[:, 3] + 0.5 * row[:, 4] * d) + phase[0] * x * x * (3.0 - 2.0 * x)
