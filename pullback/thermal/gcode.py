"""Toolpaths from G-code: G0 to G4, G20, G21, G90, G91, and the beam from S or E words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from pullback.core.errors import PullbackError, shortened
from pullback.core.files import naming, read_lines
from pullback.thermal.toolpath import Toolpath

WORD = re.compile(r"([A-Z])\s*([-+]?(?:\d+\.?\d*|\.\d+))")
SPINDLE, MOVE, EXTRUSION = re.compile(r"\bM0?[34]\b"), re.compile(r"\bG0?[123]\b"), re.compile(r"\bE[-+.\d]")
INCH = 0.0254
MILLIMETRE = 1e-3


def read_gcode(
    path: str | Path, feed: float | None = None, travel_feed: float | None = None, arc: float = 10.0
) -> Toolpath:
    """Return the path of the tool in a G-code file, in metres and seconds.

    G0, G1 move straight, G2, G3 (I, J or R, in the plane of x and y) in arcs split into chords; G4 waits (P
    milliseconds, S seconds); G20, G21 inches, millimetres; G90, G91, M82, M83 absolute, relative; G92 sets the
    position; F is in units a minute. Other words are ignored.

    The beam: where a file has M3, M4, the beam is lit on G1 to G3 from there to M5, with S above zero if S is given;
    where it has E words instead (extrusion), on moves that increase E; with neither, on all of G1, G2, G3.

    Args:
        feed: speed of moves before the first F [m/s]; travel_feed: speed of G0 [m/s], none: as the last F.
        arc: largest angle of a chord of an arc [degrees].
    """
    reader = _Reader(path, _beam_rule(path), feed, travel_feed, np.deg2rad(arc))
    for number, line in enumerate(read_lines(path), start=1):
        reader.line = number
        reader.block(_code(line))
    if len(reader.rows) < 2:
        raise PullbackError(f"{path} has no moves (G0 to G3); is it G-code?")
    t, x, y, z, on = np.array(reader.rows).T
    with naming(path):
        return Toolpath(t, x, y, z, on)


def _code(line: str) -> str:
    """Return a line without comments, line number and checksum."""
    if not line:
        return line
    line = _outside_brackets(line).split(";")[0].split("*")[0].upper().strip()
    return "" if line.startswith("%") else re.sub(r"^N\d+", "", line)


def _outside_brackets(line: str) -> str:
    """Return a line with a blank for each comment in brackets, in time linear in its length."""
    kept, start = [], 0
    while (opened := line.find("(", start)) >= 0 and (closed := line.find(")", opened)) >= 0:
        kept.append(line[start:opened])
        start = closed + 1
    return " ".join([*kept, line[start:]])


def _beam_rule(path: str | Path) -> str:
    """Return what lights the beam: "spindle", "extruder" or "moves"."""
    rule = "moves"
    for line in read_lines(path):
        outside = line.partition(";")[0].upper()
        if "M" not in outside and (rule == "extruder" or "E" not in outside):
            continue
        code = _code(line)
        if SPINDLE.search(code):
            return "spindle"
        move = MOVE.search(code)
        if move and EXTRUSION.search(code, move.end()):
            rule = "extruder"
    return rule


class _Reader:
    """The state of the machine while its code is read, in metres, seconds and metres a second."""

    def __init__(self, path, rule: str, feed: float | None, travel_feed: float | None, arc: float) -> None:
        self.path, self.rule, self.arc = path, rule, arc
        self.feed, self.travel_feed = feed, travel_feed
        self.line = 0
        self.unit = MILLIMETRE
        self.relative, self.relative_extruder = False, False
        self.motion: int | None = None
        self.beam, self.strength = rule != "spindle", 1.0
        self.position, self.offset = np.zeros(3), np.zeros(3)
        self.extruded = 0.0
        self.rows: list[tuple[float, float, float, float, float]] = []

    def error(self, text: str) -> PullbackError:
        return PullbackError(f"{self.path}, line {self.line}: {text}")

    def block(self, text: str) -> None:
        """Carry out one line."""
        # M117 and the like carry free text
        if not text or re.match(r"M1\d\d\b", text):
            return
        words = WORD.findall(text)
        rest = WORD.sub("", text).strip()
        if rest:
            raise self.error(f"cannot read {shortened(rest)!r} in {shortened(text)!r}; expected words such as X1.5")
        codes = [(letter, float(value)) for letter, value in words if letter in "GM"]
        values = {letter: float(value) for letter, value in words if letter not in "GM"}
        for letter, value in codes:
            self._set_mode(f"{letter}{value:g}", values)
        if "F" in values:
            self.feed = values["F"] * self.unit / 60
            if self.feed <= 0:
                raise self.error(f"a feed of {values['F']:g}; expected a positive one")
        names = {f"{letter}{value:g}" for letter, value in codes}
        if "G4" in names:
            self._wait(values)
        elif "G92" in names:
            self._redefine(values)
        elif not names & {"G28", "G53", "G10"} and values.keys() & set("XYZE" if self.motion in (0, 1) else "XYZIJR"):
            self._move(values)

    def _set_mode(self, name: str, values: dict[str, float]) -> None:
        if name in ("G0", "G1", "G2", "G3"):
            self.motion = int(name[1])
        elif name in ("G20", "G21"):
            self.unit = INCH if name == "G20" else MILLIMETRE
        elif name in ("G90", "G91"):
            self.relative = self.relative_extruder = name == "G91"
        elif name in ("M82", "M83"):
            self.relative_extruder = name == "M83"
        elif name in ("M3", "M4", "M5") and self.rule == "spindle":
            self.beam = name != "M5"
        elif name in ("G18", "G19"):
            raise self.error(f"{name}: arcs only in the plane of x and y (G17)")

    def _wait(self, values: dict[str, float]) -> None:
        seconds = values.get("S", values.get("P", 0.0) * 1e-3)
        if seconds < 0:
            raise self.error(f"a pause of {seconds:g} s")
        if seconds > 0 and self.rows:
            self._row(self.position, seconds, False)

    def _redefine(self, values: dict[str, float]) -> None:
        for axis, letter in enumerate("XYZ"):
            if letter in values:
                self.offset[axis] = self.position[axis] - values[letter] * self.unit
        self.extruded = values.get("E", self.extruded)

    def _move(self, values: dict[str, float]) -> None:
        if self.motion is None:
            raise self.error("a position before the first G0, G1, G2 or G3")
        target = self.position.copy()
        for axis, letter in enumerate("XYZ"):
            if letter in values:
                given = values[letter] * self.unit
                target[axis] = self.position[axis] + given if self.relative else self.offset[axis] + given
        on = self._lit(values)
        speed = self.travel_feed or self.feed if self.motion == 0 else self.feed
        if not self.rows:
            self.rows.append((0.0, *self.position.tolist(), 0.0))
        points = [target] if self.motion in (0, 1) else self._arc(target, values)
        for point in points:
            length = float(np.linalg.norm(point - self.position))
            if length > 0:
                if speed is None:
                    raise self.error("a move before the first F; pass feed= or travel_feed= [m/s]")
                self._row(point, length / speed, on)
            self.position = point

    def _lit(self, values: dict[str, float]) -> bool:
        self.strength = values.get("S", self.strength)
        forward = True
        if self.rule == "extruder":
            given = values.get("E")
            before = self.extruded
            if given is not None:
                self.extruded = before + given if self.relative_extruder else given
            forward = self.extruded > before
        return self.motion != 0 and self.beam and self.strength > 0 and forward

    def _arc(self, target: np.ndarray, values: dict[str, float]) -> list[np.ndarray]:
        """Return the ends of the chords of an arc from here to the target."""
        start, end = self.position[:2], target[:2]
        sign = -1.0 if self.motion == 2 else 1.0
        if "R" in values:
            centre = self._centre_by_radius(start, end, values["R"] * self.unit, sign)
        elif "I" in values or "J" in values:
            centre = start + self.unit * np.array([values.get("I", 0.0), values.get("J", 0.0)])
        else:
            raise self.error("an arc without I, J or R")
        a, b = start - centre, end - centre
        radius = float(np.hypot(*a))
        if radius == 0 or abs(np.hypot(*b) - radius) > max(0.01 * radius, 5e-6):
            raise self.error(
                f"the arc ends {np.hypot(*b) * 1e3:.4g} mm from its centre and starts {radius * 1e3:.4g} mm"
            )
        sweep = sign * (np.arctan2(b[1], b[0]) - np.arctan2(a[1], a[0])) % (2 * np.pi)
        # back to the start: a full circle
        sweep = 2 * np.pi if sweep < 1e-9 else sweep
        count = max(1, int(np.ceil(sweep / self.arc)))
        share = np.arange(1, count + 1) / count
        angles = np.arctan2(a[1], a[0]) + sign * sweep * share
        z = self.position[2] + share * (target[2] - self.position[2])
        points = np.column_stack([centre[0] + radius * np.cos(angles), centre[1] + radius * np.sin(angles), z])
        return [*points[:-1], target]

    def _centre_by_radius(self, start: np.ndarray, end: np.ndarray, radius: float, sign: float) -> np.ndarray:
        chord = end - start
        length = float(np.hypot(*chord))
        if length == 0 or length > 2 * abs(radius) * (1 + 1e-6):
            raise self.error(f"no arc of radius {abs(radius) * 1e3:.4g} mm joins points {length * 1e3:.4g} mm apart")
        height = np.sqrt(max(radius**2 - (length / 2) ** 2, 0.0))
        left = np.array([-chord[1], chord[0]]) / length
        # the shorter arc for a positive radius: its centre is to the left when turning left
        return 0.5 * (start + end) + sign * np.sign(radius) * height * left

    def _row(self, point: np.ndarray, duration: float, on: bool) -> None:
        t = self.rows[-1][0] + duration
        self.rows.append((t, *point.tolist(), float(on)))
