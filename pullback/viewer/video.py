"""A simulation as a video file, mp4 or gif, drawn without a browser, a screen or a graphics card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from typing_extensions import Unpack

from pullback.core.errors import PullbackError
from pullback.core.extras import need_extra
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.thermal.process import History, Process
from pullback.viewer.painter import Painter
from pullback.viewer.part import TICKS, PartDrawing, PartShot
from pullback.viewer.shot import Drawing, Shot

FORMATS = (".mp4", ".gif")
SIZES = (16, 4096)
GIF_COLORS = 128


@overload
def save_video(
    sim: Sim,
    states: Trajectory | Sequence[State],
    path: str | Path,
    *,
    size: tuple[int, int] = (640, 480),
    speed: float = 1.0,
    **drawing: Unpack[Drawing],
) -> Path: ...
@overload
def save_video(
    sim: Process,
    states: History,
    path: str | Path,
    *,
    size: tuple[int, int] = (640, 480),
    speed: float = 1.0,
    **drawing: Unpack[PartDrawing],
) -> Path: ...
def save_video(
    sim: Any,
    states: Any,
    path: str | Path,
    *,
    size: tuple[int, int] = (640, 480),
    speed: float = 1.0,
    **drawing: Any,
) -> Path:
    """Write a trajectory as a video and return its path: .mp4, or .gif for pages that play nothing else.

    `size` is that of a frame in pixels; `speed` 0.5 plays half as fast. The other arguments are those of `save_replay`:
    `controls`, `world`, `forces`, `fps`, `title`, `paths`, `gradients`, `particles`, `follow`; of a process, drawn by
    its temperatures, `title`, `limits`, `colors`, `seconds`. The frames are drawn by the CPU.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in FORMATS:
        what = "call pb.viewer.save_replay" if kind in (".html", ".htm") else f"name it {' or '.join(FORMATS)}"
        raise PullbackError(f"save_video writes {' and '.join(FORMATS)} files, and {path.name!r} is none; {what}")
    if len(size) != 2 or any(not isinstance(x, int) or not SIZES[0] <= x <= SIZES[1] or x % 2 for x in size):
        raise PullbackError(f"size is {size}; give width and height in pixels, even numbers from 16 to 4096")
    if not speed > 0.0:
        raise PullbackError(f"speed is {speed}; give a positive number, 1 for real time")
    encoder = need_extra("imageio_ffmpeg", "viz", "mp4 files are encoded") if kind == ".mp4" else None
    if isinstance(sim, Process):
        part = PartShot(sim, states, **drawing)
        fps = speed * (len(part.times) - 1) / max(float(part.times[-1]), 1e-3) if len(part.times) > 1 else 1.0
        frames = draw_part(part, size)
    else:
        fps = float(drawing.get("fps", 30.0))
        # as many frames a second are shown whatever the speed
        frames = draw(Shot(sim, states, **{**drawing, "fps": fps / speed}), size)
    path.parent.mkdir(parents=True, exist_ok=True)
    if encoder is None:
        _write_gif(path, frames, fps)
    else:
        _write_mp4(encoder, path, frames, size, fps)
    return path


def draw(shot: Shot, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Yield the pictures (H, W, 3) of bytes of all frames."""
    painter = Painter(shot.stage, shot.frame, size)
    for k in range(len(shot.times)):
        if shot.follows:
            painter.move_ground(shot.travel(k))
        yield _captioned(painter.paint(shot.poses, k, [thing.at(k) for thing in shot.things]), shot.caption(k))


def draw_part(shot: PartShot, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Yield the pictures (H, W, 3) of bytes of all frames of a print, with the colour bar."""
    painter = Painter(shot.stage, shot.frame, size)
    for k in range(len(shot.times)):
        yield _with_bar(_captioned(painter.paint({}, k, [shot.surface(k)]), shot.caption(k)), shot)


def _with_bar(picture: np.ndarray, shot: PartShot) -> np.ndarray:
    """Draw the colour bar at the right of a picture."""
    from PIL import Image, ImageDraw, ImageFont

    height, width = picture.shape[:2]
    top, bottom, left = round(0.2 * height), round(0.8 * height), round(0.87 * width)
    wide, size = max(4, round(0.025 * width)), max(9, height // 36)
    rows = np.linspace(shot.limits[1], shot.limits[0], bottom - top)
    picture = picture.copy()
    picture[top:bottom, left : left + wide] = shot.color(rows)[:, None]
    image = Image.fromarray(picture)
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for share in np.linspace(0.0, 1.0, TICKS):
        text = f"{shot.limits[0] + share * (shot.limits[1] - shot.limits[0]):.0f} K"
        place = left + wide + 0.4 * size, bottom - share * (bottom - top) - 0.6 * size
        pen.text(place, text, fill=(60, 60, 66), font=font)
    return np.asarray(image)


def _captioned(picture: np.ndarray, lines: Sequence[str]) -> np.ndarray:
    """Write lines of text into the upper left corner."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(picture)
    size = max(10, len(picture) // 32)
    font: Any = ImageFont.load_default(size)
    ImageDraw.Draw(image).multiline_text((size, 0.7 * size), "\n".join(lines), fill=(60, 60, 66), font=font)
    return np.asarray(image)


def _write_gif(path: Path, frames: Iterator[np.ndarray], fps: float) -> None:
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames]
    # one palette for all frames, so that only what moves is stored; from frames of all times side by side
    some = np.concatenate([np.asarray(pictures[k]) for k in np.linspace(0, len(pictures) - 1, 8).astype(int)])
    palette = Image.fromarray(some).quantize(GIF_COLORS, dither=Image.Dither.NONE)
    drawn = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    # a GIF counts time in hundredths of a second
    length = 10 * max(2, round(100.0 / fps))
    durations = [length] * (len(drawn) - 1) + [800]
    drawn[0].save(path, save_all=True, append_images=drawn[1:], duration=durations, loop=0, optimize=False)


def _write_mp4(encoder: Any, path: Path, frames: Iterator[np.ndarray], size: tuple[int, int], fps: float) -> None:
    options: dict[str, Any] = {"fps": fps, "codec": "libx264", "quality": 8, "macro_block_size": 2}
    writer = encoder.write_frames(str(path), size, **options)
    try:
        writer.send(None)
        for frame in frames:
            writer.send(np.ascontiguousarray(frame))
    finally:
        writer.close()
