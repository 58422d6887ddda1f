"""A sheet that hangs by two corners and swings, finer and finer: a step and its adjoint; part of `make bench-soft`."""

from __future__ import annotations

import time

import numpy as np
import torch

import pullback.soft as soft
from bench.robot import Rows, verdict
from bench.table import Figures

CELLS = (18, 36, 71)
"""Cells along a side: 648, 2,592 and 10,082 triangles."""
STEPS = 4


def sheet_of(cells: int) -> soft.ClothSim:
    """Return a square metre of cloth, 300 N/m stiff."""
    linen = soft.Fabric(youngs=300.0, poisson=0.3, bending=1e-4, density=0.2, damping=0.01)
    pins = [0, cells]
    piece = soft.sheet((0, 0, 0), (1, 0, 0), (0, 1, 0), cells=(cells, cells), material=linen, pins=pins)
    return soft.ClothSim([piece], dt=0.01, gravity=(0, 0, -9.81), dtype=torch.float64, threads=1)


def measure_cloth(cells: tuple[int, ...] = CELLS) -> tuple[Rows, Figures]:
    """Return seconds of a step and its adjoint and Newton's steps over the number of triangles, and how they grow."""
    rows: Rows = []
    figures: Figures = {}
    found: dict[int, tuple[float, float]] = {}
    for side in cells:
        sim = sheet_of(side)
        triangles = len(sim.triangles)
        # it falls for a while, so that steps are those of a sheet that swings
        state = sim.rollout(sim.state(), 10).final
        v = state.v.clone().requires_grad_()
        begin = time.perf_counter()
        run = sim.rollout(state.replace(v=v), STEPS, checkpoint=1)
        middle = time.perf_counter()
        run.final.x.square().sum().backward()
        forward, backward = (middle - begin) / STEPS, (time.perf_counter() - middle) / STEPS
        found[triangles] = forward, backward
        newton = float(np.mean(run.newton))
        took = f"{forward:.3f} s, adjoint {backward:.3f} s, {newton:.1f}"
        print(f"{triangles:,} triangles: {took} Newton's steps", flush=True)
        took = f"{1e3 * forward:.0f} ms, adjoint {1e3 * backward:.0f} ms"
        rows.append((f"cloth of {triangles:,} triangles, a step", took, f"{newton:.1f} Newton's steps", ""))
        figures[f"cloth, {triangles} triangles, a step [s]"] = forward
        figures[f"cloth, {triangles} triangles, adjoint [s]"] = backward
    sizes = np.log(list(found))
    for name, column in (("step", 0), ("adjoint", 1)):
        exponent = float(np.polyfit(sizes, np.log([times[column] for times in found.values()]), 1)[0])
        bar = f"bar 1.3 {verdict(exponent <= 1.3)}"
        rows.append((f"cost of cloth's {name} ~ triangles to the power", f"{exponent:.2f}", "", bar))
        figures[f"cloth, exponent of the {name}"] = exponent
    return rows, figures


if __name__ == "__main__":
    for row in measure_cloth()[0]:
        print(" | ".join(row))
