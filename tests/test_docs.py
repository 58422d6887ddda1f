"""The documentation holds together: links lead somewhere, and the equations that code cites exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DERIVATION = re.compile(r"docs/derivations/[\w.-]+\.md")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
CITATION = re.compile(r"\beqs?\. (\(\d+\)(?:(?:, | and | to )\(\d+\))*)")

FILE = re.compile(r"`([\w./]+\.py)`")
SOURCE_FOLDERS = ("pullback", "tests", "checks", "bench", "examples", "tools")
PLACEHOLDERS = {"x.py", "x_kernels.py"}

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
CITING = {
    path: sorted(set(DERIVATION.findall(text)))
    for path in sorted((ROOT / "pullback").rglob("*.py"))
    if DERIVATION.search(text := path.read_text(encoding="utf-8"))
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


SOURCES = [name(path) for folder in SOURCE_FOLDERS for path in (ROOT / folder).rglob("*.py")]


def cited_equations(text: str) -> set[int]:
    """Return the equation numbers a text cites: `eq. (7)`, `eqs. (1), (2)`, `eqs. (6) to (8)`."""
    cited: set[int] = set()
    for group in CITATION.findall(text):
        numbers = [int(n) for n in re.findall(r"\d+", group)]
        cited.update(range(numbers[0], numbers[-1] + 1) if " to " in group else numbers)
    return cited


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_resolve(page):
    broken = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_source_files_that_pages_name_exist(page):
    named = {file for file in FILE.findall(page.read_text(encoding="utf-8")) if Path(file).name not in PLACEHOLDERS}
    missing = [file for file in named if not any(f"/{source}".endswith(f"/{file}") for source in SOURCES)]
    # the changelog and the decisions tell of files as they were
    assert page.name == "CHANGELOG.md" or page.parent.name == "decisions" or not missing


@pytest.mark.parametrize("path", CITING, ids=name)
def test_derivations_named_in_code_exist(path):
    assert [page for page in CITING[path] if not (ROOT / page).is_file()] == []


@pytest.mark.parametrize("path", CITING, ids=name)
def test_equations_cited_in_code_exist(path):
    pages = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in CITING[path])
    numbered = {int(n) for n in re.findall(r"^    .*\((\d+)\)$", pages, re.MULTILINE)}
    assert cited_equations(path.read_text(encoding="utf-8")) <= numbered


def test_the_kernels_name_their_derivations():
    kernels = {name(path) for path in (ROOT / "pullback").rglob("*_kernels.py")}
    assert kernels <= {name(path) for path in CITING}


def test_every_public_name_has_a_place_in_the_reference():
    import pullback as pb

    listed = set(re.findall(r"^::: (\S+)$", "\n".join(p.read_text() for p in (ROOT / "docs/api").glob("*.md")), re.M))
    parts = ("control", "learn", "sdf", "soft", "thermal", "viewer")
    names = {f"pullback.{name}" for name in pb.__all__ if name not in (*parts, "view")}
    names |= {f"pullback.{part}.{name}" for part in parts for name in getattr(pb, part).__all__}
    assert names == listed


def test_every_page_is_on_the_site():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")]
    listed = [page for page in pages if "/" not in page or page.startswith("api/") or page.endswith("README.md")]
    assert [page for page in listed if f": {page}" not in text] == []
