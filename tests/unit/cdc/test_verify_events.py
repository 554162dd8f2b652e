"""`cdc verify` decodes records of each format and derives the state of their keys."""

from __future__ import annotations

import pytest

from cdc.errors import TopicMismatch
from cdc.model.change_records import Headers
from cdc.model.log_record import LogRecord
from cdc.verify.key_states import states_after
from cdc.verify.log_events import FLAT, JSON, Format
from cdc.verify.verify_rule import Event, State, after

PLACE: Headers = [
    ("__schema_id", b"5c4e4a1d"),
    ("__epoch", b"1"),
    ("__commit_lsn", b"16"),
    ("__ts_ms", b"7"),
    ("__ordinal", b"1"),
]
OLD = State(b'{"id":1,"a":"old","b":"old"}')


@pytest.mark.parametrize(
    ("event", "before", "wanted"),
    [
        (Event("", None), OLD, State(None)),
        (Event("d", None), OLD, State(None)),
        (Event("u", b'{"id":1,"a":"new"}', ("b",)), OLD, State(b'{"id":1,"a":"new","b":"old"}')),
        (Event("u", b'{"id":1,"a":"new"}'), OLD, State(b'{"id":1,"a":"new"}')),
        (Event("c", b'{"id":1,"a":"new"}', ("b",)), OLD, State(b'{"id":1,"a":"new"}', (), ("b",))),
        (Event("r", b'{"id":1}'), OLD, State(b'{"id":1}')),
        (Event("u", b'{"id":1,"a":"new"}', ("b",)), None, State(b'{"id":1,"a":"new"}', ("b",))),
        (Event("u", b'{"id":1}', ("b",)), State(b'{"id":1}', ("b",)), State(b'{"id":1}', ("b",))),
        (Event("u", b'{"id":1}', ("b",)), State(b'{"id":1}'), State(b'{"id":1}', (), ("b",))),
        (Event("u", b'{"id":1}', (), ("a",)), OLD, State(b'{"id":1}', (), ("a",))),
    ],
)
def test_one_record_changes_a_key_as_the_page_on_large_values_says(
    event: Event, before: State | None, wanted: State
) -> None:
    assert after(event, before) == wanted


def test_flat_records_say_in_headers_what_envelopes_say_in_their_source() -> None:
    records: list[LogRecord] = [
        LogRecord("t", 0, 0, 0, b'{"id":1}', b'{"id":1,"a":1,"b":2}', [("__op", b"c"), *PLACE]),
        LogRecord("t", 0, 1, 0, b'{"id":1}', b'{"id":1,"a":9}', [
            ("__op", b"u"), *PLACE, ("__unchanged", b'["b"]'), ("__reselected", b'["a"]')
        ]),
        LogRecord("t", 0, 2, 0, b'{"id":1}', None, [("__op", b"d"), *PLACE]),
    ]  # fmt: skip

    states = states_after(records, None, FLAT)

    assert [state.change.row for state in states] == [b'{"id":1,"a":1,"b":2}', b'{"id":1,"a":9,"b":2}', None]
    assert {(state.change.schema_id, state.change.commit_lsn, state.xid) for state in states} == {
        ("5c4e4a1d", 16, None)
    }


@pytest.mark.parametrize(
    ("form", "value", "headers", "reason"),
    [
        (JSON, b"no json", None, "JSON is malformed"),
        (JSON, b'{"op":"c"}', None, "missing required field"),
        (JSON, b'{"after":null,"op":"u","ts_ms":1,"source":{"epoch":1,"commit_lsn":1}}', None, "op 'u' without a row"),
        (JSON, b'{"after":{},"op":"x","ts_ms":1,"source":{"epoch":1,"commit_lsn":1}}', None, "op 'x' with a row"),
        (FLAT, b'{"id":1}', None, "__op"),
        (FLAT, b'{"id":1}', [("__op", b"d"), *PLACE], "op 'd' with a row"),
        (FLAT, b"[1]", [("__op", b"c"), *PLACE], "Expected `object`"),
    ],
)
def test_record_of_another_program_is_named(form: Format, value: bytes, headers: Headers | None, reason: str) -> None:
    with pytest.raises(TopicMismatch, match=f"record 17 of t-3 is not a Tailrace event: .*{reason}"):
        states_after([LogRecord("t", 3, 17, 0, b"{}", value, headers)], None, form)


def test_record_without_a_key_is_named() -> None:
    with pytest.raises(TopicMismatch, match="it has no key"):
        states_after([LogRecord("t", 3, 17, 0, None, b"{}", None)], None)
