"""The page of all benchmarks: bars, then each benchmark with its question, settings, check, tables and picture."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.benchmark import Bar, Benchmark, Row, markdown


def machine() -> str:
    """Return the processor, its widest vectors, the number of cores and the memory, and the GPU."""
    about = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    parts = [line.split(":", 1) for line in about.splitlines() if ":" in line]
    lines = {name.strip(): value.strip() for name, value in parts}
    flags = lines.get("flags", "").split()
    width = next((name for name, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if flag in flags), "no AVX2")
    cores = about.count("processor\t")
    memory = Path("/proc/meminfo").read_text().split()[1] if about else "0"
    name = lines.get("model name", platform.processor())
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name} family {lines.get('cpu family', '?')}, {width}, {cores} cores, {int(memory) / 1e6:.0f} GB{gpu}"


def axes_of(count: int) -> Any:
    """Return a figure with so many axes side by side."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(1, count, figsize=(5.2 * count, 4), layout="constrained")


def name_ticks(axes: Any, values: Sequence[int]) -> None:
    """Mark these values on a logarithmic horizontal axis, as plain numbers, and no others."""
    axes.set_xticks(values, [f"{x:,}" for x in values])
    axes.set_xticks([], minor=True)


def write_page(
    path: Path, benchmarks: Sequence[Benchmark], results: dict[str, dict[str, Row]], bars: list[Bar]
) -> None:
    """Write the page and its pictures beside it."""
    (path.parent / "images").mkdir(parents=True, exist_ok=True)
    lines = [
        "# Measured against today's tools", "",
        "Written by `make bench-all` (`bench/all.py`); do not edit. Rows: [benchmarks.json](benchmarks.json). Ratios",
        "are of figures of one run; times are medians, with quartiles where several calls were timed. –: not measured.",
        "",
    ]  # fmt: skip
    verdicts = {True: "met", False: "**missed**", None: "not measured"}
    ordered = sorted(bars, key=lambda bar: (bar.holds is not False, bar.holds is None))
    body = [[bar.what, bar.bar, bar.figure, verdicts[bar.holds]] for bar in ordered]
    lines += ["## Bars", "", *markdown(["what", "bar", "figure", ""], body), ""]
    for benchmark in benchmarks:
        rows = results.get(benchmark.name, {})
        if not rows:
            continue
        lines += [f"## {benchmark.title}: `python -m bench.all {benchmark.name}`", "", benchmark.question, ""]
        lines += [f"*Settings.* {benchmark.settings}", "", f"*Check.* {benchmark.check}", ""]
        dates = sorted({row["date"] for row in rows.values()})
        where = " and ".join(sorted({row["machine"] for row in rows.values()}))
        lines += [
            f"*Measured* {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on {where}.",
            "",
            *benchmark.tables(rows),
            "",
        ]
        if benchmark.plot is not None:
            picture = f"images/bench_{benchmark.name}.png"
            benchmark.plot(rows, str(path.parent / picture))
            lines += [f"![{benchmark.title}]({picture})", ""]
    path.write_text("\n".join(lines).rstrip() + "\n")
    print(f"page: {path}", flush=True)
