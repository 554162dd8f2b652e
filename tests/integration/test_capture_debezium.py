"""`encode.compatibility = "debezium"`, real daemon: snapshot and stream have the values that Debezium wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.fixtures.capture.debezium_comparison import LOST, MISSING, same_value
from tests.fixtures.capture.debezium_types import PREPARE, TYPES
from tests.fixtures.capture.snapshot_waits import complete

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite

_GOLDEN: Final = Path(__file__).parents[1] / "golden" / "debezium.json"


def test_snapshot_and_stream_have_the_values_that_debezium_wrote(capture: CaptureSite) -> None:
    golden: dict[str, Any] = json.loads(_GOLDEN.read_text(encoding="utf-8"))
    capture.sql(*(statement for statement in PREPARE if not any(statement in one for one in golden["skipped"])))
    tables = {f"m{number}": one for number, one in enumerate(golden["types"])}
    with capture.connect() as session:
        for table, one in tables.items():
            session.execute(f"create table {table} (id int primary key, v {one['type']})".encode())
            for number, value in enumerate(TYPES[one["type"]]):
                session.execute(f"insert into {table} values (%s, %s::text::{one['type']})".encode(), [number, value])
    daemon = capture.running({"encode": {"compatibility": "debezium"}, "snapshot": {"mode": "initial"}})
    complete(capture, daemon, *(f"public.{table}" for table in tables))
    with capture.connect() as session:
        for table in tables:
            session.execute(f"insert into {table} select id + 1000, v from {table}".encode())
    log = capture.settled(daemon)

    wrong = []
    for table, one in tables.items():
        if one["type"] in LOST:
            continue
        images = [json.loads(event.value or b"")["after"] for event in log.topic(capture.topic(table))]
        found = {image["id"]: image["v"] for image in images}
        for number, row in enumerate(one["rows"]):
            theirs = row["default"].get("value", row["default"].get("stream"))
            ways = [found[number], found[number + 1000]]
            if theirs != MISSING and not all(same_value(ours, theirs) for ours in ways):
                wrong.append((one["type"], row["text"], ways, theirs))
    assert wrong == []
