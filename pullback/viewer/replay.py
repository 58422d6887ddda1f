"""A replay of a simulation as one HTML file that any browser plays, without a network."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.viewer.scene import LOCAL, Scene, start_server, stop_server
from pullback.viewer.shot import Shot, Vectors

Tensor = torch.Tensor

LAST_FRAME = 0.8
"""For how long [s] the last frame stays before the film starts again."""
PAGES = (".html", ".htm")
FILMS = (".mp4", ".gif")


def save_replay(
    sim: Sim,
    states: Trajectory | Sequence[State],
    path: str | Path,
    *,
    controls: Tensor | None = None,
    world: int | Sequence[int] = 0,
    forces: bool = True,
    fps: float = 30.0,
    title: str = "",
    paths: Sequence[str | Tensor | np.ndarray] = (),
    gradients: Vectors | None = None,
) -> Path:
    """Write a replay of one of the worlds, or of several side by side, as a standalone HTML file; return its path.

    `states` is the trajectory of a rollout, or a list of states one step apart. Contact forces are drawn as arrows if
    there are no actuators or their `controls` (T, B, nu) are given. `paths` are lines to draw: points (n, 3) [m], or
    the name of a free body or of a `robot/link` whose path is drawn. `gradients` are arrows too: vectors (T+1, B, 3)
    in world axes, one for each state, by the name of the body or link they are drawn at.
    """
    path = Path(path)
    if path.suffix.lower() not in PAGES:
        what = "call pb.viewer.save_video" if path.suffix.lower() in FILMS else "name it .html"
        raise PullbackError(f"save_replay writes a page for browsers, and {path.name!r} is none; {what}")
    shot = Shot(
        sim,
        states,
        controls=controls,
        world=world,
        forces=forces,
        fps=fps,
        title=title,
        paths=paths,
        gradients=gradients,
    )
    page = record(shot)
    path.parent.mkdir(parents=True, exist_ok=True)
    name = html.escape(title or path.stem)
    path.write_text(re.sub("<title>.*?</title>", lambda _: f"<title>{name}</title>", page, count=1), encoding="utf-8")
    return path


def record(shot: Shot) -> str:
    """Return the page that plays the frames."""
    server = start_server(None, host=LOCAL)
    try:
        scene = Scene(server, shot.stage, shot.frame)
        for number, (points, color) in enumerate(shot.lines):
            scene.add_line(f"/paths/{number}", points, color)
        centre, radius = shot.frame
        top = centre + np.array([0.0, 0.0, 0.7 * radius])
        clock = server.scene.add_label("/time", "", position=top, anchor="bottom-center", font_screen_scale=1.3)
        for arrows, _ in shot.arrows:
            # before the recording starts, so that every frame finds them
            scene.show_arrows(arrows, np.zeros((1, 2, 3), np.float32))
        recording = server.get_scene_serializer()
        for k, time in enumerate(shot.times):
            scene.show(shot.poses, k)
            clock.text = "\n".join(shot.caption(k))
            for arrows, moments in shot.arrows:
                scene.show_arrows(arrows, arrows.segments(moments[k]))
            last = k + 1 == len(shot.times)
            recording.insert_sleep(LAST_FRAME if last else float(shot.times[k + 1] - time))
        return recording.as_html()
    finally:
        stop_server(server)
