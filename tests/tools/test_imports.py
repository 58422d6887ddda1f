"""Everything that the package imports is declared: in its dependencies, or in an extra that `core/extras.py` knows."""

import ast
import re
import sys
from pathlib import Path

from pullback.core.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
# module -> package, where the names differ
PACKAGES = {"PIL": "pillow", "warp": "warp-lang", "collada": "pycollada", "rsl_rl": "rsl-rl-lib"}


def declared() -> dict[str, set[str]]:
    """Return the packages of the base (`""`) and of each extra; a table by hand, as Python 3.10 has no tomllib."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = {}
    for name, items in re.findall(r"^([\w-]+) = \[(.*?)\]$", text, re.MULTILINE | re.DOTALL):
        packages = {item.lower() for item in re.findall(r'"([A-Za-z][\w.-]*)(?:\[[\w,]+\])?[>=<~!;"]', items)}
        found["" if name == "dependencies" else name] = packages
    return found


def imported() -> dict[str, str]:
    """Return the third-party packages that the package imports, and a file that does."""
    found = {}
    for path in sorted((ROOT / "pullback").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            for name in names:
                module = name.split(".")[0]
                if module not in sys.stdlib_module_names and module != "pullback":
                    found[PACKAGES.get(module, module.replace("_", "-"))] = path.relative_to(ROOT).as_posix()
    return found


def test_every_import_is_declared():
    packages = declared()
    assert "torch" in packages[""]
    missing = {name: file for name, file in imported().items() if name not in packages[""] and name not in EXTRAS}
    assert missing == {}


def test_extras_install_what_they_say():
    packages = declared()
    for name, extra in EXTRAS.items():
        assert name in packages[extra], f"{name} is not in the extra {extra}"
