"""A replay of a simulation as one HTML file that any browser plays, without a network."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from typing_extensions import Unpack

from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.thermal.process import History, Process
from pullback.viewer.part import PartDrawing, PartShot
from pullback.viewer.scene import LOCAL, Scene, start_server, stop_server
from pullback.viewer.shot import Drawing, Shot

LAST_FRAME = 0.8
"""For how long [s] the last frame stays before the film starts again."""
PAGES = (".html", ".htm")
FILMS = (".mp4", ".gif")


@overload
def save_replay(
    sim: Sim, states: Trajectory | Sequence[State], path: str | Path, **drawing: Unpack[Drawing]
) -> Path: ...
@overload
def save_replay(sim: Process, states: History, path: str | Path, **drawing: Unpack[PartDrawing]) -> Path: ...
def save_replay(sim: Any, states: Any, path: str | Path, **drawing: Any) -> Path:
    """Write a replay of one of the worlds, or of several side by side, as a standalone HTML file; return its path.

    A part being printed is drawn by the temperatures of its snapshots: `save_replay(process, history, path)`, with the
    options `title`, `limits` (the lowest and the highest temperature [K] of the colour bar), `colors`
    ("inferno", or other colours of matplotlib) and `seconds`, for how long it is played, 6 by default.

    Args:
        sim: The simulation, or a `pb.thermal.Process`.
        states: The trajectory of a rollout, or a list of states one step apart; of a process its history.
        path: The file, `.html`.
        controls: Those of the rollout (T, B, nu); with them, or where there are no actuators, contact forces are drawn.
        world: Which world of a batch, 0 by default, or a list of worlds to draw side by side.
        forces: Whether contact forces are drawn as arrows, by default yes.
        fps: Frames a second, 30 by default.
        title: A line of text above the picture.
        paths: Lines: points (n, 3) [m], or the name of a free body or of a `robot/link` whose path is drawn.
        gradients: Arrows too: vectors (T+1, B, 3) in world axes, one for each state, by the name of the body or link
            they are drawn at.
        particles: Times [s] (S,) and places [m] (S, n, 3) of material points, of which the nearest in time are drawn.
            With triangles (m, 3) or segments (m, 2) as a third, a sheet or a rope.
        follow: A free body or a `robot/link` that stays in the middle of the picture while the ground moves below it,
            for what runs far; by default the picture shows the whole way.
    """
    path = Path(path)
    if path.suffix.lower() not in PAGES:
        what = "call pb.viewer.save_video" if path.suffix.lower() in FILMS else "name it .html"
        raise PullbackError(f"save_replay writes a page for browsers, and {path.name!r} is none; {what}")
    if isinstance(sim, Process):
        from pullback.viewer.part_scene import record_part

        shot = PartShot(sim, states, **drawing)
        page = record_part(shot)
    else:
        shot = Shot(sim, states, **drawing)
        page = record(shot)
    path.parent.mkdir(parents=True, exist_ok=True)
    name = html.escape(shot.title or path.stem)
    path.write_text(re.sub("<title>.*?</title>", lambda _: f"<title>{name}</title>", page, count=1), encoding="utf-8")
    return path


def record(shot: Shot) -> str:
    """Return the page that plays the frames."""
    server = start_server(None, host=LOCAL)
    try:
        scene = Scene(server, shot.stage, shot.frame)
        centre, radius = shot.frame
        top = centre + np.array([0.0, 0.0, 0.7 * radius])
        clock = server.scene.add_label("/time", "", position=top, anchor="bottom-center", font_screen_scale=1.3)
        for thing in shot.things:
            # before the recording starts, so that every frame finds them
            scene.draw(thing.name, thing.at(0))
        recording = server.get_scene_serializer()
        for k, time in enumerate(shot.times):
            scene.show(shot.poses, k)
            if shot.follows:
                scene.move_ground(shot.travel(k))
            clock.text = "\n".join(shot.caption(k))
            for thing in shot.things:
                scene.draw(thing.name, thing.at(k))
            last = k + 1 == len(shot.times)
            recording.insert_sleep(LAST_FRAME if last else float(shot.times[k + 1] - time))
        return recording.as_html()
    finally:
        stop_server(server)
