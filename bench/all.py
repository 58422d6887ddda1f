"""Every table against today's tools by one command: `make bench-all`, or `python -m bench.all [CELL ...] [options]`.

Cells are named BENCHMARK/COMPETITOR/SETTING, and some of these parts from the left stand for all that begin so:
`tapes`, `tapes/JAX`. Rows are kept in docs/benchmarks.json; the page docs/measured.md and its pictures are made of them
each time. A cell without figures has a row that says why. Ctrl-C keeps the rows so far and says how to go on.

Options: `--list` shows the cells, `--page` writes the page only, `--missing` measures what has no row yet, `--from
CELL` leaves out those before it, `--cap S` seconds a competitor may take (180; after a rollout that takes longer its
longer ones are not tried), `--seconds S` of timing a function (6), `--json PATH` another file of rows, with its page
and pictures beside it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from bench import engines, models, scaling, tapes, ten
from bench.benchmark import Bar, Benchmark, Cell, NoResultError, NotHereError, Options, Row, TooMuchError
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


class StoppedError(Exception):
    """The command was interrupted while it measured the cell that is named."""


def chosen(benchmarks: Sequence[Benchmark], wanted: list[str], first: str, options: Options) -> dict[str, Cell]:
    """Return the cells that were asked for, by name, from one on; a name that fits none is an error."""
    found = {f"{each.name}/{name}": cell for each in benchmarks for name, cell in each.cells(options).items()}
    for part in wanted:
        if not any(begins(name, part) for name in found):
            raise SystemExit(f"no cell begins with {part}; see --list")
    if wanted:
        found = {name: cell for name, cell in found.items() if any(begins(name, part) for part in wanted)}
    if first:
        names = list(found)
        start = next((k for k, name in enumerate(names) if begins(name, first)), None)
        if start is None:
            raise SystemExit(f"no cell to go on from begins with {first}; see --list")
        found = {name: found[name] for name in names[start:]}
    return found


def begins(name: str, part: str) -> bool:
    """Tell whether a cell's name is this, or begins with these parts of it."""
    return f"{name}/".startswith(f"{part}/")


def row_of(cell: Cell) -> Row:
    """Measure a cell; where that fails, the row says why, and the others go on."""
    try:
        row = cell()
    except TooMuchError as reason:
        row = {"failed": str(reason), "too_much": True}
    except NotHereError as reason:
        row = {"failed": str(reason), "not_here": True}
    except NoResultError as reason:
        row = {"failed": str(reason)}
    except Exception as error:
        row = {"failed": f"failed: {type(error).__name__}: {' '.join(str(error).split())}"[:200]}
    return {**row, "date": f"{datetime.now(timezone.utc):%Y-%m-%d}", "machine": machine()}


def keep(results: Results, path: Path) -> None:
    """Write all rows; an interrupt leaves the file as it was."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    beside.replace(path)


def measure(cells: dict[str, Cell], results: Results, path: Path) -> dict[str, str]:
    """Measure cells one by one and keep each; return those without figures, and why."""
    without = {}
    growing = {each.name for each in BENCHMARKS if each.grows}
    # by benchmark and competitor, the first setting that was too much for it
    most: dict[str, str] = {}
    for k, (name, cell) in enumerate(cells.items()):
        print(f"{k + 1}/{len(cells)} {name} ...", flush=True)
        benchmark, _, rest = name.partition("/")
        competitor, _, setting = name.rpartition("/")
        if competitor in most:
            cell = partial(_not_tried, most[competitor])
        try:
            row = row_of(cell)
            if row.get("too_much") and benchmark in growing:
                most.setdefault(competitor, f"{row['failed']} at {setting}")
            rows = results.setdefault(benchmark, {})
            has_figures = rest in rows and "failed" not in rows[rest]
            if not (row.get("not_here") and has_figures):
                rows[rest] = row
            keep(results, path)
        except KeyboardInterrupt:
            raise StoppedError(name) from None
        if "failed" in row:
            without[name] = row["failed"]
        shown = {key: x for key, x in row.items() if key not in ("versions", "date", "machine")}
        print(f"   {row.get('failed') or json.dumps(shown)[:400]}", flush=True)
    return without


def _not_tried(reason: str) -> Row:
    raise NoResultError(reason)


def main(arguments: list[str] | None = None) -> None:
    """Measure what was asked for, write rows and page, and name the cells that have no figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*")
    for name in ("--list", "--page", "--missing"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--from", dest="first", default="", metavar="CELL")
    parser.add_argument("--cap", type=float, default=Options().cap)
    parser.add_argument("--seconds", type=float, default=Options().seconds)
    parser.add_argument("--json", type=Path, default=DOCS / "benchmarks.json")
    words = sys.argv[1:] if arguments is None else arguments
    given = parser.parse_args(words)
    cells = chosen(BENCHMARKS, given.cells, given.first, Options(given.cap, given.seconds))
    if given.list:
        print("\n".join(cells))
        return
    path: Path = given.json
    path.parent.mkdir(parents=True, exist_ok=True)
    results: Results = json.loads(path.read_text()) if path.exists() else {}
    if given.missing:
        there = {f"{benchmark}/{name}" for benchmark, rows in results.items() for name in rows}
        cells = {name: cell for name, cell in cells.items() if name not in there}
    try:
        without = measure({} if given.page else cells, results, path)
    except StoppedError as name:
        again = shlex.join([sys.executable, "-m", "bench.all", *words, "--from", str(name)])
        print(f"\nstopped at {name}; the rows so far are kept in {path}. To go on:\n  {again}", file=sys.stderr)
        raise SystemExit(130) from None
    write_page(path.parent / "measured.md", BENCHMARKS, results, bars(results))
    if given.page:
        return
    print(f"{len(cells) - len(without)} cells with figures, {len(without)} without", flush=True)
    for name, reason in without.items():
        print(f"  {name}: {reason}", flush=True)


def heed_signals() -> None:
    """Let a closed terminal or `kill` end the command as Ctrl-C does: competitors would run on without it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # which `nohup` ignores
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


if __name__ == "__main__":
    heed_signals()
    main()
