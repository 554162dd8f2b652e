"""Which rows of a table are taken from the log, because they changed between a snapshot and a cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from cdc.model.log_record import LogRecord
from cdc.model.visibility import PgSnapshot
from cdc.verify import view_delta
from cdc.verify.view_delta import Undecided, table_delta

_TOPIC = "shop.public.orders"
_SNAPSHOT = PgSnapshot(100, frozenset({98}))


class _Log:
    """A topic with one partition."""

    def __init__(self, *records: LogRecord) -> None:
        self.records = records
        self.asked: list[tuple[Mapping[tuple[str, int], int], Mapping[tuple[str, int], int] | None]] = []

    def read(
        self, assignments: Mapping[tuple[str, int], int], until: Mapping[tuple[str, int], int] | None = None
    ) -> Iterator[list[LogRecord]]:
        self.asked.append((assignments, until))
        for record in self.records:
            yield [record]


def _event(key: int, xid: int | None, op: str = "u", value: str = "x", unchanged: Sequence[str] = ()) -> LogRecord:
    source: dict[str, Any] = {"epoch": 1, "commit_lsn": 1, "unchanged": list(unchanged)}
    if xid is not None:
        source["txId"] = xid
    row = None if op == "d" else {"id": key, "value": value}
    envelope = {"op": op, "ts_ms": 0, "after": row, "source": source}
    return LogRecord(_TOPIC, 0, 0, 0, f'{{"id":{key}}}'.encode(), json.dumps(envelope).encode(), None)


def _delta(*records: LogRecord) -> dict[int, str | None]:
    log = _Log(*records)
    found = table_delta(log, _TOPIC, {(_TOPIC, 0): 5}, {(_TOPIC, 0): 9, ("other", 0): 3}, _SNAPSHOT)
    assert log.asked == [({(_TOPIC, 0): 5}, {(_TOPIC, 0): 9})]
    rows = json.loads(found.document())
    return {item["key"]["id"]: None if item["row"] is None else item["row"]["value"] for item in rows}


def test_a_key_is_replaced_only_if_the_snapshot_does_not_see_a_change_of_it() -> None:
    assert _delta(_event(1, 97), _event(2, 98), _event(3, 99), _event(4, 100), _event(5, 120, op="d")) == {
        2: "x",
        4: "x",
        5: None,
    }


def test_the_last_state_counts_whichever_change_is_not_seen() -> None:
    assert _delta(_event(1, 98, value="first"), _event(1, 99, value="second"), _event(1, 97, value="third")) == {
        1: "third"
    }
    assert _delta(_event(1, 99, value="seen"), _event(1, 110, value="later"), _event(1, 111, op="d")) == {1: None}


def test_a_tombstone_follows_its_delete() -> None:
    tombstone = LogRecord(_TOPIC, 0, 0, 0, b'{"id":1}', None, None)

    assert _delta(_event(1, 99, op="d"), tombstone) == {}
    assert _delta(_event(1, 98, op="d"), tombstone) == {1: None}


def test_a_row_that_was_read_again_is_replaced() -> None:
    assert _delta(_event(1, 97, op="r"), _event(2, None)) == {1: "x", 2: "x"}


def test_an_incomplete_row_cannot_be_compared() -> None:
    with pytest.raises(Undecided, match="lacks its big"):
        _delta(_event(1, 98, unchanged=["big"]))
    assert _delta(_event(1, 97, unchanged=["big"])) == {}


def test_too_many_rows_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_delta, "ROWS_MAX", 1)

    with pytest.raises(Undecided, match="too many rows"):
        _delta(_event(1, 98), _event(2, 98))
