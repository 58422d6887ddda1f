"""Every table against today's tools by one command: `make bench-all`, or `python -m bench.all [CELL ...] [options]`.

Cells are named BENCHMARK/COMPETITOR/SETTING, and some of these parts from the left stand for all that begin so:
`tapes`, `tapes/JAX`. Rows are kept in docs/benchmarks.json; the page docs/measured.md and its pictures are made of them
each time. Options: `--list` shows the cells, `--page` writes the page only, `--missing` measures what has no row yet,
`--cap S` seconds a cell may take (180), `--seconds S` of timing a function (6), `--json PATH` another file of rows.
"""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timezone
from pathlib import Path

from bench import engines, models, scaling, tapes, ten
from bench.benchmark import Bar, Benchmark, NoResultError, Options, Row
from bench.report import machine, write_page

DOCS = Path(__file__).parent.parent / "docs"
BENCHMARKS: tuple[Benchmark, ...] = (
    tapes.BENCHMARK,
    engines.BENCHMARK,
    models.BENCHMARK,
    ten.BENCHMARK,
    scaling.BENCHMARK,
)
Results = dict[str, dict[str, Row]]


def bars(results: Results) -> list[Bar]:
    """Return every promise with its figure."""
    return [bar for each in (tapes, engines, models) for bar in each.bars(results.get(each.BENCHMARK.name, {}))]


def measure(
    benchmark: Benchmark, wanted: list[str], options: Options, results: Results, path: Path, *, missing: bool
) -> bool:
    """Measure the cells of a benchmark that were asked for, one by one, and keep each; tell whether there were any."""
    rows = results.setdefault(benchmark.name, {})
    chosen = {}
    for name, cell in benchmark.cells(options).items():
        asked = not wanted or any(f"{benchmark.name}/{name}/".startswith(f"{each}/") for each in wanted)
        if asked and not (missing and name in rows):
            chosen[name] = cell
    for name, cell in chosen.items():
        print(f"{benchmark.name}/{name} ...", flush=True)
        try:
            row = cell()
        except NoResultError as reason:
            row = {"failed": str(reason)}
        rows[name] = {**row, "date": f"{datetime.now(timezone.utc):%Y-%m-%d}", "machine": machine()}
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        print("   " + json.dumps({k: v for k, v in row.items() if k != "versions"})[:400], flush=True)
    return bool(chosen)


def main(arguments: list[str] | None = None) -> None:
    """Measure what was asked for, and write rows and page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*")
    for name in ("--list", "--page", "--missing"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--cap", type=float, default=Options().cap)
    parser.add_argument("--seconds", type=float, default=Options().seconds)
    parser.add_argument("--json", type=Path, default=DOCS / "benchmarks.json")
    given = parser.parse_args(arguments)
    options = Options(given.cap, given.seconds)
    if given.list:
        print("\n".join(f"{each.name}/{name}" for each in BENCHMARKS for name in each.cells(options)))
        return
    results: Results = json.loads(given.json.read_text()) if given.json.exists() else {}
    found = False
    for benchmark in BENCHMARKS if not given.page else ():
        found |= measure(benchmark, given.cells, options, results, given.json, missing=given.missing)
    if not (found or given.page or given.missing):
        raise SystemExit(f"no cell begins with {' or '.join(given.cells)}; see --list")
    write_page(given.json.parent / "measured.md", BENCHMARKS, results, bars(results))


if __name__ == "__main__":
    main()
