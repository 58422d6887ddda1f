"""Refuse an MJCF file that MuJoCo would write out to more than the limits allow, before MuJoCo sees it."""

from __future__ import annotations

from math import isfinite, prod
from pathlib import Path
from typing import Any

from pullback.core.errors import DescriptionError, shortened
from pullback.core.files import check_limit, check_regular, naming
from pullback.description.xml_file import parse_xml

# element -> the attribute whose numbers say how many things it stands for
COUNTS = {"replicate": "count", "composite": "count", "flexcomp": "count"}
# attributes of <size> that MuJoCo sets memory aside for
MEMORY = ("memory", "nstack", "njmax", "nconmax")
# asset -> bytes for each vertex or sample
SAMPLES = {"mesh": 100, "hfield": 16}


def check_mjcf(path: Path, root: Any) -> None:
    """Raise if what the file and the files it includes stand for is more than the limits allow.

    Counted are elements, those that `<replicate>`, `<composite>` and `<flexcomp>` write out included; the sizes of
    what MuJoCo makes itself (meshes, height fields, `<size>`) are held to the limits on files.
    """
    folder = path.resolve().parent
    _check_expansion(root, path.name, folder, {path.resolve()})


def check_asset_files(spec: Any, folder: Path, source: str) -> None:
    """Raise if a mesh or height field that MuJoCo would read is not a plain file, or is too large."""
    for asset, inside in ((spec.meshes, spec.meshdir), (spec.hfields, spec.meshdir), (spec.skins, spec.meshdir)):
        for item in asset:
            if not item.file:
                continue
            file = folder / (inside or "") / item.file
            if file.exists():
                with naming(source):
                    size = check_regular(file, DescriptionError)
                    check_limit("mesh_bytes", size, f"{str(file)!r} has", DescriptionError)


def _check_expansion(root: Any, source: str, folder: Path, opened: set[Path]) -> float:
    """Return how many elements a file stands for."""
    total = _expanded(root, source, folder, opened)
    check_limit("description_elements", total, f"{source}: its elements, written out, are", DescriptionError)
    return total


def _expanded(element: Any, source: str, folder: Path, opened: set[Path]) -> float:
    """Return how many elements one stands for, with those below it."""
    where = f"{source}, line {element.sourceline}: <{element.tag}>"
    total = 1.0
    if element.tag in ("include", "model") and element.get("file"):
        total += _included(element, source, folder, opened)
    if element.tag == "size":
        _check_sizes(element, where)
    if element.tag in SAMPLES:
        _check_samples(element, where)
    total += sum(_expanded(child, source, folder, opened) for child in element if isinstance(child.tag, str))
    if element.tag in COUNTS:
        total *= max(1.0, prod(_numbers(element, COUNTS[element.tag], where, "1")))
    return total


def _included(element: Any, source: str, folder: Path, opened: set[Path]) -> float:
    file = (folder / element.get("file")).resolve()
    if not file.exists():
        # MuJoCo says where it has looked
        return 0.0
    if element.tag == "include" and file in opened:
        raise DescriptionError(
            f"{source}, line {element.sourceline}: {element.get('file')!r} is included twice; include it once"
        )
    if file in opened:
        return 0.0
    opened.add(file)
    below = folder if element.tag == "include" else file.parent
    with naming(f"{source}, line {element.sourceline}"):
        check_regular(file, DescriptionError)
        return _check_expansion(parse_xml(file), file.name, below, opened)


def _check_sizes(element: Any, where: str) -> None:
    for name in element.attrib:
        if name not in MEMORY:
            entries = prod(_numbers(element, name, where, "0"))
            check_limit("description_elements", entries, f"{where} asks, by {name}, for", DescriptionError)


def _check_samples(element: Any, where: str) -> None:
    if element.tag == "hfield":
        count = prod(_numbers(element, "nrow", where, "0")) * prod(_numbers(element, "ncol", where, "0"))
    else:
        # built-in meshes have at most the square of their largest parameter as vertices
        params = _numbers(element, "params", where, "1") if element.get("builtin") else [0.0]
        count = max(params, default=0.0) ** 2
        check_limit("description_elements", count, f"{where} has, by params, a number of vertices of", DescriptionError)
    check_limit("mesh_bytes", SAMPLES[element.tag] * count, f"{where} takes", DescriptionError)


def _numbers(element: Any, attribute: str, where: str, default: str) -> list[float]:
    text = element.get(attribute, default)
    try:
        numbers = [float(word) for word in text.split()]
    except ValueError:
        numbers = [float("nan")]
    if not all(map(isfinite, numbers)):
        raise DescriptionError(f'{where}: {attribute}="{shortened(text)}" should be finite numbers; correct it')
    return numbers
