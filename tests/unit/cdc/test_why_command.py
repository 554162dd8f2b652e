"""`cdc why`: names of parts, the text for people, and the page that lists the causes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from cdc.cli import why_command
from cdc.config.load import parse
from cdc.errors import UsageError
from cdc.why.cause import KINDS
from cdc.why.diagnosis import check_part, document
from tests.fixtures.capture.why_scenes import DEAD, EVERY, HEALTHY
from tests.tidy.tree import ROOT

CONFIG: Final = """
name = "shop"
[source]
dsn = "postgresql://cdc@db/shop"
[kafka]
bootstrap = "kafka:9092"
[sinks.cache]
kind = "cache"
url = "redis://store"
"""


@pytest.mark.parametrize("part", ["", "capture", "snapshot", "cache"])
def test_part_of_the_pipeline_is_accepted(part: str) -> None:
    check_part(parse(CONFIG, {}), part)


def test_mistyped_part_is_an_error_that_lists_the_parts() -> None:
    with pytest.raises(UsageError) as caught:
        check_part(parse(CONFIG, {}), "cahce")

    assert str(caught.value) == "no part 'cahce' in pipeline 'shop'"
    assert caught.value.hint == "the parts are capture, snapshot, cache"


def shown(found: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> list[str]:
    why_command._show(found)
    return capsys.readouterr().out.splitlines()


def test_text_begins_with_the_first_cause_and_its_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(document(EVERY["transaction blocks the slot"][1]), capsys)

    assert lines[0] == "long-transaction: the transaction of pid 4711 (psql) blocks the creation of the slot"
    assert lines[1] == "    open for 11 min"
    assert " try: select pg_terminate_backend(4711);" in lines
    assert "page: docs/howto/wal-pressure.md" in lines


def test_text_of_a_healthy_pipeline_is_one_sentence_and_what_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(document(HEALTHY), capsys)

    assert lines[0] == "nothing is wrong: capture follows the log, lag 0.1 s, 2 sinks follow"
    assert all(not line or line.startswith("read ") for line in lines[1:])


def test_text_names_what_could_not_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(DEAD)
    found["unread"] = [{"what": "Kafka", "why": "no answer\x1b[31m within 8 s"}]

    assert "not read  Kafka: no answer\\x1b[31m within 8 s" in shown(found, capsys)


def test_page_lists_every_cause_in_order() -> None:
    """Generate the rows from `KINDS` when this fails."""
    text = (ROOT / "docs" / "howto" / "why.md").read_text(encoding="utf-8")
    names = [Path(kind.page).name for kind in KINDS]
    rows = [
        f"| `{kind.code}` | {kind.title} | [{name.removesuffix('.md')}]({name}) |"
        for kind, name in zip(KINDS, names, strict=True)
    ]

    assert [line for line in text.splitlines() if line.startswith("| `") and "](" in line] == rows


def test_page_of_every_cause_exists() -> None:
    assert [kind.page for kind in KINDS if not Path(ROOT / kind.page).is_file()] == []
