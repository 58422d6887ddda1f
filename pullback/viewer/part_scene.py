"""A part being printed in a browser: its surface in every frame, the colour bar, and a panel that plays it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.viewer.panels import ASIDE, Panel
from pullback.viewer.part import PartShot, Surface
from pullback.viewer.playback import SPEEDS
from pullback.viewer.replay import LAST_FRAME
from pullback.viewer.scene import LOCAL, Scene, start_server, stop_server


class PartScene:
    """The nodes of a part: one mesh a frame, of which one is seen."""

    def __init__(self, server: Any, shot: PartShot, aside: float = 0.0) -> None:
        self.scene = Scene(server, shot.stage, shot.frame, aside)
        self.shot = shot
        self.shown = 0
        self.nodes = [self._add(f"/part/{k}", shot.surface(k), k == 0) for k in range(len(shot.times))]
        bar, ticks = shot.bar()
        self._add("/colour bar", bar, True)
        for number, (place, text) in enumerate(ticks):
            server.scene.add_label(f"/temperature/{number}", text, position=place, anchor="center-left")

    def _add(self, name: str, surface: Surface, visible: bool) -> Any:
        import trimesh

        opaque = np.full((len(surface.colors), 1), 255, np.uint8)
        mesh = trimesh.Trimesh(
            surface.vertices, surface.faces, vertex_colors=np.concatenate([surface.colors, opaque], 1), process=False
        )
        return self.scene.scene.add_mesh_trimesh(name, mesh, visible=visible, cast_shadow=False, receive_shadow=False)

    def show(self, k: int) -> None:
        """Show frame k and hide the one before."""
        if k != self.shown:
            self.nodes[k].visible = True
            self.nodes[self.shown].visible = False
            self.shown = k


def record_part(shot: PartShot) -> str:
    """Return the page that plays a print."""
    server = start_server(None, host=LOCAL)
    try:
        scene = PartScene(server, shot)
        centre, radius = shot.frame
        top = centre + np.array([0.0, 0.0, 0.8 * radius])
        text = server.scene.add_label("/time", "", position=top, anchor="bottom-center", font_screen_scale=1.3)
        recording = server.get_scene_serializer()
        for k, time in enumerate(shot.times):
            scene.show(k)
            text.text = "\n".join(shot.caption(k))
            last = k + 1 == len(shot.times)
            recording.insert_sleep(LAST_FRAME if last else float(shot.times[k + 1] - time))
        return recording.as_html()
    finally:
        stop_server(server)


class PartPanel(Panel):
    """A print that is played, scrubbed and slowed down."""

    def __init__(self, server: Any, shot: PartShot) -> None:
        self.part = PartScene(server, shot, ASIDE)
        self.take(server, self.part.scene)
        self.shot = shot
        self.playing, self.time, self.end = True, 0.0, float(shot.times[-1])
        self.toggle = self.button("pause", self._toggle)
        self.slider = self.gui.add_slider("frame", 0, max(len(shot.times) - 1, 1), 1, 0)
        self.on_update(self.slider, self._scrub)
        self.speed = self.gui.add_dropdown("speed", SPEEDS, initial_value="1")

    def _toggle(self) -> None:
        self.playing = not self.playing
        self.toggle.label = "pause" if self.playing else "play"

    def _scrub(self) -> None:
        if self.playing:
            self._toggle()
        self.time = float(self.shot.times[min(int(self.slider.value), len(self.shot.times) - 1)])

    def tick(self, seconds: float) -> None:
        """Show the frame of the time it is."""
        self.do_notes()
        if self.playing:
            self.time += seconds * float(self.speed.value)
            if self.time > self.end + LAST_FRAME:
                self.time = 0.0
        k = int(np.searchsorted(self.shot.times, min(self.time, self.end) + 1e-9, side="right")) - 1
        self.part.show(k)
        if self.playing:
            self.slider.value = k
        self.say("  \n".join(self.shot.caption(k)))
