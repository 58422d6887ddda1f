"""Which steps of a rollout are kept to be looked at."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.core.errors import PullbackError


def checked_frames(frames: Sequence[int] | int | None, steps: int) -> list[int]:
    """Return the steps before which states are kept, `steps`: after the last; k: every k steps."""
    if frames is None:
        return []
    if isinstance(frames, int):
        if frames < 1:
            raise PullbackError(f"frames is {frames}; expected a number of steps of at least 1, or a list of steps")
        return list(range(0, steps + 1, frames))
    kept = [int(frame) for frame in frames]
    for frame in kept:
        if not 0 <= frame <= steps:
            raise PullbackError(f"frame {frame} of a rollout of {steps} steps; frames go from 0 to {steps}")
    return kept
