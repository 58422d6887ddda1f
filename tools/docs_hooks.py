"""Hooks of the documentation site: notebooks, pages that stand outside of docs/, and links that lead out of it.

Pages link to files of the repository, which is right on a code host and leads nowhere on the site. CONTRIBUTING.md and
CHANGELOG.md become pages; links to other files outside of docs/ keep their text and lose the link.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ADDED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that stand in the repository's root."""
    from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]

    for source, page in ADDED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_inward(text, ROOT)))
    for notebook in sorted((ROOT / "docs/tutorials").glob("*.ipynb")):
        files.append(File.generated(config, f"tutorials/{notebook.stem}.md", content=as_page(notebook)))
    return files


def as_page(notebook: Path) -> str:
    """Return a notebook as a page, its code in blocks; a link leads to the notebook itself."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    pieces = [f"```python\n{text}\n```" if cell["cell_type"] == "code" else text for cell, text in zip(cells, texts)]
    return "\n\n".join([*pieces, f"This page as a notebook: [{notebook.name}]({notebook.name})."]) + "\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page that lead out of docs/."""
    if page.file.src_uri in ADDED.values():
        return markdown
    return _inward(markdown, (ROOT / "docs" / page.file.src_uri).parent)


def _inward(markdown: str, folder: Path) -> str:
    """Return a page of a folder with links that stay on the site."""
    docs = ROOT / "docs"

    def rewritten(match: re.Match[str]) -> str:
        image, text, link = match.groups()
        path, _, anchor = link.partition("#")
        if not path or ":" in path:
            return match[0]
        target = (folder / path).resolve()
        if target.is_relative_to(docs):
            if folder != ROOT:
                return match[0]
            inside = target.relative_to(docs).as_posix()
        elif target.name in ADDED and target.parent == ROOT:
            up = 0 if folder == ROOT else len(folder.relative_to(docs).parts)
            inside = "../" * up + ADDED[target.name]
        else:
            return text
        return f"{image}[{text}]({inside}{'#' + anchor if anchor else ''})"

    return LINK.sub(rewritten, markdown)
