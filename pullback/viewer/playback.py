"""The panel that plays a trajectory: play, pause, scrub, slow motion."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.viewer.panels import Panel
from pullback.viewer.replay import LAST_FRAME
from pullback.viewer.shot import Shot

SPEEDS = ("0.05", "0.1", "0.25", "0.5", "1", "2", "4")


class PlaybackPanel(Panel):
    """A trajectory with its forces, gradients and paths."""

    def __init__(self, server: Any, shot: Shot) -> None:
        super().__init__(server, shot.stage, shot.frame)
        self.shot = shot
        self.playing = True
        self.time = 0.0
        self.shown = -1
        self.end = float(shot.times[-1])
        self.toggle = self.button("pause", self._toggle)
        self.slider = self.gui.add_slider("time [s]", 0.0, max(self.end, 1e-3), max(self.end, 1e-3) / 1000, 0.0)
        self.on_update(self.slider, self._scrub)
        self.speed = self.gui.add_dropdown("speed", SPEEDS, initial_value="1")
        self.boxes = {}
        for thing in shot.things:
            if thing.legend:
                self.boxes[thing.name] = self.gui.add_checkbox(thing.name, True, hint=thing.legend)
                self.on_update(self.boxes[thing.name], self._redraw)

    def _toggle(self) -> None:
        self.playing = not self.playing
        self.toggle.label = "pause" if self.playing else "play"

    def _scrub(self) -> None:
        if self.playing:
            self._toggle()
        self.time = float(self.slider.value)

    def _redraw(self) -> None:
        self.shown = -1

    def tick(self, seconds: float) -> None:
        """Show the frame of the time it is."""
        self.do_notes()
        if self.playing:
            self.time += seconds * float(self.speed.value)
            if self.time > self.end + LAST_FRAME:
                self.time = 0.0
        k = int(np.searchsorted(self.shot.times, min(self.time, self.end) + 1e-9, side="right")) - 1
        if k == self.shown:
            return
        self.shown = k
        self.scene.show(self.shot.poses, k)
        if self.shot.follows:
            self.scene.move_ground(self.shot.travel(k))
        for thing in self.shot.things:
            visible = thing.name not in self.boxes or self.boxes[thing.name].value
            self.scene.draw(thing.name, thing.at(k), visible=visible)
        if self.playing:
            self.slider.value = float(min(self.time, self.end))
        self.say("  \n".join(self.shot.caption(k)))
