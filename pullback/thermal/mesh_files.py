"""Meshes from files: LS-DYNA keyword files (.k, .key, .dyn), also packed as .xz or .gz, and what meshio reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from pullback.core.errors import PullbackError, shortened
from pullback.core.files import naming, open_plain, read_lines, read_plain
from pullback.thermal.mesh import Mesh, compacted
from pullback.thermal.toolpath import is_number
from pullback.thermal.vtu_limits import check_vtu

KEYWORD_FILES = (".k", ".key", ".dyn")
# what is packed in these cannot be measured without another package
HDF5_FILES = (".h5m", ".hmf", ".med", ".cgns")
Block = list[tuple[int, str]]
# whole numbers beyond this are not exact in float64
LARGEST = 2**53


def read_mesh(path: str | Path, unit: float = 1.0) -> Mesh:
    """Return the hexahedra of a file.

    path: a keyword file of LS-DYNA (nodes, solids, node sets, births as load curve 1), or any file meshio reads (.vtu,
    .vtk, .msh, .inp, .xdmf, ...), for which `pip install pullback[mesh]`. unit: metres in one unit of length of the
    file (1e-3: millimetres).

    Keyword files: "build" is what has a birth and "plate" the rest; without births they are the parts so titled. Parts
    are also sets "part 1", ..., node sets "set 1", ..., numbered as in the file. Others: the file's own sets and
    physical groups. Add what is missing with `Mesh.with_sets`. "bottom" is the lowest plane of nodes.
    """
    if not (np.isfinite(unit) and unit > 0):
        raise PullbackError(f"unit = {unit}; expected the metres in one unit of length, such as 1e-3")
    name = Path(path).name.removesuffix(".xz").removesuffix(".gz")
    with naming(path):
        if Path(name).suffix.lower() in KEYWORD_FILES:
            return _KeywordFile(path).mesh(unit)
        return _read_by_meshio(Path(path), unit)


def read_births(path: str | Path) -> np.ndarray:
    """Return the births that a keyword file lists as load curve 1 (time, element), (elements,) [s], −inf for the rest.

    The order is that of the elements of `read_mesh`.
    """
    births = _KeywordFile(path).births()
    if births is None:
        raise PullbackError(f"{path} has no *DEFINE_CURVE 1 with the births of its elements")
    return births


class _KeywordFile:
    """The blocks of a keyword file: {keyword: [lines with their numbers, of each block]}."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.blocks: dict[str, list[Block]] = {}
        block: Block = []
        for number, line in enumerate(read_lines(path), start=1):
            if line.startswith("*"):
                block = []
                self.blocks.setdefault(line.split()[0].upper(), []).append(block)
            elif not line.startswith("$") and line.strip():
                block.append((number, line))
        self.ids, self.parts, self.nodes_of = self._solids()

    def mesh(self, unit: float) -> Mesh:
        node_ids, nodes = self._nodes()
        where = _lookup(node_ids)
        rows = where(self.nodes_of)
        bad = np.flatnonzero((rows < 0).any(axis=1))
        if len(bad):
            lost = self.nodes_of[bad[0]][rows[bad[0]] < 0][0]
            raise PullbackError(
                f"{self.path}: element {self.ids[bad[0]]} has node {lost}, which the file does not define"
            )
        nodes, elements, number = compacted(nodes * unit, rows)
        sets = {f"part {part}": found for part, found in _members(self.parts).items()}
        sets.update(self._build_and_plate())
        node_sets = {"bottom": _lowest(nodes)}
        for name, ids in self._node_sets().items():
            kept = where(ids)
            kept = number[kept[kept >= 0]]
            node_sets[name] = kept[kept >= 0]
        return Mesh(nodes, elements, sets, node_sets)

    def births(self) -> np.ndarray | None:
        for block in self.blocks.get("*DEFINE_CURVE", []):
            if not block or self._first(block) != 1:
                continue
            table = self._table(block[1:], (20, 20), float, "a time and an element")
            rows = _lookup(self.ids)(table[:, 1].astype(np.int64))
            bad = np.flatnonzero(rows < 0)
            if len(bad):
                line = block[1 + bad[0]][0]
                raise PullbackError(
                    f"{self.path}, line {line}: a birth of element {table[bad[0], 1]:.0f}, which is not there"
                )
            births = np.full(len(self.ids), -np.inf)
            births[rows] = table[:, 0]
            return births
        return None

    def _solids(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lines = [entry for block in self.blocks.get("*ELEMENT_SOLID", []) for entry in block]
        if not lines:
            raise PullbackError(f"{self.path} has no *ELEMENT_SOLID")
        if len(_words(lines[0][1], (8,) * 10)) == 2:
            # newer files give number and part on one line, the nodes on the next
            head = self._table(lines[0::2], (8, 8), int, "an element and a part")
            tail = self._table(lines[1::2], (8,) * 10, int, "eight nodes", at_least=8)[:, :8]
            if len(tail) < len(head):
                raise PullbackError(f"{self.path} is cut off: element {head[-1, 0]} has no line of nodes")
            table = np.concatenate([head, tail], axis=1)
        else:
            table = self._table(lines, (8,) * 10, int, "an element, a part and eight nodes")
        twice = np.flatnonzero(np.diff(np.sort(table[:, 0])) == 0)
        if len(twice):
            raise PullbackError(f"{self.path}: element {np.sort(table[:, 0])[twice[0]]} is defined twice")
        return table[:, 0], table[:, 1], table[:, 2:]

    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        lines = [entry for block in self.blocks.get("*NODE", []) for entry in block]
        if not lines:
            raise PullbackError(f"{self.path} has no *NODE")
        table = self._table(lines, (8, 16, 16, 16), float, "a node and x, y, z", at_least=4)[:, :4]
        return table[:, 0].astype(np.int64), table[:, 1:]

    def _node_sets(self) -> dict[str, np.ndarray]:
        sets = {}
        for block in self.blocks.get("*SET_NODE_LIST", []):
            if not block:
                continue
            number = self._first(block)
            ids = [self._number(line, word, int) for line, text in block[1:] for word in _words(text, (10,) * 8)]
            sets[f"set {number}"] = np.array([i for i in ids if i], dtype=np.int64)
        return sets

    def _build_and_plate(self) -> dict[str, np.ndarray]:
        births = self.births()
        if births is not None:
            printed = births > -np.inf
        else:
            titles = self._part_titles()
            built = [part for part, title in titles.items() if "build" in title.lower()]
            if not built:
                return {}
            printed = np.isin(self.parts, built)
        return {"build": np.flatnonzero(printed), "plate": np.flatnonzero(~printed)}

    def _part_titles(self) -> dict[int, str]:
        titles = {}
        for block in self.blocks.get("*PART", []):
            for (_, title), (line, text) in zip(block[0::2], block[1::2]):
                titles[self._number(line, _words(text, (10,) * 8)[0], int)] = title.strip()
        return titles

    def _table(self, lines: Block, widths: tuple[int, ...], kind: Callable, what: str, at_least: int = 0) -> np.ndarray:
        """Return rows of numbers; a row that does not fit is an error with its line number."""
        count = at_least or len(widths)
        rows = []
        for number, text in lines:
            words = _words(text, widths)
            if len(words) < count:
                raise PullbackError(f"{self.path}, line {number}: {shortened(text.strip())!r}; expected {what}")
            rows.append([self._number(number, word, kind) for word in words[:count]])
        return np.array(rows, dtype=np.int64 if kind is int else np.float64).reshape(-1, count)

    def _first(self, block: Block) -> int:
        """Return the number that a block begins with."""
        line, text = block[0]
        return int(self._number(line, _words(text, (10,) * 8)[0], float))

    def _number(self, line: int, word: str, kind: Callable):
        try:
            number = kind(word)
        except ValueError:
            number = np.nan
        if abs(number) < LARGEST or (kind is float and np.isfinite(number)):
            return number
        expected = "a whole number" if kind is int else "a finite number"
        raise PullbackError(f"{self.path}, line {line}: {shortened(word)!r} is no number; expected {expected}")


def _words(text: str, widths: tuple[int, ...]) -> list[str]:
    """Return the entries of a line: by commas, by blanks, or by fixed widths where numbers touch each other."""
    if "," in text:
        return [word.strip() for word in text.split(",")]
    words = text.split()
    touching = [word for word in words if len(word) > max(widths)]
    if touching and (len(words) < len(widths) or not all(map(is_number, touching))):
        edges = np.concatenate([[0], np.cumsum(widths)])
        return [text[a:b].strip() for a, b in pairwise(edges)]
    return words


def _lookup(ids: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from numbers of the file to rows, -1 where there is no such number."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]

    def rows(wanted: np.ndarray) -> np.ndarray:
        slot = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        return np.where(ordered[slot] == wanted, order[slot], -1)

    return rows


def _members(labels: np.ndarray) -> dict[int, np.ndarray]:
    """Return the rows of each label."""
    order = np.argsort(labels, kind="stable")
    values, first = np.unique(labels[order], return_index=True)
    return {int(value): rows for value, rows in zip(values, np.split(order, first[1:]))}


def _lowest(nodes: np.ndarray) -> np.ndarray:
    return np.flatnonzero(nodes[:, 2] <= nodes[:, 2].min() + 1e-9 * np.ptp(nodes[:, 2]))


def _read_by_meshio(path: Path, unit: float) -> Mesh:
    try:
        import meshio
    except ImportError:
        raise PullbackError(f"reading {path.name} takes meshio: pip install 'pullback[mesh]'") from None
    with open_plain(path, "mesh_bytes"):
        pass
    if path.suffix.lower() in HDF5_FILES:
        raise PullbackError(f"{path} is an HDF5 file; convert it first, `meshio convert {path.name} part.vtu`")
    if path.suffix.lower() == ".vtu":
        check_vtu(path)
    if path.suffix.lower() == ".msh":
        _check_sections(path)
    try:
        # meshio would take some damaged .msh files for those of Ansys
        file = meshio.read(path, file_format="gmsh" if path.suffix.lower() == ".msh" else None)
    except SystemExit:
        # what meshio does where all readers of a suffix have failed
        raise PullbackError(f"meshio cannot read {path}: its text is not of its suffix; export it again") from None
    except Exception as error:
        # meshio raises what its parsers happen to meet
        reason = shortened(" ".join(str(error).split()) or type(error).__name__, 400)
        raise PullbackError(f"meshio cannot read {path}: {reason}; export it again, as .vtu or .msh") from None
    others = {block.type for block in file.cells if block.dim == 3 and block.type != "hexahedron"}
    if others:
        raise PullbackError(f"{path} has {', '.join(sorted(others))} cells; only eight-node hexahedra are supported")
    solids = [number for number, block in enumerate(file.cells) if block.type == "hexahedron"]
    if not solids:
        raise PullbackError(
            f"{path} has no hexahedra, only {', '.join(sorted({b.type for b in file.cells})) or 'nothing'}"
        )
    points = np.zeros((len(file.points), 3))
    points[:, : file.points.shape[1]] = file.points
    corners = np.concatenate([file.cells[k].data for k in solids])
    outside = corners[(corners < 0) | (corners >= len(points))]
    if outside.size:
        raise PullbackError(f"{path}: a hexahedron has node {outside[0]}, of {len(points)} nodes; export it again")
    nodes, elements, number = compacted(points * unit, corners)
    sets = {name: found for name, found in _meshio_sets(file, solids).items() if len(found)}
    node_sets = {"bottom": _lowest(nodes)}
    for name, index in (file.point_sets or {}).items():
        kept = number[np.asarray(index, dtype=np.int64)]
        node_sets[name] = kept[kept >= 0]
    return Mesh(nodes, elements, sets, node_sets)


def _check_sections(path: Path) -> None:
    """Raise if a .msh file is not one of gmsh, or one of its sections has no end."""
    marks = re.findall(rb"^\$(\w+)", read_plain(path, "mesh_bytes"), re.MULTILINE)
    if b"MeshFormat" not in marks:
        raise PullbackError(
            f"{path} is no file of gmsh, it has no $MeshFormat; export it again, as .vtu or gmsh's .msh"
        )
    for mark in marks:
        if not mark.startswith(b"End") and b"End" + mark not in marks:
            name = mark.decode(errors="replace")
            raise PullbackError(f"{path} is cut off: its section ${name} has no $End{name}; export it again")


def _meshio_sets(file, solids: list[int]) -> dict[str, np.ndarray]:
    """Return the cell sets and physical groups of the hexahedra by name."""
    first = np.concatenate([[0], np.cumsum([len(file.cells[k].data) for k in solids])])
    sets = {}
    for name, blocks in (file.cell_sets or {}).items():
        if not name.startswith("gmsh:"):
            found = [
                first[i] + np.asarray(blocks[k], dtype=np.int64) for i, k in enumerate(solids) if blocks[k] is not None
            ]
            sets[name] = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
    tags = file.cell_data.get("gmsh:physical")
    if tags is not None:
        tag = np.concatenate([tags[k] for k in solids])
        sets.update({name: np.flatnonzero(tag == k) for name, (k, dim) in file.field_data.items() if dim == 3})
    return sets
