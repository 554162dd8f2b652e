"""What `cdc doctor` reports about an outbox, and how `cdc tail --outbox` shows an event."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cdc.cli import tail_outbox
from cdc.config.load import parse
from cdc.doctor.outbox_checks import check_outbox
from cdc.doctor.script import script
from cdc.doctor.source_facts import OutboxFacts
from cdc.model.log_record import LogRecord
from tests.fixtures.capture.source_builders import column, facts, table
from tests.fixtures.outbox.scripted_router import OURS

_HEAD = (
    'name = "shop"\n[source]\ndsn = "postgresql://cdc@localhost/shop"\n[kafka]\nbootstrap = "localhost:1"\n[outbox]\n'
)


def outbox(**changes: Any) -> OutboxFacts:
    columns = tuple(column(name, type_oid=oid) for name, oid in OURS.items())
    found = OutboxFacts(
        table=table("outbox", namespace="outbox", columns=columns, key=("id",)),
        owner="app",
        owned=True,
        can_select=True,
        can_delete=True,
    )
    return replace(found, **changes)


@pytest.mark.parametrize(
    ("text", "changes", "checks"),
    [
        ("", {}, ["outbox"]),
        ("prune = 'delete'", {"can_delete": False}, ["outbox_prune_rights"]),
        ("prune = 'drop'", {"owned": False}, ["outbox_prune", "outbox_prune_rights"]),
        ("", {"can_select": False}, ["outbox_rights"]),
        ("existing = 'skip'", {"can_select": False}, ["outbox"]),
        ("columns = {payload = 'gone'}", {}, ["outbox_columns"]),
    ],
)
def test_doctor_says_what_the_outbox_lacks(text: str, changes: dict[str, Any], checks: list[str]) -> None:
    source = replace(facts(), outbox=outbox(**changes))

    found = check_outbox(source, parse(_HEAD + text, {}))

    assert [one.check for one in found] == checks
    assert all(one.sql or one.command for one in found if one.check != "outbox")


def test_doctor_says_that_the_table_is_not_there_and_the_script_publishes_it_when_it_is() -> None:
    config = parse(_HEAD, {})

    assert [one.check for one in check_outbox(facts(), config)] == ["outbox_missing"]
    assert '"outbox"."outbox"' in script(config, replace(facts(), outbox=outbox()))


def test_event_is_a_line_and_a_document() -> None:
    record: Any = LogRecord(
        "shop.events.order", 1, 7, 0, b"9", b"\xff", [("id", b"e1"), ("type", b"placed"), ("version", b"2")]
    )

    assert "order 9  placed v2  e1  (1 bytes)" in tail_outbox.line(record, "order")
    assert json.loads(tail_outbox.document(record, "order"))["payload"] == {"base64": "/w=="}
