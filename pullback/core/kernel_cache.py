"""Compiled kernels on disk: Warp's cache, with a checksum for each module so that a damaged file is compiled again."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import warp as wp

from pullback.core.errors import PullbackError

SEAL = "pullback.sha256"
"""The file of checksums beside the compiled code of a module."""

ADVICE = (
    "the folder of compiled kernels must be writable and have room, and may be deleted; the environment variable "
    "WARP_CACHE_PATH names another"
)

CHECKED = (".o", ".meta", ".cubin", ".ptx")


def load(module: Any, device: str, block_dim: int) -> None:
    """Load a module's compiled code; what is damaged in the cache, or cannot be loaded from it, is compiled again."""
    folder = Path(wp.config.kernel_cache_dir or ".") / module.get_module_identifier(block_dim)
    if _is_damaged(folder):
        shutil.rmtree(folder, ignore_errors=True)
    was_there = folder.exists()
    try:
        module.load(device, block_dim)
    except Exception as error:
        if not was_there:
            raise _refusal(module, error) from error
        shutil.rmtree(folder, ignore_errors=True)
        module.mark_modified()
        try:
            module.load(device, block_dim)
        except Exception as again:
            raise _refusal(module, again) from again
    _seal(folder)


def _refusal(module: Any, error: Exception) -> PullbackError:
    return PullbackError(
        f"the kernels {module.name} could not be compiled or loaded: {error}; they are kept in "
        f"{wp.config.kernel_cache_dir}; {ADVICE}"
    )


def _checksums(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.suffix in CHECKED)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def _is_damaged(folder: Path) -> bool:
    """Return whether the files of a module differ from those that were sealed; one never sealed is not suspected."""
    try:
        sealed = (folder / SEAL).read_text(encoding="ascii")
        now = _checksums(folder)
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True
    # files of another device may have come since
    return not set(sealed.splitlines()) <= set(now.splitlines())


def _seal(folder: Path) -> None:
    """Write the checksums of a module that was loaded; a cache that cannot be written to stays as it is."""
    with suppress(OSError):
        checksums = _checksums(folder)
        if not (folder / SEAL).exists() or (folder / SEAL).read_text(encoding="ascii") != checksums:
            (folder / SEAL).write_text(checksums, encoding="ascii")
