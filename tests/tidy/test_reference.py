"""Checks that the reference pages match the code that they describe."""

from __future__ import annotations

import re

import pytest

from cdc.telemetry.metrics import Metrics
from tests.tidy.tree import ROOT, loaded, python_files, shown, text_of

_UNITS = (
    *("_findings", "_total", "_seconds", "_bytes", "_rows", "_lsn", "_state", "_tables", "_chunks"),
    *("_transactions", "_partitions", "_info", "_ratio", "_sessions", "_spans"),
)


@pytest.mark.parametrize(("name", "text"), sorted(loaded(ROOT / "docs" / "reference" / "generate.py").pages().items()))
def test_page_is_what_the_code_gives(name: str, text: str) -> None:
    """Run ``python docs/reference/generate.py`` when this fails."""
    assert (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") == text


def test_pictures_and_table_of_time_are_those_of_their_script() -> None:
    """Run ``python docs/assets/draw_time.py`` when this fails."""
    drawn = loaded(ROOT / "docs" / "assets" / "draw_time.py")

    for name, picture in drawn.pictures().items():
        assert (ROOT / "docs" / "assets" / name).read_text(encoding="utf-8") == picture
    assert drawn.table() in (ROOT / "docs" / "explanation" / "time.md").read_text(encoding="utf-8")


def test_every_metric_says_its_unit() -> None:
    names = re.findall(r"^# TYPE (cdc_\w+) ", Metrics().render().decode(), re.MULTILINE)

    assert len(names) > 10
    assert [name for name in names if not name.endswith((*_UNITS, "_created"))] == []


def test_every_metric_is_written_somewhere() -> None:
    sources = [text_of(path) for path in python_files() if shown(path).startswith("cdc/")]
    names = [name for name in vars(Metrics()) if name not in {"registry", "process", "labels"}]

    assert [name for name in names if not any(re.search(rf"metrics\.{name}\b", text) for text in sources)] == []
