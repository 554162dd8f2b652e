"""`cdc tail`: its options, the selected events, their order and format."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click
import pytest

from cdc.cli import event_text
from cdc.cli.tail_command import choose, parse_key, parse_ops, parse_start
from cdc.cutindex.log_start import AtLsn, AtOffset, AtTime, Beginning, Now
from cdc.errors import TopicMismatch, UsageError
from cdc.inspect.log_reading import HELD_RECORDS_MAX, Event, EventMerger, Selection, Table, follow, parse_event
from cdc.lsn import Lsn
from cdc.model.change_records import Headers
from cdc.model.key_match import key_matches
from cdc.model.log_record import LogRecord
from tests.fixtures.capture.memory_log import MemoryLog
from tests.fixtures.servers.manual_clock import ManualClock

TOPIC = "shop.public.orders"
TABLES = [Table("public.orders", TOPIC, ("id",)), Table("sales.orders", "shop.sales.orders", ("id",))]
AT_MS = 1_700_000_000_123


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def record(
    op: str = "c",
    *,
    key: Mapping[str, object] | None = None,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
    commit_lsn: int = 100,
    ordinal: int = 1,
    partition: int = 0,
    offset: int = 0,
    headers: Headers | None = None,
    **source: object,
) -> LogRecord:
    value = {
        "before": before,
        "after": after,
        "source": {"schema": "public", "table": "orders", "epoch": 1, "commit_lsn": commit_lsn, "ordinal": ordinal}
        | source,
        "op": op,
        "ts_ms": AT_MS,
        "transaction": None,
    }
    key_bytes = json.dumps(key or {"id": 1}).encode()
    return LogRecord(TOPIC, partition, offset, AT_MS + 5, key_bytes, json.dumps(value).encode(), headers)


def tombstone(*, partition: int = 0, offset: int = 1) -> LogRecord:
    return LogRecord(TOPIC, partition, offset, AT_MS, b'{"id":1}', None, None)


def shown(found: LogRecord, *, width: int = 0, with_offset: bool = False, today: str = "2023-11-14") -> str:
    shape = event_text.layout(TABLES[:1], width=width, with_offset=with_offset)
    return click.unstyle(event_text.line(parse_event(found, (0, 0, 0)), shape, today))


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Beginning()),
        ("now", Now()),
        ("0/1B014F8", AtLsn(Lsn(0x1B014F8))),
        ("16/b374d848", AtLsn(Lsn.parse("16/B374D848"))),
        ("2023-11-14T22:13:20+00:00", AtTime(1_700_000_000_000)),
        ("2023-11-14 22:13:20", AtTime(1_700_000_000_000)),
        ("2023-11-14", AtTime(1_699_920_000_000)),
        ("offset:shop.public.orders:3:17", AtOffset(("shop.public.orders", 3), 17)),
    ],
)
def test_from_accepts_every_kind_of_position(text: str, start: object) -> None:
    assert parse_start(text) == start


def test_from_takes_a_duration_ago() -> None:
    start = parse_start("10m")

    assert isinstance(start, AtTime)
    assert abs(time.time() - 600 - start.ts_ms / 1000) < 60


@pytest.mark.parametrize(
    "text", ["", "yesterday", "0/", "0/123456789", "offset:t", "offset:t:x:1", "offset::0:1", "10y", "0001-01-01", "-1"]
)
def test_from_refuses_anything_else_and_says_what_it_takes(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_start(text)

    assert "beginning, now, an LSN" in refused.value.hint


def test_ops_are_a_list() -> None:
    assert parse_ops(None) == frozenset()
    assert parse_ops("c, d") == {"c", "d"}
    for wrong in ("x", "", "c,insert"):
        with pytest.raises(UsageError, match="invalid --op"):
            parse_ops(wrong)


def test_key_is_json_or_plain_text() -> None:
    assert parse_key(None) is None
    assert parse_key('{"id": 7}') == {"id": 7}
    assert parse_key("7") == 7
    assert parse_key("a0eebc99-9c0b") == "a0eebc99-9c0b"
    for wrong in ('{"id": 7', "[1]", "null", "{}", '"a'):
        with pytest.raises(UsageError, match="invalid --key"):
            parse_key(wrong)


def test_a_key_matches_by_some_of_its_columns_or_by_its_only_value() -> None:
    assert key_matches({"id": 7}, b'{"id":7,"region":"eu"}')
    assert key_matches(7, b'{"id":"7"}')
    assert key_matches("eu", b'{"region":"eu"}')
    assert not key_matches(7, b'{"id":7,"region":"eu"}')
    assert not key_matches({"id": 8}, b'{"id":7}')
    assert not key_matches({"nr": 7}, b'{"id":7}')
    assert not key_matches({"id": 1}, b'{"id":true}')
    assert not key_matches(7, None)


def test_tables_are_chosen_by_full_name_short_name_topic_and_pattern() -> None:
    def names(*asked: str) -> list[str]:
        return [table.name for table in choose(TABLES, asked, Now())]

    assert names() == ["public.orders", "sales.orders"]
    assert names("public.orders") == ["public.orders"]
    assert names("orders") == ["public.orders", "sales.orders"]
    assert names("sales.*", "public.orders", "orders") == ["sales.orders", "public.orders"]
    assert names("shop.sales.orders") == ["sales.orders"]


def test_an_unknown_table_is_answered_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no captured table matches 'public\.order'") as refused:
        choose(TABLES, ["public.order"], Now())

    assert "public.orders, sales.orders" in refused.value.hint
    assert refused.value.command == "cdc tail public.orders"


def test_an_offset_names_its_topic_so_tables_are_refused_beside_it() -> None:
    assert choose(TABLES, [], AtOffset((TOPIC, 0), 5)) == TABLES[:1]
    with pytest.raises(UsageError, match="already names the topic"):
        choose(TABLES, ["orders"], AtOffset((TOPIC, 0), 5))
    with pytest.raises(UsageError, match="no captured table has the topic"):
        choose(TABLES, [], AtOffset(("shop.__cuts", 0), 5))


def test_an_offset_outside_of_the_log_is_refused_with_its_range() -> None:
    log = MemoryLog()
    log.append((TOPIC, 0), None, 1)

    class Reader(MemoryLog):
        def offsets_for_time(self, partitions: object, timestamp_ms: int) -> dict[tuple[str, int], int | None]:
            return {}

    reader = Reader(log.partitions)
    assert Selection(AtOffset((TOPIC, 0), 1)).offsets(reader, "shop", [TOPIC]) == {(TOPIC, 0): 1}
    with pytest.raises(UsageError, match="expected 0 to 1"):
        Selection(AtOffset((TOPIC, 0), 2)).offsets(reader, "shop", [TOPIC])
    with pytest.raises(UsageError, match="has no partition 1"):
        Selection(AtOffset((TOPIC, 1), 0)).offsets(reader, "shop", [TOPIC])


def test_a_tombstone_goes_with_its_delete() -> None:
    def kept(selection: Selection) -> list[bool]:
        events = EventMerger()
        events.add([record("d", before={"id": 1}, commit_lsn=100), tombstone()])
        return [selection.wants(event) for event in events.flush()]

    assert kept(Selection(Beginning())) == [True, True]
    assert kept(Selection(Beginning(), key=1)) == [True, True]
    assert kept(Selection(Beginning(), key=2)) == [False, False]
    assert kept(Selection(AtLsn(Lsn(100)))) == [True, True]
    assert kept(Selection(AtLsn(Lsn(101)))) == [False, False]
    assert kept(Selection(AtTime(AT_MS + 1))) == [False, False]
    assert kept(Selection(Beginning(), ops=frozenset("d"))) == [True, False]


def test_a_tombstone_whose_delete_was_not_read_is_kept_only_without_conditions() -> None:
    event = parse_event(tombstone(), (0, 0, 0))

    assert Selection(Beginning()).wants(event)
    assert not Selection(AtTime(0)).wants(event)
    assert not Selection(Beginning(), key=1).wants(event)


def test_events_of_several_partitions_are_merged_by_position() -> None:
    merger = EventMerger()
    merger.add(
        [record(partition=1, offset=4, commit_lsn=300), record(partition=0, offset=9, commit_lsn=200, ordinal=2)]
    )
    merger.add([record(partition=2, offset=0, commit_lsn=200, ordinal=1), tombstone(partition=0, offset=10)])

    order = [event.record[1:3] for event in merger.flush()]

    assert order == [(2, 0), (0, 9), (0, 10), (1, 4)]


def test_order_within_a_partition_holds_whatever_the_records_say() -> None:
    merger = EventMerger()
    merger.add([record(offset=0, commit_lsn=300), record(offset=1, commit_lsn=100), tombstone(offset=2)])

    assert [event.record[2] for event in merger.flush()] == [0, 1, 2]


def test_the_merger_holds_a_bounded_number_of_records() -> None:
    merger = EventMerger()
    rows = [record(offset=offset, commit_lsn=offset) for offset in range(100)]

    ready: list[Event] = []
    for start in range(0, HELD_RECORDS_MAX + 1000, 100):
        ready += merger.add([row._replace(offset=start + row.offset) for row in rows])

    assert len(ready) == 1000
    assert len(merger.flush()) == HELD_RECORDS_MAX


def test_following_hands_out_what_is_held_as_soon_as_nothing_comes_or_time_is_up() -> None:
    clock = ManualClock()
    batches: list[list[LogRecord]] = [[record(offset=0)], [], [record(offset=1)], [record(offset=2)]]

    class Reader(MemoryLog):
        def read(self, assignments: Any, until: Any = None) -> Iterator[list[LogRecord]]:
            for batch in batches:
                yield batch
                clock.now_s += 0.2

        def offsets_for_time(self, partitions: object, timestamp_ms: int) -> dict[tuple[str, int], int | None]:
            return {}

    handed = [[event.record[2] for event in chunk] for chunk in follow(Reader(), {(TOPIC, 0): 0}, clock)]

    assert handed == [[], [0], [], [1, 2]]


def test_a_foreign_record_is_named_by_its_place() -> None:
    with pytest.raises(TopicMismatch, match=r"record 7 of shop.public.orders-2 is not a Tailrace event"):
        parse_event(LogRecord(TOPIC, 2, 7, 0, b"k", b"hello", None), (0, 0, 0))


def test_a_line_says_when_where_what_and_which_columns() -> None:
    insert = record(after={"id": 1, "total": "9.50", "note": "two words", "at": None})

    assert shown(insert) == '22:13:20.123  0/64       insert public.orders  id=1  total=9.50  note="two words"  at=null'


def test_a_line_of_another_day_has_its_date() -> None:
    assert shown(record(after={"id": 1}), today="").startswith("2023-11-14 22:13:20.123")


def test_an_update_with_the_old_row_shows_what_changed() -> None:
    update = record("u", before={"id": 1, "total": 1, "note": "x"}, after={"id": 1, "total": 2, "note": "x"})

    assert shown(update).endswith("id=1  total: 1 → 2")
    assert shown(record("u", before={"id": 1}, after={"id": 1})).endswith("(no column changed)")


def test_columns_the_event_lacks_are_said() -> None:
    update = record("u", after={"id": 1}, unchanged=["body"], omitted=["blob"])

    assert shown(update).endswith("id=1  body=(unchanged)  blob=(left out: too large)")


def test_a_changed_key_is_said_on_both_sides() -> None:
    gone = record("d", before={"id": 1}, headers=[("__debezium.newkey", b'{"id":9}')])
    come = record("c", key={"id": 9}, after={"id": 9}, headers=[("__debezium.oldkey", b'{"id":1}')])

    assert shown(gone).endswith("id=1  (becomes id=9)")
    assert shown(come).endswith("id=9  (was id=1)")


def test_hostile_values_are_shown_as_escapes_and_cut() -> None:
    hostile = record(after={"id": 1, "a\nb": "\x1b[31mred\u202e", "long": "x" * 500, "list": list(range(100))})

    text = shown(hostile)

    assert "\x1b" not in text
    assert "\n" not in text
    assert "\u202e" not in text
    assert r"a\nb=" in text
    assert len(text) < 250


def test_a_line_is_no_wider_than_the_terminal() -> None:
    wide = record(after={"id": 1, "note": "木" * 30, "more": "y" * 30})

    for width in range(1, 120):
        assert len(shown(wide, width=width)) <= width


def test_topic_partition_and_offset_are_shown_on_request() -> None:
    assert "shop.public.orders-2@17" in shown(record(partition=2, offset=17, after={}), with_offset=True)


def test_a_document_is_the_record_byte_for_byte() -> None:
    found = record(after={"id": 1}, headers=[("__debezium.oldkey", b'{"id":0}')])

    text = event_text.document(parse_event(found, (0, 0, 0)))

    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    assert found[4] is not None
    assert found[5] is not None
    assert found[4] in text
    assert found[5] in text
    assert json.loads(text)["headers"] == {"__debezium.oldkey": '{"id":0}'}


def test_a_tombstone_is_a_document_with_a_null_value_and_no_line() -> None:
    event = parse_event(tombstone(), (0, 0, 0))

    assert json.loads(event_text.document(event))["value"] is None
    assert event_text.line(event, event_text.layout(TABLES, width=0, with_offset=False), "") == ""
