"""`pullback view`: a robot, or the replay of a run, in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import tyro

from pullback.cli.info import ROBOT_HELP
from pullback.core.errors import PullbackError
from pullback.robot.load import load

VIEW_HELP = f"{ROBOT_HELP} Or a run: its folder, or its replay (.html)."


def view(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ROBOT|RUN", help=VIEW_HELP)],
    /,
    base: Literal["fixed", "floating"] | None = None,
    port: int = 8080,
    host: str = "127.0.0.1",
    open: bool = True,
) -> int:
    """Look at a robot in the browser: move its joints, drop it into physics, pull at it; or play the replay of a run.

    Args:
        base: Whether the root link is bolted to the world or free to move; by default what the description says.
        port: Where the page is: http://localhost:PORT.
        host: The address to listen at; 0.0.0.0 lets other machines see the page.
        open: Open the browser.
    """
    path = Path(what).expanduser()
    if path.suffix.lower() in (".html", ".htm") or path.is_dir():
        return _open_replay(path, open)
    from pullback.viewer import view as view_robot

    view_robot(load(what, base=base), port=port, host=host, block=True, open_browser=open)
    return 0


def _open_replay(path: Path, open_browser: bool) -> int:
    """Print where the replays of a run are, and open the newest."""
    replays = sorted(path.glob("*.html"), key=lambda file: file.stat().st_mtime) if path.is_dir() else [path]
    if not replays or not replays[-1].is_file():
        raise PullbackError(f"no replay (.html) at {str(path)!r}; pullback run TASK --out FOLDER writes one")
    for replay in reversed(replays):
        print(f"replay: {replay.resolve().as_uri()}")
    if open_browser:
        webbrowser.open(replays[-1].resolve().as_uri())
    return 0
