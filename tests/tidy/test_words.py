"""Keeps certain words out of what people read, so that texts stay in plain English.

It reads the documents, and the docstrings, comments and sentences in strings of the product. It is a backstop: a text
without any of these words may still be hard to read.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.tidy.tree import ROOT, files, python_files, shown, text_of

_PRODUCT: Final = ("cdc", "snapshot", "outbox", "sinks", "migrations")
_UNREAD: Final = frozenset({"CHANGELOG.md"})
"""What was written at the time stays as it is."""

_WORDS: Final = {
    "no process, no worker": r"nobody",
    "the name of what acts": r"whoever|(?:every|some|any)body",
    "the worker, the reader, the operator that acts": (
        r"(?:(?<=^)|(?<=[,;:.(] )|(?<=\bof )|(?<=\bby )|(?<=\bto )|(?<=\bfor )|(?<=\bwhat )|(?<=\band ))"
        r"who (?:waits?|reads?|writes?|asks?|looks?|holds?|owns?|parks?|has|had|wants?|comes?|goes|tells?|is|are|was)"
    ),
    "again, from scratch": r"anew",
    "repair, fix": r"mend(?:s|ed|ing)?|unmended",
    "reported, logged, notified, known from": r"(?:is|are|was|were|be|being|been) (?:not |never |only )?told(?! apart)",
    "report, say which": r"tells? of\b|tells? (?:it|them) (?:of|that|what)\b",
    "at most, several": r"as many as|some such",
    "must be, will be": r"(?:is|are|was|were) (?:not |never )?to be",
    "not found, not available, invalid": r"(?<!there )(?:is|are|was|were) (?-i:none)\b|to be had",
    "invalid, not a": (
        r"(?<!there )(?:is|was) no "
        r"(?!longer\b|more\b|less\b|other\b|\w+er\b|reason\b|need\b|way\b|guarantee\b)\w+"
    ),
    "request, desired state": r"(?:an?|the|each|its|their|another) wish|wishes|wished",
    "incomplete record": r"holes?",
    "rows with an unknown schema": r"strangers?",
    "worker threads, hand-over buffer": r"crew|desks?",
    "read, check": r"(?:a|each|every|one|two|last|next|good|another|between) looks?(?! like\b)|sights?",
    "position, offset, cut": r"(?:its|their|the|a) places? in the (?:log|stream)",
    "silently": r"without a word",
    "compared with": r"held against|hold(?:s|ing)? \w+ against",
    "affected keys": r"in the crowd|touched keys|keys touched",
    "healthy": r"(?<!all )(?:is|are|being) well",
    "by itself": r"of (?:its|their) own accord",
    "keep a guarantee": r"keeps? (?:its|their|the) word",
    "dead letter": (
        r"(?:parked|unsettled|settled) letters?"
        r"|(?<!dead )(?<!dead-)letters (?:(?:that|which) (?:were|are) )?(?:parked|behind)"
    ),
}
_PATTERNS: Final = {
    instead: re.compile(rf"(?<![\w`_.-])(?:{words})(?![\w`-])", re.IGNORECASE | re.MULTILINE)
    for instead, words in _WORDS.items()
}
_OUTSIDE: Final = re.compile(
    r"\b(?:DESIGN|RELIABILITY|SNAPSHOT|SPARK|VIEWS|FACTS|SERVERS|STYLE|WORDS)(?:\.md\b|,? (?:sections?|part|[A-Z]?\d))"
)
"""Citations of documents that are not in the repository."""


@cache
def _texts(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, text) of what people read in a file."""
    if path.suffix == ".md":
        return tuple(_paragraphs(text_of(path)))
    return (*_comments(text_of(path)), *_sentences(ast.parse(text_of(path))))


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, rows of tables and items of a page, without code."""
    text = re.sub(r"^( *```).*?^\1", lambda found: "\n" * found[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`", "`", text)
    line = 1
    for part in re.split(r"(\n(?:\s*\n)+|\n(?=[|#-]))", text):
        if part.strip():
            yield line, " ".join(part.split())
        line += part.count("\n")


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments; those of neighbouring lines are one."""
    block: list[str] = []
    begun = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        if block and line == last + 1 and not token.line[:column].strip():
            block.append(token.string.lstrip("# "))
        else:
            if block:
                yield begun, " ".join(block)
            block, begun = [token.string.lstrip("# ")], line
        last = line
    if block:
        yield begun, " ".join(block)


def _sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Docstrings and other strings of several words. What an f-string fills in is left out."""
    if isinstance(tree, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "x" for part in tree.values]
        text = "".join(parts)
    elif isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        text = tree.value
    else:
        for child in ast.iter_child_nodes(tree):
            yield from _sentences(child)
        return
    if " " in text.strip():
        line = getattr(tree, "lineno", 0)
        yield line, " ".join(re.sub(r"``[^`]*``|`[^`]*`", "`", text).split())


def _read() -> list[Path]:
    pages = [path for path in files() if path.suffix == ".md" and path.name not in _UNREAD]
    return pages + [path for path in python_files() if path.relative_to(ROOT).parts[0] in _PRODUCT]


def found(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """Where a pattern occurs in what people read, with some words around it."""
    return [
        f"{shown(path)}:{line}: ...{text[max(0, hit.start() - 25) : hit.end() + 25]}..."
        for path in paths
        for line, text in _texts(path)
        for hit in pattern.finditer(text)
    ]


@pytest.mark.parametrize("instead", sorted(_PATTERNS))
def test_plain_words_are_written_instead(instead: str) -> None:
    assert found(_PATTERNS[instead], _read()) == [], f"write instead: {instead}"


def test_no_document_is_cited_that_is_not_in_the_repository() -> None:
    paths = [path for path in files() if path.suffix in {".py", ".md", ".toml", ".sql"} and path.name not in _UNREAD]
    cited = [
        f"{shown(path)}:{number}: {line.strip()[:100]}"
        for path in paths
        if path != Path(__file__)
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if _OUTSIDE.search(line)
    ]

    assert cited == []


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("partitions that nobody has", "no process, no worker"),
        ("what it is told of the stream", "reported, logged, notified, known from"),
        ("'banana' is no LSN", "invalid, not a"),
        ("a worker joins anew", "again, from scratch"),
    ],
)
def test_a_word_of_the_list_is_found(text: str, instead: str) -> None:
    assert _PATTERNS[instead].search(text)


@pytest.mark.parametrize("text", ["there is no slot", "it is no longer there", "a whole table", "recommended"])
def test_plain_text_is_not_accused(text: str) -> None:
    assert [instead for instead, pattern in _PATTERNS.items() if pattern.search(text)] == []
