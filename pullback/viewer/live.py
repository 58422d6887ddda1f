"""The live viewer: robots posed by sliders, simulations that run and can be pulled at, trajectories played."""

from __future__ import annotations

import sys
import threading
import time
import traceback
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.thermal.process import History, Process
from pullback.viewer.panels import Panel
from pullback.viewer.part import PartShot
from pullback.viewer.part_scene import PartPanel
from pullback.viewer.playback import PlaybackPanel
from pullback.viewer.posing import RobotPanel, SimPanel
from pullback.viewer.scene import LOCAL, start_server, stop_server
from pullback.viewer.shot import Shot

FPS = 30.0
PORT = 8080


class Viewer:
    """A page in the browser that shows a robot, a simulation or a trajectory, until `stop`.

    `url` is where; `panel` holds its sliders and buttons.
    """

    def __init__(self, make_panel: Any, *, port: int | None, host: str) -> None:
        self.server = start_server(port, host=host, label="Pullback")
        try:
            self.panel: Panel = make_panel(self.server)
        except BaseException:
            stop_server(self.server)
            raise
        self.url = f"http://{'localhost' if host in (LOCAL, '0.0.0.0') else host}:{self.server.get_port()}"
        self.error: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pullback viewer", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"Viewer({self.url}{', stopped' if self._stopped.is_set() else ''})"

    def _repr_html_(self) -> str:
        """Show the page in a notebook's cell."""
        return f'<iframe src="{self.url}" width="100%" height="520" style="border: 0"></iframe>'

    def _run(self) -> None:
        """Draw frame after frame: GUI callbacks only take notes, so that one thread alone touches the simulation."""
        last = time.perf_counter()
        while not self._stopped.is_set():
            now = time.perf_counter()
            try:
                with self.server.atomic():
                    self.panel.tick(now - last)
            except PullbackError as error:
                self.panel.say(str(error))
            except Exception as error:
                # shown in the page and on the terminal, and kept for whoever waits
                self.error = error
                traceback.print_exc()
                self.panel.say(f"{type(error).__name__}: {error}")
                self._stopped.wait(1.0)
            last = now
            self._stopped.wait(max(0.0, 1.0 / FPS - (time.perf_counter() - now)))

    def wait(self) -> None:
        """Return when the viewer is stopped; Ctrl-C stops it."""
        try:
            while not self._stopped.wait(0.2):
                pass
        except KeyboardInterrupt:
            self.stop()

    def stop(self) -> None:
        """Close the page's server."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._thread.join(5.0)
            stop_server(self.server)


def view(
    what: RobotModel | Sim | Process | str | Path,
    states: Trajectory | Sequence[State] | State | History | None = None,
    *,
    port: int | None = PORT,
    host: str = LOCAL,
    block: bool | None = None,
    open_browser: bool = False,
    **drawing: Any,
) -> Viewer:
    """Show a robot, a simulation or a trajectory in the browser, live; return the viewer.

    - `view(robot)`, or the name or file of one: sliders move its joints; "run" drops it into physics, with servos that
      hold the sliders' angles, and a body can be pulled by a spring.
    - `view(sim)`, from `states`, one state of B worlds, if given: the simulation runs, is paused and reset; worlds
      stand side by side.
    - `view(sim, motion)`: a trajectory is played, scrubbed and slowed down; the other arguments are those of
      `save_replay`.
    - `view(process, history)`: a part being printed, coloured by its temperatures.

    The page is at http://localhost:8080, or another `port`; None takes a free one. `host="0.0.0.0"` lets other machines
    see it. `block` waits until Ctrl-C, by default in scripts and not at a prompt or in a notebook.
    """
    if isinstance(what, Trajectory):
        raise PullbackError("a trajectory does not know what moves in it; give the simulation too: view(sim, motion)")
    if isinstance(what, (str, Path)):
        what = load(what)
    if isinstance(what, Process):
        part = PartShot(what, states, **drawing)  # pyright: ignore[reportArgumentType]
        viewer = Viewer(lambda server: PartPanel(server, part), port=port, host=host)
    elif isinstance(what, RobotModel):
        if states is not None:
            raise PullbackError("states belong to a simulation, and a robot was given; call view(sim, states)")
        viewer = Viewer(lambda server: RobotPanel(server, what), port=port, host=host)
    elif not isinstance(what, Sim):
        raise PullbackError(f"view takes a robot or a simulation, got a {type(what).__name__}: pb.load('panda')")
    elif isinstance(states, History):
        raise PullbackError("a history belongs to the process it was computed by; call view(process, history)")
    elif states is None or isinstance(states, State):
        worlds = drawing.pop("world", None)
        if drawing:
            raise PullbackError(f"{', '.join(drawing)}: only with a trajectory, view(sim, motion)")
        start = states or what.initial_state()
        viewer = Viewer(lambda server: SimPanel(server, what, start, worlds), port=port, host=host)
    else:
        shot = Shot(what, states, **drawing)
        viewer = Viewer(lambda server: PlaybackPanel(server, shot), port=port, host=host)
    return _opened(viewer, open_browser=open_browser, block=block)


def _opened(viewer: Viewer, *, open_browser: bool, block: bool | None) -> Viewer:
    """Say where the page is, and wait if asked to."""
    print(f"viewer: {viewer.url}   (Ctrl-C stops it)", flush=True)
    if open_browser:
        webbrowser.open(viewer.url)
    if block if block is not None else not _interactive():
        viewer.wait()
    return viewer


def _interactive() -> bool:
    """Tell whether somebody types at a prompt or in a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "ipykernel" in sys.modules
