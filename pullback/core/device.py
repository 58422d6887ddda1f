"""The device to compute on, by the name a user gives."""

from __future__ import annotations

from typing import overload

import torch

from pullback.core.errors import PullbackError


@overload
def find_device(name: str | torch.device) -> torch.device: ...
@overload
def find_device(name: None) -> None: ...
def find_device(name: str | torch.device | None) -> torch.device | None:
    """Return the device called `name`, None for torch's default; one that is not there is an error that lists all."""
    if name is None:
        return None
    there = ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
    wanted = str(name)
    if wanted == "cuda" and len(there) > 1:
        wanted = there[torch.cuda.current_device() + 1]
    if wanted not in there:
        raise PullbackError(f"no device named {wanted!r} on this machine; choose from: {', '.join(there)}")
    return torch.device(wanted)
