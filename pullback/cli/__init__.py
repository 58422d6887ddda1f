"""The command `pullback`: look at a robot, run a task, check an installation."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import tyro
from rich.console import Console
from rich.markup import escape

import pullback
from pullback.cli.compile import compile
from pullback.cli.doctor import doctor
from pullback.cli.info import info
from pullback.cli.run import run
from pullback.cli.runs import runs
from pullback.cli.view import view
from pullback.core.errors import PullbackError
from pullback.core.ranks import RankError

DESCRIPTION = """Differentiable physics: robots that touch things, and parts that are printed.
`pullback --debug COMMAND ...` shows where an error came from."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 done, 1 a check failed, 2 a mistake in the request."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    warnings.showwarning = _show_warning
    try:
        return _dispatch(arguments)
    except BrokenPipeError:
        # whoever reads the output has had enough, as in `pullback info panda | head`
        sys.stderr.close()
        return 0
    except (PullbackError, OSError) as error:
        if debug:
            raise
        if isinstance(error, RankError) and not error.speaks:
            return 2
        _print_error(f"[bold red]error:[/] {escape(str(error))}")
        return 2
    except KeyboardInterrupt:
        _print_error("[yellow]stopped[/]")
        return 130


def _dispatch(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        print(f"pullback {pullback.__version__}")
        return 0
    if arguments[:1] == ["run"]:
        return run(arguments[1:])
    if arguments[:1] == ["runs"]:
        return runs(arguments[1:])
    if arguments[:1] == ["sweep"]:
        from pullback.cli.sweep import sweep

        return sweep(arguments[1:])
    app = tyro.extras.SubcommandApp()
    app.command(info)
    app.command(view)
    app.command(name="run")(_run_help)
    app.command(name="runs")(_runs_help)
    app.command(name="sweep")(_sweep_help)
    app.command(compile)
    app.command(doctor)
    return app.cli(prog="pullback", description=DESCRIPTION, args=arguments or ["--help"]) or 0


def _run_help() -> None:
    """Run a task; `pullback run` lists them."""


def _runs_help() -> None:
    """List runs; show, compare or resume them."""


def _sweep_help() -> None:
    """Run a task many times, over options and seeds; `pullback sweep --help` lists its options."""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _print_error(f"[yellow]warning:[/] {escape(str(message))}")


def _print_error(text: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(text)
