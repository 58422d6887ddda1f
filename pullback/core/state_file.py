"""Keep the state of a search in a file of tensors and plain numbers; nothing in it can run."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from pullback.core.errors import PullbackError
from pullback.core.files import check_archive, open_plain, write_whole


def write_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write tensors and plain numbers to a file, whole or not at all."""
    write_whole(path, lambda file: torch.save(state, file))


def read_state(path: str | Path) -> Any:
    """Return what `write_state` wrote, on the CPU."""
    path = Path(path)
    try:
        with open_plain(path, "checkpoint_bytes") as file:
            # torch unpacks what is packed in the archive, and gives old files, no archives, the memory they ask for
            if not zipfile.is_zipfile(file):
                raise PullbackError("it is no archive of tensors")
            check_archive(path, "checkpoint_bytes")
            file.seek(0)
            # tensors and plain values only: reading a checkpoint runs no code
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises what its parser happens to meet
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise PullbackError(f"{path} cannot be read as a checkpoint ({reason})") from None
