"""The documentation as the page serves it: every page renders, every link leads somewhere, nothing else is served."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urldefrag

import pytest

from cdc.overview.attention import RUNBOOKS
from cdc.web import manual
from cdc.why.cause import KINDS

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = sorted(
    file
    for part in (DOCS.glob("*.md"), *((DOCS / one).glob("*.md") for one in ("howto", "explanation", "reference")))
    for file in part
)


class _Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in {"href", "src"} and value and not value.startswith(("/", "http")):
                self.targets.append(value)


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_every_link_of_the_served_documentation_leads_to_a_page_and_a_heading(file: Path) -> None:
    found = _Links(manual.page(file, DOCS, "1.2.3"))

    for target in found.targets:
        name, anchor = urldefrag(target)
        other = (file.parent / name).resolve() if name else file
        served = manual.file_of(str(other.relative_to(DOCS)), DOCS)
        assert served == other, target
        if anchor:
            assert anchor in _Links(manual.page(other, DOCS, "1.2.3")).anchors, target


def test_every_runbook_of_the_page_and_of_the_diagnosis_is_served() -> None:
    runbooks = {f"docs/howto/{one}.md" for one in (*RUNBOOKS.values(), "states")} | {kind.page for kind in KINDS}

    for path in runbooks:
        assert manual.file_of(path.removeprefix("docs/"), DOCS), path


def test_files_outside_the_documentation_and_scripts_are_not_served() -> None:
    for path in (
        "../README.md",
        "howto/../../README.md",
        "/etc/passwd",
        "reference/generate.py",
        "howto",
        "x\0.md",
        "",
    ):
        assert manual.file_of(path, DOCS) is None, path


def test_html_in_a_page_is_shown_as_text_and_links_out_of_the_documentation_become_text(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("# A `b` <c>\n\n<script>x</script>\n\n[gone](../b.md) [self](a.md) [web](https://example.org)\n")

    page = manual.page(file, tmp_path, "<1>")

    assert "<script>x" not in page
    assert "version &lt;1&gt;" in page
    assert '<h1 id="a-b-c">' in page
    assert re.findall(r'<a href="([^"]+)">(\w+)</a>', page) == [("a.md", "self"), ("https://example.org", "web")]
    assert "gone" in page
