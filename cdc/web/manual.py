"""Renders the documentation as HTML, so that hints and alarms of the page lead to it without another host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

PICTURES: Final = {".svg": "image/svg+xml", ".png": "image/png"}

_HTML_LINE: Final = re.compile(r"^</?div\b.*>$", re.MULTILINE)  # the grid of index.md, for the documentation site
_OUTSIDE: Final = re.compile(r"[a-z]+:|//|#", re.IGNORECASE)
_FRAME: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title} - Tailrace</title>
<link rel="icon" href="/page/favicon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/base.css">
<link rel="stylesheet" href="/page/layout.css">
<link rel="stylesheet" href="/page/manual.css">
<script src="/page/theme_first.js"></script>
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
<header class="top">
  <a class="brand" href="/"><img src="/page/favicon.svg" alt="" width="22" height="22"><span>Tailrace</span></a>
  <a href="/docs/index.md">Documentation of version {version}</a>
</header>
<main id="main" class="manual" tabindex="-1">
{body}</main>
</body>
</html>
"""


def folder() -> Path:
    """Return the folder of the documentation: beside this file in the wheel, at the root of the repository."""
    here = Path(__file__).resolve().parent
    shipped = here / "_docs"
    return shipped if shipped.is_dir() else here.parents[1] / "docs"


def file_of(path: str, root: Path) -> Path | None:
    """Return the page or picture at this path below /docs/; None if there is none."""
    return None if "\0" in path else _served(root / path, root)


@cache
def page(file: Path, root: Path, version: str) -> str:
    """Return a page as HTML. A link to a file that is not served becomes text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(_HTML_LINE.sub("", file.read_text(encoding="utf-8")))
    title = ""
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            text = _text(tokens[at + 1].children or ())
            token.attrSet("id", anchor_of(text))
            title = title or text
        elif token.children:
            token.children = list(_checked(token.children, file, root))
    body = parser.renderer.render(tokens, parser.options, {})
    return _FRAME.format(title=escape(title), version=escape(version), body=body)


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as in the documentation site."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _text(tokens: Sequence[Token]) -> str:
    return "".join(token.content for token in tokens if token.type in {"text", "code_inline"})


def _checked(tokens: Sequence[Token], file: Path, root: Path) -> Iterator[Token]:
    dropped = False
    for token in tokens:
        if token.type == "link_open":
            target = str(token.attrGet("href") or "")
            dropped = not (_OUTSIDE.match(target) or _served(file.parent / target.partition("#")[0], root))
            if dropped:
                continue
        elif token.type == "link_close" and dropped:
            dropped = False
            continue
        yield token


def _served(path: Path, root: Path) -> Path | None:
    found = path.resolve()
    allowed = found.is_relative_to(root) and found.suffix in {".md", *PICTURES}
    return found if allowed and found.is_file() else None
