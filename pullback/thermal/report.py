"""The report of a design: plots of power, temperatures and loss, and a page with the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("tab:blue", "tab:red", "tab:green", "tab:purple", "tab:orange", "tab:cyan", "tab:olive", "tab:pink")
FOUND, TARGET = "tab:blue", "black"
Lines = Mapping[str, tuple[Any, Any]]


def plot_power(
    path: str | Path,
    times: Any,
    power: Any,
    *,
    target: Any = None,
    start: Any = None,
    on: Any = None,
    bounds: tuple[float, float] | None = None,
    title: str = "laser power",
) -> Path:
    """Draw the power [W] (N,) of the steps that begin at times (N,) or (N + 1,) [s], and return the picture's path.

    target, start: other powers to compare with. on: (N,) whether the beam is lit; where it is not, nothing is drawn.
    """
    power = as_array(power)
    t = as_array(times)[: len(power)]
    lit = np.ones(len(power), dtype=bool) if on is None else as_array(on).astype(bool)

    def seen(values: Any) -> np.ndarray:
        return np.where(lit, as_array(values), np.nan)

    figure, axes = _axes(title, "time [s]", "power [W]")
    if start is not None:
        axes.plot(t, seen(start), color="lightgray", label="at the start")
    if target is not None:
        axes.plot(t, seen(target), color=TARGET, linewidth=2.4, alpha=0.55, label="target")
    axes.plot(t, seen(power), color=FOUND, linewidth=1.1, label="found")
    for bound in bounds or ():
        axes.axhline(bound, color="gray", linestyle=":", linewidth=1.0)
    axes.set_ylim(bottom=0.0)
    return _save(figure, axes, path)


def plot_histories(
    path: str | Path,
    times: Any,
    temperatures: Any,
    names: Sequence[str],
    *,
    target: Any = None,
    start: Any = None,
    born: Any = None,
    levels: Mapping[str, float] | None = None,
    band: tuple[float, float] | None = None,
    title: str = "temperature at chosen points",
) -> Path:
    """Draw temperatures (N + 1, p) [K] over times (N + 1,) [s]; target, start: (N + 1, p) to compare with.

    born: (p,) times [s] before which nothing is drawn; levels: name -> temperature [K] of a dotted line; band: two
    temperatures to shade between.
    """
    t = as_array(times)
    there = np.ones((len(t), len(names)), dtype=bool) if born is None else t[:, None] >= as_array(born)

    def seen(values: Any) -> np.ndarray:
        return np.where(there, as_array(values), np.nan)

    found = seen(temperatures)
    figure, axes = _axes(title, "time [s]", "temperature [K]")
    if band is not None:
        axes.axhspan(*band, color="gold", alpha=0.25, linewidth=0.0)
    for k, name in enumerate(names):
        color = COLORS[k % len(COLORS)]
        axes.plot(t, found[:, k], color=color, linewidth=1.2, label=name)
        if target is not None:
            axes.plot(t, seen(target)[:, k], color=TARGET, linestyle="--", linewidth=0.8, label=_once(k, "target"))
        if start is not None:
            label = _once(k, "at the start")
            axes.plot(t, seen(start)[:, k], color=color, alpha=0.35, linestyle=":", linewidth=1.0, label=label)
    for name, level in (levels or {}).items():
        axes.axhline(level, color="gray", linestyle=":", linewidth=1.0)
        axes.annotate(name, (t[-1], level), ha="right", va="bottom", fontsize=8, color="gray")
    return _save(figure, axes, path)


def plot_loss(
    path: str | Path, losses: Sequence[float], *, bar: float | None = None, bar_name: str = "", title: str = "loss"
) -> Path:
    """Draw the losses over iterations on a logarithmic scale; bar: a loss to reach."""
    figure, axes = _axes(title, "iteration", "loss")
    axes.semilogy(np.arange(len(losses)), losses, color=FOUND, marker="." if len(losses) < 40 else "")
    if bar is not None:
        axes.axhline(bar, color="gray", linestyle="--", linewidth=1.0, label=bar_name or f"{bar:.3g}")
    return _save(figure, axes, path)


def plot_lines(
    path: str | Path, lines: Lines, xlabel: str, ylabel: str, *, title: str = "", marker: str = "", log: bool = False
) -> Path:
    """Draw any lines: name -> (x, y)."""
    figure, axes = _axes(title, xlabel, ylabel)
    for k, (name, (x, y)) in enumerate(lines.items()):
        axes.plot(as_array(x), as_array(y), color=COLORS[k % len(COLORS)], marker=marker, label=name)
    if log:
        axes.set_yscale("log")
    return _save(figure, axes, path)


def write_report(
    folder: str | Path,
    title: str,
    numbers: Mapping[str, Any],
    pictures: Mapping[str, Path] | None = None,
    *,
    text: str = "",
    files: Mapping[str, Path] | None = None,
) -> Path:
    """Write report.md with a table of numbers, pictures under their captions, and links to files; return its path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# {title}", ""]
    lines += [text.strip(), ""] if text else []
    lines += ["| what | value |", "|---|---|", *(f"| {name} | {_text(value)} |" for name, value in numbers.items()), ""]
    for caption, picture in (pictures or {}).items():
        lines += [f"## {caption[:1].upper()}{caption[1:]}", "", f"![{caption}]({_link(picture, folder)})", ""]
    if files:
        lines += ["## Files", "", *(f"- [{name}]({_link(file, folder)})" for name, file in files.items()), ""]
    path = folder / "report.md"
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return path


def as_array(x: Any) -> np.ndarray:
    """Return a tensor, list or array as an array."""
    return x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, float | np.floating):
        return str(value)
    return f"{value:.5g}"


def _link(file: Path, folder: Path) -> str:
    file = Path(file)
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.resolve().as_posix()


def _once(k: int, label: str) -> str | None:
    return label if k == 0 else None


def _axes(title: str, xlabel: str, ylabel: str) -> tuple[Any, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    return figure, axes


def _save(figure: Any, axes: Axes, path: str | Path) -> Path:
    """Put the legend beside the lines, write the picture, and return its path."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path
