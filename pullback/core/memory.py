"""Too little memory on a GPU: say how many worlds would fit."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pullback.core.errors import PullbackError

SLACK = 0.9
"""The part of free memory that is counted on: torch hands it out in blocks."""


def free_bytes(device: torch.device) -> int:
    """Return the bytes that torch could still hand out on a GPU, what it keeps in reserve included."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def no_memory(what: str, inputs: Sequence[torch.Tensor | None], rows: int) -> PullbackError:
    """Return the error for a launch without memory; `rows` are those of outputs and scratch of each world."""
    given = [x for x in inputs if x is not None]
    worlds = max(x.shape[0] for x in given)
    rows += sum(x.shape[1] for x in given if x.shape[0] == worlds)
    a_world = rows * given[0].element_size()
    device = given[0].device
    free = free_bytes(device)
    fit = int(SLACK * free / a_world)
    advice = f"about {fit:,} worlds would fit: run so many at a time" if fit > 0 else "not even one world would fit"
    needed, there = worlds * a_world / 2**30, free / 2**30
    return PullbackError(
        f"{what} of {worlds:,} worlds needs {needed:.3g} GiB on {device}, where {there:.3g} GiB are free; {advice}, "
        f"take float32, or keep fewer states of a rollout (checkpoint=)"
    )
