"""Check that imports inside `pullback` point one way, and that files and parameter lists stay short.

    cli -> tasks -> learn -> control, viewer -> soft -> rigid | thermal -> robot, rollout
        -> description, spatial, sdf -> core

Packages of one layer may lean on each other in one direction only; `rigid` and `thermal` not at all, and of the two
`soft` knows `rigid` only. Kernel files (`*_kernels.py`, and everything in `spatial/` but `*_torch.py`) never import
torch. torch and warp meet in `core/tensors.py` alone: it owns lifetimes and streams across the border, and a second
place would get them wrong.
Optional packages are imported inside functions, or at the top of the one place that is about them.
A function has at most 10 parameters on the host, 12 in kernels: what belongs together is a struct or a dataclass.

Usage: python tools/check_layers.py [ROOT]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = "pullback"

# lowest first; a package imports its own layer and those above it in this table
LAYERS = (
    ("core",),
    ("description", "spatial", "sdf"),
    ("robot", "rollout"),
    ("rigid", "thermal"),
    ("soft",),
    ("control", "viewer"),
    ("learn",),
    ("tasks",),
    ("cli", "__main__", "__init__"),
)
STRANGERS = {("rigid", "thermal"), ("thermal", "rigid"), ("soft", "thermal")}

BRIDGE = "pullback/core/tensors.py"

# optional package -> the file or folder that may import it at its top
OPTIONAL = {
    "mujoco": "pullback/description/mjcf.py",
    "viser": "pullback/viewer/",
    "cma": "pullback/control/search/gradient_free.py",
    "gymnasium": "pullback/learn/gym_env.py",
    "onnxruntime": "pullback/learn/export.py",
}

CHECKED_FOLDERS = ("pullback", "bench", "checks", "examples", "tests", "tools")
MAX_LINES = 450
MAX_EXAMPLE_LINES = 80

# path -> the reason it is allowed to be longer
LONG_FILES: dict[str, str] = {}

MAX_PARAMETERS = 10
MAX_KERNEL_PARAMETERS = 12

# file:function -> the reason it is allowed more parameters
LONG_SIGNATURES: dict[str, str] = {
    "pullback/rigid/world/world.py:add": "public, one positional, the others named options that help() lists",
    "pullback/rigid/step/split_vjp_kernels.py:part_vjp": "13: the parts of a split step, which are being written anew",
    "pullback/viewer/shot.py:__init__": "11: nine are the named options of save_replay, which its help lists",
    "pullback/robot/ik.py:inverse_kinematics": "public, 11: seven are named options that help() lists",
}

RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


class Import(NamedTuple):
    """One imported module, by its absolute name, and where the import stands."""

    module: str
    line: int
    at_import_time: bool


class Edge(NamedTuple):
    """An import from one top-level part of the package to another."""

    source: str
    target: str
    where: str


def imports_of(path: Path, root: Path) -> list[Import]:
    """List the imports of a file, those inside functions and under TYPE_CHECKING as well."""
    parents = path.relative_to(root).parent.parts
    return list(_walk_imports(ast.parse(path.read_text(encoding="utf-8"), str(path)), parents, True))


def _walk_imports(node: ast.AST, parents: tuple[str, ...], at_import_time: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, at_import_time)
        return
    if isinstance(node, ast.ImportFrom):
        # a relative import counts its dots from the file's own package
        base = list(parents[: len(parents) - node.level + 1]) if node.level else []
        base += node.module.split(".") if node.module else []
        # `from pullback import x` may name a part of the package or a public name
        for name in [alias.name for alias in node.names] if base == [PACKAGE] else [""]:
            yield Import(".".join(base + [name] * (name in RANK)), node.lineno, at_import_time)
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for child in node.body:
            yield from _walk_imports(child, parents, False)
        for child in node.orelse:
            yield from _walk_imports(child, parents, at_import_time)
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        at_import_time = False
    for child in ast.iter_child_nodes(node):
        yield from _walk_imports(child, parents, at_import_time)


def part_of(path: str) -> str:
    """Return the top-level part a file belongs to: pullback/rigid/step.py -> rigid, pullback/cli.py -> cli."""
    return path.split("/")[1].removesuffix(".py")


def is_kernel_file(path: str) -> bool:
    """Tell whether a file holds kernels, and so may not know torch."""
    return path.endswith("_kernels.py") or (path.startswith("pullback/spatial/") and not path.endswith("_torch.py"))


def allowed_imports(part: str) -> str:
    """Name the parts that a part may import."""
    names = [name for layer in LAYERS[: RANK[part] + 1] for name in layer if not name.startswith("__")]
    return ", ".join(name for name in names if (part, name) not in STRANGERS)


def check_external(path: str, imports: list[Import]) -> Iterator[str]:
    """Check where torch, warp and the optional packages are imported."""
    lines = {module.module.split(".")[0]: module.line for module in reversed(imports)}
    if "torch" in lines and is_kernel_file(path):
        yield f"{path}:{lines['torch']}: a kernel file imports torch; kernel files know warp only"
    elif "torch" in lines and "warp" in lines and path != BRIDGE:
        line = max(lines["torch"], lines["warp"])
        yield f"{path}:{line}: imports both torch and warp; only {BRIDGE} may"
    for module, line, at_import_time in imports:
        home = OPTIONAL.get(module.split(".")[0])
        if home and at_import_time and not path.startswith(home):
            yield f"{path}:{line}: imports the optional {module} at its top; allowed inside a function, or in {home}"


def check_direction(path: str, imports: list[Import], edges: list[Edge]) -> Iterator[str]:
    """Check that a file imports its own layer and lower ones only, and collect the edges it adds."""
    part = part_of(path)
    if part not in RANK:
        yield f"{path}:1: '{part}' has no layer; give it one in tools/check_layers.py"
        return
    for module, line, _ in imports:
        if module.split(".")[0] in ("bench", "checks", "examples", "tests", "tools"):
            yield f"{path}:{line}: imports {module}, which is not part of the package"
        if module.split(".")[0] != PACKAGE:
            continue
        target = part_of(module.replace(".", "/")) if module != PACKAGE else "__init__"
        # a part this table does not know is reported once, at its own files
        if target == part or target not in RANK:
            continue
        if RANK[target] > RANK[part] or (part, target) in STRANGERS:
            yield f"{path}:{line}: {part} imports {module}; {part} may import: {allowed_imports(part)}"
        elif RANK[target] == RANK[part]:
            edges.append(Edge(part, target, f"{path}:{line}"))


def check_cycles(edges: list[Edge]) -> Iterator[str]:
    """Check that neighbours in a layer lean on each other in one direction only."""
    facade = ("__init__", "__main__")
    pairs = {(edge.source, edge.target): edge.where for edge in reversed(edges) if edge.target not in facade}
    for (source, target), where in pairs.items():
        if source < target and (target, source) in pairs:
            back = pairs[target, source]
            yield f"{where}: {source} imports {target}, and {target} imports {source} at {back}; keep one direction"


def check_size(path: str, text: str) -> Iterator[str]:
    """Check the length of a file."""
    lines = text.count("\n")
    limit = MAX_EXAMPLE_LINES if path.startswith("examples/") else MAX_LINES
    if lines > limit and path not in LONG_FILES:
        yield f"{path}:{lines}: {lines} lines; at most {limit}, or a reason in LONG_FILES of tools/check_layers.py"


def check_parameters(path: str, text: str) -> Iterator[str]:
    """Check the number of parameters of each function, `self` apart."""
    for node in ast.walk(ast.parse(text, path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given = node.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        count = sum(one.arg not in ("self", "cls") for one in named)
        made_by = [ast.unparse(one) for one in node.decorator_list]
        on_device = any(name.startswith(("wp.", "of_joints")) for name in made_by)
        limit = MAX_KERNEL_PARAMETERS if on_device else MAX_PARAMETERS
        if count > limit and f"{path}:{node.name}" not in LONG_SIGNATURES:
            yield (
                f"{path}:{node.lineno}: {node.name} has {count} parameters; at most {limit}, "
                f"or a reason in LONG_SIGNATURES of tools/check_layers.py"
            )


def check_tree(root: Path) -> list[str]:
    """Return every complaint about the repository at `root`, each starting with path:line."""
    complaints: list[str] = []
    edges: list[Edge] = []
    for folder in CHECKED_FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            path = file.relative_to(root).as_posix()
            text = file.read_text(encoding="utf-8")
            complaints += check_size(path, text)
            if folder == PACKAGE:
                complaints += check_parameters(path, text)
                imports = imports_of(file, root)
                complaints += check_external(path, imports)
                complaints += check_direction(path, imports, edges)
    return complaints + list(check_cycles(edges))


def main() -> int:
    """Print the complaints and return the exit status."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    complaints = check_tree(root)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
