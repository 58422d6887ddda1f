"""Compiled kernels on disk: Warp's cache, with a checksum for each module so that a damaged file is compiled again.

What is not in the cache is taken from shipped kernels if it is there, and compiled otherwise.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import warp as wp

from pullback.core import ready_made
from pullback.core.errors import PullbackError

SEAL = "pullback.sha256"
"""The file of checksums beside the compiled code of a module."""

LOCKS = "pullback.locks"
"""The folder in the cache of files that processes lock."""

ADVICE = (
    "the folder of compiled kernels must be writable and have room, and may be deleted; the environment variable "
    "WARP_CACHE_PATH names another; `pullback doctor` shows which kernels need no compiler"
)

CHECKED = (".o", ".meta", ".cubin", ".ptx")


Source = Literal["here", "shipped", "none"]
"""Where a module's code is found: compiled on this machine, shipped, nowhere yet."""


def source(module: Any, device: str, block_dim: int) -> Source:
    """Return where the code of a module would be taken from; that of this machine is made for its own processor."""
    if _is_here(module, device, block_dim):
        return "here"
    return "none" if ready_made.find(module, device, block_dim) is None else "shipped"


def load(module: Any, device: str, block_dim: int, *, compile_here: bool = False) -> Source:
    """Load a module's code from the cache, or shipped, or compile it; return where it was found.

    What is damaged, or cannot be loaded, is compiled again. With `compile_here` shipped code is left aside.
    """
    folder = _folder(module, block_dim)
    with _alone(folder):
        if _is_damaged(folder):
            shutil.rmtree(folder, ignore_errors=True)
        found: Source = "here" if _is_here(module, device, block_dim) else "none"
        if found == "none" and not compile_here:
            shipped = ready_made.find(module, device, block_dim)
            if shipped is not None and _load_shipped(module, device, block_dim, shipped):
                return "shipped"
        _load_or_compile(module, device, block_dim, folder)
        _seal(folder)
    return found


def _load_or_compile(module: Any, device: str, block_dim: int, folder: Path) -> None:
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


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time fill a module's folder: whoever comes second waits, and finds it compiled.

    A process that dies lets go of it. Where there are no such locks, as on some network drives, both compile.
    """
    with ExitStack() as stack:
        with suppress(OSError, ImportError):
            import fcntl

            (folder.parent / LOCKS).mkdir(exist_ok=True)
            lock = stack.enter_context(open(folder.parent / LOCKS / folder.name, "a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            # closing the file would not do where a forked child has it too
            stack.callback(fcntl.flock, lock, fcntl.LOCK_UN)
        yield


def cache_folder() -> Path:
    """Return the folder that this machine's compiled kernels are kept in."""
    return Path(wp.config.kernel_cache_dir or ".")


def _folder(module: Any, block_dim: int) -> Path:
    return cache_folder() / module.get_module_identifier(block_dim)


def _is_here(module: Any, device: str, block_dim: int) -> bool:
    name = module._get_compile_output_name(wp.get_device(device), block_dim=block_dim)
    return (_folder(module, block_dim) / name).is_file()


def _load_shipped(module: Any, device: str, block_dim: int, shipped: ready_made.Binary) -> bool:
    """Load shipped code and return whether that was possible; what Warp refuses is compiled."""
    try:
        module.load(device, block_dim, str(shipped.code), shipped.arch, str(shipped.description))
    except Exception:
        return False
    return True


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
            # in one step: another process may be reading
            written = folder / f"{SEAL}.{os.getpid()}"
            written.write_text(checksums, encoding="ascii")
            written.replace(folder / SEAL)
