"""Open files that others wrote, within limits on what they may cost, and write files whole or not at all.

Every reader goes through here: special files (pipes, devices, folders) are refused before they can block, sizes are
checked before anything is read, and packed files are measured before they are unpacked.
"""

from __future__ import annotations

import codecs
import gzip
import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, Any

from pullback.core.errors import PullbackError, shortened

MEGABYTE = 1_000_000
CHUNK = 1 << 20
# a packed file may always grow to this size, whatever its ratio
SMALL = 16 * MEGABYTE
PACKED = (".xz", ".gz")


@dataclass(frozen=True)
class FileLimits:
    """What a file may cost; `file_limits` changes it.

    Args:
        description_bytes: size of a URDF or MJCF file.
        description_elements: XML elements of one, those that MJCF's `<replicate>` and the like write out included.
        links: links of a robot.
        text_bytes: size of a G-code, toolpath or keyword file, after unpacking.
        line_bytes: length of a line of one.
        mesh_bytes: size of a mesh file, after unpacking.
        checkpoint_bytes: size of a checkpoint.
        expansion: how many times its own size a packed file may grow to.
    """

    description_bytes: int = 16 * MEGABYTE
    description_elements: int = 200_000
    links: int = 5_000
    text_bytes: int = 2_000 * MEGABYTE
    line_bytes: int = MEGABYTE
    mesh_bytes: int = 1_000 * MEGABYTE
    checkpoint_bytes: int = 8_000 * MEGABYTE
    expansion: int = 50


LIMITS: ContextVar[FileLimits] = ContextVar("file limits", default=FileLimits())  # noqa: B039 (it is frozen)


@contextmanager
def file_limits(**limits: int) -> Iterator[FileLimits]:
    """Read files with other limits inside a `with` block: `with pb.file_limits(mesh_bytes=4e9): ...`.

    The names are those of `FileLimits`; float("inf") lifts a limit.
    """
    names = [field.name for field in fields(FileLimits)]
    for name, value in limits.items():
        if name not in names:
            raise PullbackError(f"no file limit named {name!r}; choose from: {', '.join(names)}")
        if not value > 0:
            raise PullbackError(f"file limit {name} is {value!r}; give a positive number")
    token = LIMITS.set(replace(LIMITS.get(), **limits))
    try:
        yield LIMITS.get()
    finally:
        LIMITS.reset(token)


def check_limit(limit: str, value: float, what: str, error: type[PullbackError] = PullbackError) -> None:
    """Raise the error if a value is above the limit of that name; `what` begins the sentence: "x.stl has"."""
    allowed = getattr(LIMITS.get(), limit)
    if value > allowed:
        unit = " bytes" if limit.endswith("bytes") else " times its size" if limit == "expansion" else ""
        raise error(
            f"{what} {value:,.0f}{unit}, more than the limit {limit} of {allowed:,.0f}; if you trust the file, read it "
            f"inside `with pb.file_limits({limit}=...):`"
        )


def check_regular(path: Path, error: type[PullbackError] = PullbackError) -> int:
    """Return the size of a plain file; anything else (missing, a folder, a pipe, a device) is an error."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise error(f"file {str(path)!r} does not exist; check the path") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error(f"cannot read {shortened(str(path))!r}: {reason}; check the path") from None
    if stat.S_ISREG(found.st_mode):
        return found.st_size
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "a device")
    raise error(f"cannot read {str(path)!r}: it is {kind}; give the path of a plain file")


@contextmanager
def naming(where: object) -> Iterator[None]:
    """Put the name of the file in front of an error of what is made of it, if it is not in it."""
    try:
        yield
    except PullbackError as problem:
        if str(where) in str(problem):
            raise
        raise type(problem)(f"{where}: {problem}") from None


@contextmanager
def open_plain(path: str | Path, limit: str, error: type[PullbackError] = PullbackError) -> Iterator[IO[bytes]]:
    """Open a plain file that is not empty and not larger than the limit of that name."""
    path = Path(path)
    size = check_regular(path, error)
    if size == 0:
        raise error(f"{str(path)!r} is empty (0 bytes); was it written to the end?")
    check_limit(limit, size, f"{str(path)!r} has", error)
    try:
        # a plain file may have become a pipe since: never wait for its other end
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    except OSError as problem:
        raise error(f"cannot read {str(path)!r}: {problem.strerror}; check the path") from None
    with file:
        yield file


def read_plain(path: str | Path, limit: str, error: type[PullbackError] = PullbackError) -> bytes:
    """Return the bytes of a plain file that is not empty and not larger than the limit of that name."""
    allowed = getattr(LIMITS.get(), limit)
    with open_plain(path, limit, error) as file:
        raw = file.read() if allowed == float("inf") else file.read(int(allowed) + 1)
    check_limit(limit, len(raw), f"{str(path)!r} has", error)
    return raw


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a text file, without their ends; files packed as .xz or .gz are unpacked on the way.

    A packed file is measured before the first line is given.
    """
    path = Path(path)
    with open_plain(path, "text_bytes") as file:
        if path.suffix in PACKED:
            size = os.fstat(file.fileno()).st_size
            with _unpacking(path):
                check_expansion(path, (len(piece) for piece in _pieces(_unpacked(file, path))), size, "text_bytes")
                file.seek(0)
                yield from _lines(_unpacked(file, path), path)
        else:
            yield from _lines(file, path)


def check_expansion(path: Path, sizes: Iterator[int], packed: int, limit: str) -> None:
    """Raise if pieces of these sizes are more than a file of `packed` bytes may grow to."""
    grown = 0
    for size in sizes:
        grown += size
        check_limit(limit, grown, f"{str(path)!r} unpacks to at least")
        if grown > SMALL:
            check_limit("expansion", grown / packed, f"{str(path)!r} unpacks to at least")


def check_archive(path: Path, limit: str) -> None:
    """Raise if a zip archive holds more than it may; readers of zip files read no more than its directory says."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = [entry.file_size for entry in archive.infolist()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as problem:
        raise PullbackError(f"{str(path)!r} cannot be unpacked: {problem}; was it written to the end?") from None
    check_expansion(path, iter(sizes), max(1, path.stat().st_size), limit)


def write_whole(path: str | Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file so that whatever happens it is a whole one, the one before or this.

    `write` is given a file beside it, which is on the disk (fsync) before it takes the name of the old one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    with open(beside, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    # the new name is on the disk once the folder is
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def check_folder(folder: Path, flag: str) -> None:
    """Raise for a folder that nothing can be written to, before the work is done; `flag` is how it was given."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise PullbackError(f"{flag} {folder}: {existing} is a file; give the name of a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PullbackError(f"{flag} {folder}: {existing} cannot be written to; give another folder")


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _unpacked(file: IO[bytes], path: Path) -> IO[bytes]:
    return lzma.open(file) if path.suffix == ".xz" else gzip.GzipFile(fileobj=file)  # pyright: ignore[reportReturnType]


@contextmanager
def _unpacking(path: Path) -> Iterator[None]:
    try:
        yield
    except (lzma.LZMAError, zlib.error, OSError, EOFError) as problem:
        raise PullbackError(
            f"{str(path)!r} ends in {path.suffix} but cannot be unpacked: {problem}; pack it again"
        ) from None


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(CHUNK):
        yield piece


def _lines(file: IO[bytes], path: Path) -> Iterator[str]:
    """Yield the lines of a stream, split a piece at a time."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    allowed, count, rest = LIMITS.get().line_bytes, 0, ""
    for piece in _pieces(file):
        text = rest + decoder.decode(piece)
        # an end of line as the last character may be the first half of one
        cut = max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1
        lines, rest = text[:cut].splitlines(), text[cut:]
        if max(map(len, lines), default=0) > allowed or len(rest) > allowed:
            number = next((k for k, line in enumerate(lines, 1) if len(line) > allowed), len(lines) + 1)
            longest = len(rest if number > len(lines) else lines[number - 1])
            check_limit("line_bytes", longest, f"{str(path)!r}, line {count + number} has at least")
        count += len(lines)
        yield from lines
    yield from (rest + decoder.decode(b"", final=True)).splitlines()
