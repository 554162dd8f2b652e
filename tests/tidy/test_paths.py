"""Paths that pages and comments name exist, and ARCHITECTURE.md lists every folder of the product."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.tidy.tree import ROOT, files, python_files, shown, text_of

ARCHITECTURE: Final = ROOT / "ARCHITECTURE.md"
_PRODUCT: Final = ("cdc", "snapshot", "outbox", "sinks", "migrations")
_TOP: Final = "cdc|snapshot|outbox|sinks|migrations|tests|docs|docker"
_PATH: Final = re.compile(rf"`((?:{_TOP})(?:/[\w.-]+)*)`")
_PAGE: Final = re.compile(r"\bdocs/[\w/-]+\.md\b")
_WORDS_MAX: Final = 1300
_MADE_LATER: Final = frozenset({"outbox/_migrations", "cdc/web/_docs"})
"""Only in the wheel."""
_EXAMPLES: Final = frozenset({"tailrace_sqlite.py"})
"""Files that a guide writes."""


def _rows(heading: str) -> list[str]:
    """Rows of the tables below a heading of ARCHITECTURE.md, without their heads."""
    part = re.split(rf"^## {re.escape(heading)}$", text_of(ARCHITECTURE), flags=re.MULTILINE)[1]
    part = re.split(r"^## ", part, flags=re.MULTILINE)[0]
    tables = re.findall(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", part, re.MULTILINE)
    return [row for table in tables for row in table.splitlines()]


def test_every_path_that_a_page_names_exists() -> None:
    pages = [path for path in files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    named = {(shown(page), path) for page in pages for path in _PATH.findall(text_of(page))}

    missing = sorted(
        f"{page}: {path}" for page, path in named if path not in _MADE_LATER and not (ROOT / path).exists()
    )
    assert len(named) > 200
    assert missing == []


def test_every_file_that_a_page_names_without_its_folder_exists() -> None:
    pages = [path for path in files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    names = {path.name for path in python_files()}

    assert [
        f"{shown(page)}: {name}"
        for page in pages
        for name in re.findall(r"`(\w+\.py)`", text_of(page))
        if name not in names | _EXAMPLES
    ] == []


def test_every_page_that_the_code_names_exists() -> None:
    named = {(shown(path), page) for path in python_files() for page in _PAGE.findall(text_of(path))}

    assert sorted(f"{path}: {page}" for path, page in named if not (ROOT / page).exists()) == []


def test_architecture_has_a_line_for_every_folder_of_the_product() -> None:
    folders = {shown(path.parent) for path in python_files() if path.relative_to(ROOT).parts[0] in _PRODUCT}
    lines = [row.split("|")[1].strip().strip("`") for row in _rows("Folders")]

    assert sorted(folders - set(lines)) == []
    assert sorted(line for line in lines if not (ROOT / line).is_dir()) == []
    assert len(lines) == len(set(lines))


def test_architecture_leads_from_a_task_to_files() -> None:
    tasks = _rows("To change X, open Y")

    assert len(tasks) >= 40
    assert [task for task in tasks if not _PATH.search(task.split("|")[2])] == []


def test_architecture_stays_short() -> None:
    prose = [line for line in text_of(ARCHITECTURE).splitlines() if not line.startswith("|")]

    assert len(" ".join(prose).split()) <= _WORDS_MAX


def test_internals_are_all_in_their_index() -> None:
    folder = Path("docs/internals")
    index = text_of(ROOT / folder / "index.md")

    assert [
        shown(path)
        for path in files()
        if path.parent == ROOT / folder and path.name != "index.md" and f"({path.name})" not in index
    ] == []
