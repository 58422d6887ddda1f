"""What the panels of the live viewer share: a scene, notes from buttons, messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pullback.viewer.scene import Scene
from pullback.viewer.stage import Frame, Stage

ASIDE = 0.5
"""How far things are moved to the left of the middle, in radii: sliders cover the right of the page."""


class Panel:
    """Sliders and buttons beside a scene; `tick` is called for every frame, by one thread."""

    def __init__(self, server: Any, stage: Stage, frame: Frame) -> None:
        self.take(server, Scene(server, stage, frame, ASIDE))

    def take(self, server: Any, scene: Scene) -> None:
        """Begin with a scene that has been drawn."""
        self.server, self.gui = server, server.gui
        self.scene = scene
        self.text = self.gui.add_markdown("")
        self._notes: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Show a line of text above the sliders."""
        if self.text.content != text:
            self.text.content = text

    def button(self, label: str, action: Callable[[], None]) -> Any:
        """Add a button; its action is done by the thread that draws."""
        handle = self.gui.add_button(label)
        handle.on_click(lambda _: self.note(action))
        return handle

    def on_update(self, handle: Any, action: Callable[[], None]) -> None:
        """Let the thread that draws do something when a user changes a slider or a box."""
        # what this program sets itself comes without a client
        handle.on_update(lambda event: self.note(action) if event.client is not None else None)

    def note(self, action: Callable[[], None]) -> None:
        """Leave something for the thread that draws."""
        with self._lock:
            self._notes.append(action)

    def do_notes(self) -> None:
        """Do what buttons and sliders asked for."""
        with self._lock:
            notes, self._notes = self._notes, []
        for action in notes:
            action()

    def tick(self, seconds: float) -> None:
        """Draw the next frame, `seconds` after the last."""
        raise NotImplementedError
