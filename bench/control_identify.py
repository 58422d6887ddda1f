"""Identification from MuJoCo's motion: `python -m bench.control identify`.

Three scenes of the task identify-contact, without noise and with 1 %, sampled at 100 Hz from MuJoCo steps of 0.25 ms.
For each search: the largest relative error of a mass or friction (and of whatever else is unknown), iterations, and
seconds. Bars: masses and frictions within 2 %, within 5 % with noise, by Levenberg–Marquardt.
"""

from __future__ import annotations

from pathlib import Path

import torch

from bench.robot import Rows, verdict
from pullback.tasks.identify_contact import TITLES, Chosen, Found, Options, run

SCENES = ("push", "roll", "arm")
BARS = {0.0: 0.02, 0.01: 0.05}
LIMITS = {"lm": 50, "adam": 150, "cma": 40}
OUT = Path("out/bench_identify")


def measure(*, quick: bool = False) -> tuple[Rows, dict[str, float]]:
    """Return a line for each search in each scene; if quick, for Levenberg–Marquardt alone."""
    rows: Rows = []
    for scene in SCENES:
        rows += measure_scene(scene, 0.0, ("lm",) if quick else ("lm", "adam", "cma"))
        rows += measure_scene(scene, 0.01, ("lm",))
    return rows, {what: float(value.rstrip("%")) for what, value, _, _ in rows}


def measure_scene(scene: str, noise: float, methods: tuple[Chosen, ...]) -> Rows:
    """Return a line for each search in a scene."""
    rows: Rows = []
    for method in methods:
        options = Options(scene=scene, noise=noise, methods=(method,), iterations=LIMITS[method], out=OUT)  # pyright: ignore[reportArgumentType]
        rows += lines(scene, noise, method, run(options))
    return rows


def lines(scene: str, noise: float, method: str, found: Found) -> Rows:
    """Return what a search found as lines of the table; the bar is for Levenberg–Marquardt."""
    search = found.searches[method]
    what = f"{scene}, {noise:.0%} noise, {TITLES[method]}"
    error, bar = found.error(method), BARS[noise]
    asked = torch.tensor([entry.startswith(("mass", "friction")) for entry in found.scene.true])
    worst = float(error[asked].max())
    judged = f"{bar:.0%} {verdict(worst <= bar)}" if method == "lm" else f"{bar:.0%} when {reached(found, method, bar)}"
    cost = f"{len(search.losses) - 1} iterations, {search.seconds[-1]:.1f} s"
    rows: Rows = [(f"{what}: masses and frictions", f"{worst:.2%}", judged, cost)]
    if not bool(asked.all()):
        rows.append((f"{what}: the others", f"{float(error[~asked].max()):.2%}", "", ""))
    return rows


def reached(found: Found, method: str, bar: float) -> str:
    """Say after how many iterations and seconds all numbers were within the bar for good."""
    errors = found.errors_on_the_way(method)
    outside = (errors > bar).nonzero()
    first = int(outside[-1]) + 1 if len(outside) else 0
    return "never" if first == len(errors) else f"{first} iterations, {found.searches[method].seconds[first]:.1f} s"
