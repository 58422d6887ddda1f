"""The device a task computes on, by the name a user gives."""

import torch

from pullback.core.errors import PullbackError


def find_device(name: str) -> torch.device:
    """Return the device called `name`; one that is not there is an error that lists those that are."""
    there = ["cpu", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
    if name == "cuda" and len(there) > 1:
        name = there[1]
    if name not in there:
        raise PullbackError(f"no device named {name!r} on this machine; choose from: {', '.join(there)}")
    return torch.device(name)
