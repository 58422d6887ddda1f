"""Swing-up of pendulums and a cart-pole, and pick-and-place, each with its bar: `python -m bench.control swing-up`.

Pendulums of one to seven links by box-constrained iLQR from 16 random first controls, seed 0, float64, one thread: at
dt = 1/60 with one step a control, and with eight, where motors do nearly all the work. Beside each return stands what
the energy audit says. Times count without the loading of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import degrees
from pathlib import Path

from bench.robot import Rows, verdict
from pullback.tasks.common.swing_systems import cart_pole, pendulum, times
from pullback.tasks.pick_and_place import Options as PlaceOptions
from pullback.tasks.pick_and_place import run as run_place
from pullback.tasks.swing_up import drive, largest, solve

LINKS = (1, 2, 3, 4, 5, 6, 7)
STARTS, ITERATIONS, SEED = 16, 150, 0
SHARE = 0.99
"""Of the largest return, the bar at dt = 1/60."""
PUBLISHED = {1: 0.49, 2: 1.93, 3: 4.28, 4: 7.81, 5: 12.31, 6: 17.78, 7: 24.34}
"""Returns of Qiao et al. (ICML 2021, Table 4) by reinforcement learning with gradients."""

Figures = dict[str, float]


def measure_pendulums(substeps: int, links: Sequence[int] = LINKS) -> tuple[Rows, Figures]:
    """Solve pendulums of these numbers of links; the bar is on one step a control."""
    rows: Rows = []
    figures: Figures = {}
    for n in links:
        system = pendulum(n)
        swing = solve(system, system.compile(substeps, "cpu"), STARTS, ITERATIONS, SEED)
        gained, work, added = (swing.ends(x) for x in (*swing.energy, swing.energy.numerical))
        most = largest(swing.energy)
        bar = f" (bar {100 * SHARE:g} %) {verdict(swing.share >= SHARE)}" if substeps == 1 else ""
        rows.append(
            (
                f"{n} links, {times(substeps)}: {swing.iterations} iterations, {swing.seconds:.1f} s",
                f"{swing.total:.4f} of {system.maximum:g}, published {PUBLISHED.get(n, float('nan')):g}",
                f"{gained:.1f} J gained, {work:.1f} J by motors, {added:.1f} J numerical (at most {most:.1f})",
                f"{100 * swing.share:.3f} %{bar}",
            )
        )
        name = f"pendulum {n}, {times(substeps)}"
        for what, value in (
            ("return", swing.total), ("share", swing.share), ("iterations", swing.iterations),
            ("seconds", swing.seconds), ("gained [J]", gained), ("work [J]", work), ("numerical [J]", added),
            ("numerical at most [J]", most),
        ):  # fmt: skip
            figures[f"{name}: {what}"] = float(value)
    return rows, figures


def measure_cart_pole() -> tuple[Rows, Figures]:
    """Swing a pole up on its cart, and drive a heavier one by planning on the way."""
    system = cart_pole()
    swing = solve(system, system.compile(1, "cpu"), STARTS, ITERATIONS, SEED)
    (x, angle), speed = swing.states.q[-1, 0].tolist(), swing.states.qd[-1].abs().max().item()
    fine = abs(x) < 0.01 and abs(degrees(angle)) < 1.0 and speed < 0.05
    driven = drive("cpu")
    off, turned = driven.q[-1, 0].tolist()
    kept = abs(off) < 0.01 and abs(degrees(turned)) < 1.0
    rows = [
        (
            f"cart-pole: {swing.iterations} iterations, {swing.seconds:.1f} s",
            f"{100 * x:.2f} cm, {degrees(angle):.2f} degrees off, {speed:.3f} at most in speed",
            f"{swing.ends(swing.energy.gained):.1f} J gained, {swing.ends(swing.energy.work):.1f} J by the motor",
            f"upright at rest (1 cm, 1 degree, 0.05) {verdict(fine)}",
        ),
        (
            f"planning on the way, pole 10 % heavier: {len(driven.planning)} plans",
            f"{100 * off:.2f} cm, {degrees(turned):.2f} degrees off",
            f"{1e3 * sum(driven.planning[1:]) / len(driven.planning[1:]):.1f} ms a plan",
            f"{driven.real_time_factor:.2f} x real time, balanced {verdict(kept)}",
        ),
    ]
    figures = {"cart-pole: cost": swing.cost, "cart-pole: seconds": swing.seconds}
    figures |= {"mpc: real-time factor": driven.real_time_factor, "mpc: end [degrees]": abs(degrees(turned))}
    return rows, figures


def measure_place(scenes: int = 8) -> tuple[Rows, Figures]:
    """Place blocks in random scenes; the first guess places none."""
    found = run_place(PlaceOptions(scenes=scenes, generations=0))
    before, after = int(found.before.placed.sum()), int(found.after.placed.sum())
    worst, turned = 1e3 * found.after.distance.max().item(), found.after.angle.max().item()
    seconds = found.found.seconds[-1].item()
    rows = [
        (
            f"pick and place, {scenes} scenes: {len(found.found.losses)} epochs, {seconds:.0f} s",
            f"{after} of {scenes} placed (1 cm, 5 degrees)",
            f"first guess: {before}",
            f"at most {worst:.1f} mm, {turned:.1f} degrees off {verdict(after == scenes)}",
        )
    ]
    figures = {"place: scenes": scenes, "place: placed": after, "place: worst [mm]": worst, "place: seconds": seconds}
    return rows, {name: float(value) for name, value in figures.items()}


def draw(figures: Figures, path: Path) -> None:
    """Draw returns, and where the energy came from, by the number of links."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for substeps, color in ((1, "tab:blue"), (8, "tab:orange")):
        links = [n for n in LINKS if f"pendulum {n}, {times(substeps)}: share" in figures]

        def values(what: str, links: list[int] = links, substeps: int = substeps) -> list[float]:
            return [figures[f"pendulum {n}, {times(substeps)}: {what}"] for n in links]

        left.plot(links, [100 * x for x in values("share")], "o-", color=color, label=f"iLQR, {times(substeps)}")
        right.semilogy(links, values("gained [J]"), "o-", color=color, label=f"{times(substeps)}: gained")
        right.semilogy(links, values("work [J]"), "s--", color=color, label=f"{times(substeps)}: motors' work")
    published = [100 * PUBLISHED[n] / (0.5 * n * n) for n in LINKS]
    left.plot(LINKS, published, "^:", color="gray", label="published, by reinforcement learning")
    left.axhline(100 * SHARE, color="tab:red", linestyle="--", linewidth=0.8, label="bar")
    left.set(title="share of the largest return", xlabel="links", ylabel="return [% of the largest]")
    right.set(title="where the energy came from", xlabel="links", ylabel="energy [J]")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def measure(*, quick: bool = False) -> tuple[Rows, Figures]:
    """Swing up and place; if quick, only pendulums of up to three links at dt = 1/60."""
    if quick:
        return measure_pendulums(1, LINKS[:3])
    rows: Rows = []
    figures: Figures = {}
    for part in (lambda: measure_pendulums(1), lambda: measure_pendulums(8), measure_cart_pole, measure_place):
        more, found = part()
        rows += more
        figures |= found
    draw(figures, Path("out/swing_up.png"))
    return rows, figures
