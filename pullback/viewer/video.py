"""A simulation as a video file, mp4 or gif, drawn without a browser, a screen or a graphics card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Unpack

from pullback.core.errors import PullbackError
from pullback.core.extras import need_extra
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.viewer.painter import Painter, Segments
from pullback.viewer.shot import Drawing, Shot, Skin
from pullback.viewer.stage import SKIN

FORMATS = (".mp4", ".gif")
SIZES = (16, 4096)
GIF_COLORS = 128


def save_video(
    sim: Sim,
    states: Trajectory | Sequence[State],
    path: str | Path,
    *,
    size: tuple[int, int] = (640, 480),
    speed: float = 1.0,
    **drawing: Unpack[Drawing],
) -> Path:
    """Write a trajectory as a video and return its path: .mp4, or .gif for pages that play nothing else.

    `size` is that of a frame in pixels; `speed` 0.5 plays half as fast. The other arguments are those of `save_replay`:
    `controls`, `world`, `forces`, `fps`, `title`, `paths`, `gradients`, `particles`. The frames are drawn by the CPU.
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
    fps = float(drawing.get("fps", 30.0))
    # as many frames a second are shown whatever the speed
    drawing["fps"] = fps / speed
    shot = Shot(sim, states, **drawing)
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = draw(shot, size)
    if encoder is None:
        _write_gif(path, frames, fps)
    else:
        _write_mp4(encoder, path, frames, size, fps)
    return path


def draw(shot: Shot, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Yield the pictures (H, W, 3) of bytes of all frames."""
    painter = Painter(shot.stage, shot.frame, size)
    lines: list[Segments] = [(np.stack([points[:-1], points[1:]], 1), color, 0.0) for points, color in shot.lines]
    for k in range(len(shot.times)):
        arrows = [(each.segments(moments[k]), each.color, each.head) for each, moments in shot.arrows]
        cloud, edges, dots = shot.cloud, [], None
        if isinstance(cloud, Skin):
            edges = [(cloud.edges(shot.times[k]), SKIN, 0.0)]
        elif cloud is not None:
            dots = cloud.at(shot.times[k]), cloud.colors, cloud.size
        yield _captioned(painter.paint(shot.poses, k, [*lines, *edges, *arrows], dots), shot.caption(k))


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
