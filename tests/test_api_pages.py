"""Pages of the reference have examples that run, for every public name; so have guides without a test of their own."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


REFERENCE = sorted((ROOT / "docs/api").glob("*.md"))
GUIDES = [page for page in sorted((ROOT / "docs").glob("*.md")) if blocks(page)]
SHORT = [ROOT / "docs" / name for name in ("cloth.md", "impacts.md", "robots.md", "scale.md")]

NOT_RUN = {
    "pullback.GradientError": "raised for a gradient that is not finite, of which no short motion has one",
    "pullback.RankError": "raised when one of several processes fails",
    "pullback.decompose_mesh": "needs the extra coacd",
}
"""Public names without an example that runs, and why."""


@pytest.mark.parametrize("page", [*REFERENCE, *SHORT], ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    pytest.importorskip("viser")
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), namespace)


def test_every_guide_with_an_example_has_a_test():
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [page.name for page in GUIDES if f'"{page.name}"' not in tests] == []


def names_used(page: Path) -> set[str]:
    """Return the dotted names, `pullback.soft.Wall`, of the package that a page's examples use."""
    nodes = [node for block in blocks(page) for node in ast.walk(ast.parse(block))]
    stands_for: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            stands_for |= {name.asname or name.name: origin + name.name for name in node.names}

    def full(node: ast.AST) -> str:
        first, _, rest = ast.unparse(node).partition(".")
        return f"{stands_for.get(first, first)}.{rest}".rstrip(".")

    for node in nodes:
        # soft = pb.soft
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            stands_for |= {target.id: full(node.value) for target in node.targets if isinstance(target, ast.Name)}
    found = {full(node) for node in nodes if isinstance(node, ast.Attribute)} | set(stands_for.values())
    return found | {"pullback.viewer.view"} if "pullback.view" in found else found


def test_every_public_name_has_an_example():
    listed = {name for page in REFERENCE for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.M)}
    used = set().union(*map(names_used, [*REFERENCE, *GUIDES, ROOT / "README.md"]))
    assert sorted(listed - used) == sorted(NOT_RUN)
