"""A fuzz of the readers: good files of every format, damaged at random: `python -m checks.fuzz_files`.

Each is read in a process of its own, and must be read or refused by a PullbackError that names it, within 2 s of
processor time and 200 MB. Options: `--files` how many, `--seed` of the first, `--only 93` looks at these alone.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from checks.children import in_a_child
from checks.fuzz_checks import Findings
from checks.robots import installed_files
from tests.description.hostile_runner import read_and_discard, readers, warm_up

SECONDS, MEGABYTES = 2.0, 200.0
PATIENCE = 30
LARGEST = 100_000
"""Bytes of the files that are damaged."""
HUGE = (b"1e308", b"-1", b"nan", b"inf", b"99999999999", b"4294967295", b"0", b"1e-320", b"2147483648", b"", b"0x7f")
NESTS = ((b"<body>", b"</body>"), (b"<a>", b"</a>"), (b"<link name='x'>", b"</link>"), (b"(", b")"), (b"[", b"]"))

GCODE = b"G21\nG90\n" + b"".join(b"G1 X%d Y%d Z0.2 E%d F1200 ; move\n" % (k, k % 7, k) for k in range(60))
PATH = b"".join(b"%d %d 0 0.5 %d\n" % (k, k % 7, k % 2) for k in range(40))
HEXAHEDRA = (
    b"*NODE\n"
    + b"".join(b"%d,%d,%d,%d\n" % (1 + k, k & 1 ^ k >> 1 & 1, k >> 1 & 1, k >> 2) for k in range(8))
    + b"*ELEMENT_SOLID\n1,1,1,2,3,4,5,6,7,8\n*END\n"
)


@dataclass
class Options:
    """A fuzz of the readers."""

    files: int = 3000
    """How many files to damage."""
    seed: int = 0
    """Of the first file; the others follow."""
    only: tuple[int, ...] = ()
    """Seeds to look at instead."""


def good_files(folder: Path) -> list[tuple[str, Path]]:
    """Write or find files of all formats; return the reader of each, and where it is."""
    import meshio
    import torch
    import trimesh

    good = [("urdf" if file.suffix == ".urdf" else "mjcf", file) for _, file in installed_files()]
    good = [(reader, file) for reader, file in good if file.stat().st_size < LARGEST]
    # as many of the written ones as of the found, so that no format is rare
    written: list[tuple[str, Path]] = []
    for suffix in ("stl", "obj", "ply", "off", "glb", "dae", "3mf"):
        trimesh.creation.icosphere(subdivisions=2).export(folder / f"good.{suffix}")
        written.append(("surface", folder / f"good.{suffix}"))
    texts = {"good.gcode": GCODE, "good.crs": PATH, "good.k": HEXAHEDRA}
    readers = {"good.gcode": "gcode", "good.crs": "toolpath", "good.k": "hexahedra"}
    for name, text in texts.items():
        (folder / name).write_bytes(text)
        (folder / f"{name}.xz").write_bytes(lzma.compress(text))
        (folder / f"{name}.gz").write_bytes(gzip.compress(text))
        written += [(readers[name], folder / f"{name}{packed}") for packed in ("", ".xz", ".gz")]
    points = np.array([(k & 1 ^ k >> 1 & 1, k >> 1 & 1, k >> 2) for k in range(8)], dtype=float)
    for suffix in ("vtu", "msh", "vtk"):
        meshio.Mesh(points, [("hexahedron", np.arange(8)[None])]).write(folder / f"good.{suffix}")
        written.append(("hexahedra", folder / f"good.{suffix}"))
    torch.save({"iteration": 3, "best": torch.zeros(4), "optimizer": {"x": [torch.ones(3)]}}, folder / "good.pt")
    written += [("state", folder / "good.pt")] * 3
    return good + written * max(1, len(good) // len(written))


# -- damage ----------------------------------------------------------------------------------------------------------


def flip(rng: np.random.Generator, data: bytes) -> bytes:
    """Change a few bytes."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 12))):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed)


def cut(rng: np.random.Generator, data: bytes) -> bytes:
    """End the file early."""
    return data[: int(rng.integers(len(data)))]


def remove(rng: np.random.Generator, data: bytes) -> bytes:
    """Take a piece out."""
    a, b = sorted(rng.integers(len(data), size=2))
    return data[:a] + data[b:]


def repeat(rng: np.random.Generator, data: bytes) -> bytes:
    """Repeat a piece, up to a thousand times."""
    a = int(rng.integers(len(data)))
    piece = data[a : a + int(rng.integers(1, 400))]
    return data[:a] + piece * int(rng.choice((2, 30, 1000))) + data[a:]


def renumber(rng: np.random.Generator, data: bytes) -> bytes:
    """Put odd numbers in the place of some."""
    places = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if not places:
        return flip(rng, data)
    for k in sorted(rng.choice(len(places), min(len(places), int(rng.integers(1, 6))), replace=False), reverse=True):
        a, b = places[k].span()
        data = data[:a] + HUGE[int(rng.integers(len(HUGE)))] + data[b:]
    return data


def recount(rng: np.random.Generator, data: bytes) -> bytes:
    """Write a large integer over four or eight bytes, as binary formats have counts."""
    a = int(rng.integers(min(len(data), 400)))
    number = int(rng.choice((2**31 - 1, 2**32 - 1, 10**9, 2**24)))
    return data[:a] + number.to_bytes(8, "little")[: int(rng.choice((4, 8)))] + data[a + 4 :]


def nest(rng: np.random.Generator, data: bytes) -> bytes:
    """Put brackets within brackets somewhere."""
    a, depth = int(rng.integers(len(data))), int(rng.choice((10, 300, 20_000)))
    opening, closing = NESTS[int(rng.integers(len(NESTS)))]
    # where a tag begins, if it has tags
    a = max(data.rfind(b"<", 0, a), 0) if b"<" in data[:a] else a
    return data[:a] + opening * depth + closing * depth + data[a:]


def swap(rng: np.random.Generator, data: bytes) -> bytes:
    """Exchange two words."""
    words = re.split(rb"(\W+)", data)
    a, b = rng.integers(len(words), size=2)
    words[a], words[b] = words[b], words[a]
    return b"".join(words)


DAMAGES: tuple[Callable[[np.random.Generator, bytes], bytes], ...] = (
    flip, cut, remove, repeat, renumber, renumber, recount, nest, swap,
)  # fmt: skip


def damage(rng: np.random.Generator, data: bytes) -> tuple[bytes, str]:
    """Return a file that was damaged once to three times, and how."""
    done = []
    for _ in range(int(rng.integers(1, 4))):
        how = DAMAGES[int(rng.integers(len(DAMAGES)))]
        data, done = how(rng, data) or b"x", [*done, how.__name__]
    return data[:8_000_000], ", ".join(done)


def write(rng: np.random.Generator, source: Path, folder: Path) -> tuple[Path, str]:
    """Write a damaged copy, or what is no file at all; return where, and what was done."""
    path = folder / f"bad_{source.name}"
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    strange = {"pipe": os.mkfifo, "folder": Path.mkdir, "link": lambda p: p.symlink_to("/dev/zero")}
    if rng.random() < 0.02:
        how = str(rng.choice(list(strange)))
        strange[how](path)
        return path, how
    data = source.read_bytes()
    packed = {".xz": lzma, ".gz": gzip}.get(source.suffix)
    if packed is not None and rng.random() < 0.6:
        # what is inside is damaged, or a great deal of nothing
        inner, how = damage(rng, packed.decompress(data))
        bomb = rng.random() < 0.1
        data, how = (packed.compress(bytes(80_000_000)), "bomb") if bomb else (packed.compress(inner), how)
    else:
        data, how = damage(rng, data)
    path.write_bytes(data)
    return path, how


# -- the run ---------------------------------------------------------------------------------------------------------


def examine(seed: int, good: list[tuple[str, Path]], read: dict[str, Any], findings: Findings, folder: Path) -> None:
    """Damage and read the file of a seed."""
    rng = np.random.default_rng([seed, 2027])
    reader, source = good[int(rng.integers(len(good)))]
    path, how = write(rng, source, folder)
    found = in_a_child(lambda: read_and_discard(read[reader], path), PATIENCE)
    outcome, text = found["outcome"], found["text"]
    where = f"seed {seed}: {reader} {source.name} ({how}): {outcome} {text[:200]!r}"
    findings.count(f"files, {reader}")
    findings.count("files read" if outcome == "read" else "files refused")
    findings.check_true("files: neither read nor refused by a PullbackError", outcome in ("read", "refused"), where)
    findings.check("files: processor time [s]", np.array([found["seconds"]]), SECONDS, where)
    findings.check("files: memory [MB]", np.array([found["megabytes"]]), MEGABYTES, where)
    if outcome == "refused":
        findings.check_true("files: a refusal without the file's name", path.name[:40] in text, where)
        findings.check("files: length of a refusal", np.array([len(text)]), 1999, where)


def fuzz(seeds: Iterable[int], findings: Findings) -> None:
    """Damage and read a file for each seed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        good, read = good_files(folder), readers()
        warm_up(read, folder)
        for seed in seeds:
            examine(seed, good, read, findings, folder)


def main(options: Options) -> int:
    """Run and show what was found."""
    console, findings = Console(), Findings()
    seeds = options.only or range(options.seed, options.seed + options.files)
    fuzz(track(seeds, "files", console=console), findings)
    findings.show(console)
    return int(bool(findings.broken))


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Options)))
