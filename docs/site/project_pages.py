"""MkDocs hook: adds pages from the top folder, makes links to source files plain text, lets long names in tables wrap.

Pages in docs/ link to files outside of it, which is right where people read the repository. On the site the pages of
`PAGES` have an address, and other files have none.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "README.md": "index.md",
}
_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CELL: Final = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_CODE: Final = re.compile(r"(?<=<code>)[^<]{17,}(?=</code>)")
_PART: Final = re.compile(r"(::|[_/.,])(?=[\w\[&])")
_NAMED_FENCE: Final = re.compile(r"^( *```\w+) [\w ]+$", re.MULTILINE)
"""Fences that tests find by a second word, as in ``json envelope``; MkDocs takes none."""


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages of the top folder."""
    for name, place in PAGES.items():
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point the links of a page at pages of the site."""
    place = page.file.src_uri
    if place == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    by_place = {there: name for name, there in PAGES.items() if name != "README.md"}
    source = ROOT / by_place[place] if place in by_place else DOCS / place
    markdown = _NAMED_FENCE.sub(r"\1", markdown)
    blocks = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        block if block.lstrip().startswith("```") else _LINK.sub(lambda found: _link(found, source, place), block)
        for block in blocks
    )


def on_page_content(html: str, **_: Any) -> str:
    """Let the names in the cells of a table break behind their parts, as a path behind each folder."""
    return _CELL.sub(lambda cell: _CODE.sub(lambda code: _PART.sub(r"\1<wbr>", code[0]), cell[0]), html)


def _link(found: re.Match[str], source: Path, place: str) -> str:
    text, target = found.groups()
    path, _, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return found[0]
    there = (source.parent / path).resolve()
    if there.is_relative_to(DOCS) and there.is_file():
        page = there.relative_to(DOCS).as_posix()
    elif there.parent == ROOT and there.name in PAGES:
        page = PAGES[there.name]
    elif there.exists():
        return text if "`" in text else f"`{there.relative_to(ROOT).as_posix()}`"
    else:
        return found[0]  # MkDocs reports it
    relative = os.path.relpath(page, Path(place).parent).replace(os.sep, "/")
    return f"[{text}]({relative}{'#' + anchor if anchor else ''})"
