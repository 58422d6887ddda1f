"""Kernels compiled ahead of time: how they are made for a kind of processor, and how they are found.

A folder of them has one folder a module, named by the module's hash, with the compiled code, Warp's description of it,
and a record of what it was made by. Code is taken only if hash, Warp, processor and checksums agree; otherwise the
module is compiled as if nothing had been shipped (docs/decisions/0018).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import warp as wp

from pullback.core.errors import PullbackError

VARIABLE = "PULLBACK_KERNELS"
"""The environment variable with further folders of shipped kernels; `none` as one of them: look in no folder at all."""

PORTABLE = "x86-64-v3"
"""What kernels are shipped for: processors from Intel's Haswell (2013) and AMD's Zen (2017) on."""

PORTABLE_FLAG = f"-target-cpu {PORTABLE}"
"""As Warp's compiler takes it, instead of -march=native."""

PORTABLE_NEEDS = frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"])
"""Flags in /proc/cpuinfo of a processor that runs such code."""

RECORD = "shipped.json"


@dataclass(frozen=True)
class Binary:
    """Compiled code of a module, the description that Warp keeps beside it, and the GPU architecture if it has one."""

    code: Path
    description: Path
    arch: int | None = None


def folders() -> list[Path]:
    """Return where shipped kernels are looked for: the folders of PULLBACK_KERNELS, then the installed package."""
    given = [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    if "none" in given:
        return []
    return [*(Path(name).expanduser() for name in given), Path(__file__).parent.parent / "kernels"]


@cache
def runs_portable_code() -> bool:
    """Return whether this machine runs code of PORTABLE; only Linux is looked at, where it is shipped for."""
    if sys.platform != "linux":
        return False
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return set(flags) >= PORTABLE_NEEDS


def target_of(device: str) -> str | None:
    """Return what code a device runs that may have been shipped: x86-64-v3, sm_90; None: none."""
    if device == "cpu":
        return PORTABLE if runs_portable_code() else None
    return f"sm_{wp.get_device(device).arch}"


def find(module: Any, device: str, block_dim: int) -> Binary | None:
    """Return the shipped code of a module for a device, if it was made of the same kernels by the same Warp."""
    target = target_of(device)
    if target is None:
        return None
    for folder in folders():
        found = _whole(folder / module.get_module_identifier(block_dim), module, target, block_dim)
        if found is not None:
            return found
    return None


def _whole(folder: Path, module: Any, target: str, block_dim: int) -> Binary | None:
    """Return the code in one folder, unless it is of other kernels, of another Warp, or damaged."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        made = record["targets"][target]
        if (record["hash"], made["made_by"]) != (module.get_module_hash(block_dim).hex(), _maker(target)):
            return None
        code, description = folder / made["code"], folder / made["description"]
        if (_checksum(code), _checksum(description)) != tuple(made["checksums"]):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Binary(code, description, _arch(target))


def is_whole(folder: Path, module: Any, target: str, block_dim: int) -> bool:
    """Return whether a folder has the code of a module for a target, undamaged."""
    return _whole(folder / module.get_module_identifier(block_dim), module, target, block_dim) is not None


def is_known_target(target: str) -> bool:
    """Return whether `ship` makes code for a target."""
    return target == PORTABLE or (target.startswith("sm_") and target[3:].isdecimal())


def ship(module: Any, folder: Path, target: str, block_dim: int) -> Path:
    """Compile a module for a target into a folder of shipped kernels; return the module's own folder in it."""
    if not is_known_target(target):
        raise PullbackError(
            f"no kernels are made for {target!r}; give {PORTABLE} or a GPU's architecture such as sm_90"
        )
    identifier = module.get_module_identifier(block_dim)
    place = folder / identifier
    arch = _arch(target)
    options = module.resolved_options[block_dim]
    if arch is None:
        flags = options["cpu_compiler_flags"].replace("-march=native", PORTABLE_FLAG)
        options = options | {"cpu_compiler_flags": flags}
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / identifier
        name = f"{identifier}.{target}.{'o' if arch is None else 'cubin'}"
        device = wp.get_device("cpu") if arch is None else None
        try:
            module._compile(device, str(made), name, arch, use_ptx=False, options=options)
        except Exception as error:
            raise PullbackError(f"the kernels {module.name} could not be compiled for {target}: {error}") from error
        (description,) = made.glob("*.meta")
        place.mkdir(exist_ok=True)
        # each file is replaced in one step: another process may be filling the same folder
        for file in (made / name, description):
            shutil.move(str(file), str(place / file.name))
    files = [name, description.name]
    _record(place, module.get_module_hash(block_dim).hex(), target, files)
    return place


def shipped_modules(folder: Path) -> Iterator[tuple[str, list[str], int]]:
    """Return for each module in a folder its name, its targets and its bytes."""
    for record in sorted(folder.glob(f"*/{RECORD}")):
        try:
            targets = sorted(json.loads(record.read_text(encoding="utf-8"))["targets"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        yield record.parent.name, targets, sum(file.stat().st_size for file in record.parent.iterdir())


def _record(place: Path, module_hash: str, target: str, files: list[str]) -> None:
    """Write what a module was made by; of other targets what is written already, if the module is the same."""
    code, description = files
    targets = {}
    try:
        before = json.loads((place / RECORD).read_text(encoding="utf-8"))
        if before["hash"] == module_hash:
            targets = before["targets"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    checksums = [_checksum(place / code), _checksum(place / description)]
    targets[target] = {
        "code": code, "description": description, "checksums": checksums, "made_by": _maker(target)
    }  # fmt: skip
    written = place / f"{RECORD}.{os.getpid()}"
    written.write_text(json.dumps({"hash": module_hash, "targets": targets}, indent=1), encoding="utf-8")
    written.replace(place / RECORD)


def _maker(target: str) -> str:
    """Return the versions that code for a target depends on: Warp, its compiler, the operating system."""
    if target == PORTABLE:
        return wp.get_cpu_kernel_cache_key(cpu_compiler_flags=PORTABLE_FLAG)
    return f"{wp.config.version}-cuda"


def _arch(target: str) -> int | None:
    return int(target[3:]) if target.startswith("sm_") else None


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
