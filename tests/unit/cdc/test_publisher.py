"""One Kafka transaction of events, progress and cut, in the order that exactly-once delivery needs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdc.errors import OutcomeUnknown, ProducerFenced
from cdc.lsn import Lsn
from cdc.model.change_records import Record, StreamPosition, TopicBuffer
from cdc.model.progress_record import Cut, Identity, Progress, SchemaRecord
from cdc.model.table_facts import CatalogScope, TableRecord
from cdc.progress.record_format import catalog_key, decode, identity_key, progress_key, sentinel_key, table_key
from cdc.publish.publisher import FULL_CUT_RECORDS, FULL_CUT_S, RING, RING_MAX, KafkaPublisher
from tests.fixtures.capture.memory_log import MemoryLog, ring
from tests.fixtures.servers import customer_table
from tests.fixtures.servers.executors import Scripted, When
from tests.fixtures.servers.manual_clock import ManualClock

_TOPIC = customer_table.TOPIC
_PROGRESS, _CUTS, _SCHEMA = "shop.__progress", "shop.__cuts", "shop.__schema"
_IDENTITY = Identity(
    system_identifier="7300000000000000000",
    timeline=1,
    database="shop_db",
    database_oid=16000,
    slot="cdc_shop",
    publication="cdc_shop",
    publication_oid=16001,
    server_version=180006,
    partitions={_TOPIC: 2},
    topic_ids={_TOPIC: "abc"},
)


class Publishing:
    """A publisher on an empty log with the ledger open; `commits` moves the position by 10 each time."""

    def __init__(self, log: MemoryLog | None = None, *, size: int = 1, when: When = "at once") -> None:
        self.log = log or MemoryLog(partition_counts={_TOPIC: 2})
        self.clock = ManualClock()
        self.producers = ring(self.log, size)
        self.producer = self.producers[0]
        self.publisher = KafkaPublisher(
            "shop", self.producers, self.clock, epoch=1, ring=min(size, RING), executor=Scripted(when)
        )
        self.publisher.fence()
        for partition, (_, high) in self.log.end_offsets([_TOPIC, _SCHEMA]).items():
            self.publisher.ledger.open(partition, end_offset=high, before=None)
        self.end_lsn = 100

    def write(self, *partitions: Sequence[Record], schemas: Sequence[SchemaRecord] = ()) -> None:
        buffer = TopicBuffer(_TOPIC, 2)
        for index, records in enumerate(partitions):
            buffer.partitions[index] += records
        self.publisher.write([buffer], schemas)
        assert buffer.partitions == [[], []]

    def commit(self) -> None:
        self.end_lsn += 10
        self.publisher.commit(StreamPosition(Lsn(self.end_lsn)), Lsn(self.end_lsn - 1))

    def submit(self) -> None:
        self.end_lsn += 10
        self.publisher.submit(StreamPosition(Lsn(self.end_lsn)), Lsn(self.end_lsn - 1))

    @property
    def cuts(self) -> list[Cut]:
        return [decode(stored.value, Cut, _CUTS) for stored in self.log.records(_CUTS) if stored.value is not None]

    @property
    def values(self) -> list[tuple[int, bytes | None]]:
        return [(stored.partition, stored.value) for stored in self.log.records(_TOPIC)]


def _records(*values: str) -> list[Record]:
    return [(b"key", value.encode(), None) for value in values]


def test_nothing_is_visible_before_the_commit_and_everything_after() -> None:
    publishing = Publishing()

    publishing.write(_records("a", "b"), _records("c"))
    before = publishing.values
    publishing.commit()

    assert before == []
    assert publishing.values == [(0, b"a"), (0, b"b"), (1, b"c")]
    progress = publishing.log.last_records(_PROGRESS)[progress_key("shop")][1]
    assert decode(progress, Progress, _PROGRESS).end_lsn == 110
    assert publishing.cuts[-1].end_lsn == 110


def test_commit_reports_flushes_checks_and_only_then_commits() -> None:
    publishing = Publishing()

    publishing.write(_records("a", "b"))
    publishing.commit()

    assert publishing.producer.calls == [
        "init",
        "begin",
        f"produce {_TOPIC}-0 1",
        f"produce {_TOPIC}-0 1 reported",
        f"produce {_CUTS}-0 1",
        f"produce {_PROGRESS}-0 1",
        "flush",
        f"produce {_CUTS}-0 1",
        "flush",
        "commit",
    ]


def test_order_per_partition_survives_many_writes() -> None:
    """The last record of each partition is held back for the report; it must not be overtaken."""
    publishing = Publishing()

    for number in range(5):
        publishing.write(_records(f"a{number}", f"b{number}"), _records(f"c{number}") if number % 2 else [])
    publishing.commit()

    first = [value for index, value in publishing.values if index == 0]
    assert first == [f"{letter}{number}".encode() for number in range(5) for letter in "ab"]
    assert [value for index, value in publishing.values if index == 1] == [b"c1", b"c3"]


def test_headers_and_tombstones_arrive_as_they_are() -> None:
    publishing = Publishing()

    publishing.write([(b"k", b"v", [("__debezium.newkey", b"{}")]), (b"k", None, None)])
    publishing.commit()

    stored = publishing.log.records(_TOPIC)
    assert [(s.key, s.value, s.headers) for s in stored] == [
        (b"k", b"v", [("__debezium.newkey", b"{}")]),
        (b"k", None, []),
    ]


def test_schema_record_is_in_the_transaction_of_the_first_row_that_needs_it() -> None:
    publishing = Publishing()
    record = customer_table.schema().record(_TOPIC, 1, Lsn(5))

    publishing.write(_records("a", "b"), schemas=[record])
    publishing.commit()

    assert publishing.producer.calls.count("commit") == 1
    (stored,) = publishing.log.records(_SCHEMA)
    assert stored.key == b'{"table":"public.customers","schema_id":"%b"}' % record.schema_id.encode()
    assert publishing.cuts[-1].changed["shop.__schema-0"][:2] == (1, 1)


def test_record_of_another_writer_stops_the_commit() -> None:
    publishing = Publishing()
    publishing.write(_records("a", "b"))
    publishing.log.append((_TOPIC, 0), (b"x", b"foreign", None), transaction=-1)

    with pytest.raises(OutcomeUnknown, match=r"got offset 2; expected offset 1") as caught:
        publishing.commit()

    assert caught.value.facts == {"topic": _TOPIC, "partition": 0}
    assert "commit" not in publishing.producer.calls
    assert publishing.values == []


def test_missing_delivery_report_stops_the_commit() -> None:
    publishing = Publishing()
    publishing.write(_records("a"))
    publishing.producer.silent = True

    with pytest.raises(OutcomeUnknown):
        publishing.commit()

    assert "commit" not in publishing.producer.calls


def test_offsets_stay_right_over_many_transactions_because_markers_are_counted() -> None:
    publishing = Publishing()

    for number in range(4):
        publishing.write(_records("a"), _records("b") if number == 2 else [])
        publishing.commit()

    changed = [cut.changed for cut in publishing.cuts]
    assert [map_[f"{_TOPIC}-0"][:2] for map_ in changed] == [(1, 1), (3, 2), (5, 3), (7, 4)]
    assert [map_[f"{_TOPIC}-1"][:2] for map_ in changed if f"{_TOPIC}-1" in map_] == [(0, 0), (1, 1)]


def test_first_cut_and_every_thousandth_have_all_partitions() -> None:
    publishing = Publishing()

    for _ in range(2 * FULL_CUT_RECORDS + 1):
        publishing.commit()

    full = [index for index, cut in enumerate(publishing.cuts) if cut.full]
    assert full == [0, FULL_CUT_RECORDS, 2 * FULL_CUT_RECORDS]
    assert set(publishing.cuts[0].changed) == {f"{_TOPIC}-0", f"{_TOPIC}-1", f"{_SCHEMA}-0"}


def test_cut_is_full_again_after_ten_seconds() -> None:
    publishing = Publishing()

    for step_s in (0, FULL_CUT_S - 1, 1, 0):
        publishing.clock.now_s += step_s
        publishing.commit()

    assert [cut.full for cut in publishing.cuts] == [True, False, True, False]


def test_empty_commit_carries_progress_alone() -> None:
    publishing = Publishing()
    publishing.commit()

    publishing.commit()

    assert publishing.cuts[-1].changed == {}
    assert publishing.cuts[-1].end_lsn == 120
    assert publishing.values == []


def test_position_inside_a_source_transaction_is_in_progress_and_cut() -> None:
    publishing = Publishing()

    publishing.publisher.commit(StreamPosition(Lsn(100), Lsn(120), 7), Lsn(90))

    progress = decode(publishing.log.last_records(_PROGRESS)[progress_key("shop")][1], Progress, _PROGRESS)
    assert (progress.end_lsn, progress.commit_lsn, progress.next_ordinal, progress.verified_lsn) == (100, 120, 7, 90)
    cut = publishing.cuts[-1]
    assert (cut.end_lsn, cut.commit_lsn, cut.next_ordinal, cut.verified_lsn) == (100, 120, 7, 90)


def test_identity_and_tables_are_written_when_they_are_introduced_and_not_again() -> None:
    publishing = Publishing()
    publishing.publisher.tables = {"public.customers": "complete"}
    publishing.publisher.introduce(_IDENTITY, Lsn(77))

    publishing.commit()
    publishing.commit()

    keys = [stored.key for stored in publishing.log.records(_PROGRESS)]
    assert keys == [identity_key("shop"), progress_key("shop"), progress_key("shop")]
    first, second = publishing.cuts
    assert (first.full, first.tables, first.since_lsn) == (True, {"public.customers": "complete"}, 77)
    assert (second.full, second.tables) == (False, {})


def test_notes_of_the_catalog_are_written_with_the_next_position_and_once() -> None:
    publishing = Publishing()
    scope = CatalogScope(lsn=1, xid=2, all_tables=False, schemas=(), selected=())

    publishing.publisher.note(scope, {"public.b": None, "public.a": TableRecord(facts=None)})
    publishing.commit()
    publishing.commit()

    stored = publishing.log.records(_PROGRESS)
    assert [(one.key, one.value is None) for one in stored] == [
        (catalog_key("shop"), False),
        (table_key("shop", "public.a"), False),
        (table_key("shop", "public.b"), True),
        (progress_key("shop"), False),
        (progress_key("shop"), False),
    ]


def test_sentinel_is_a_transaction_of_its_own_of_every_producer() -> None:
    """So a marker that a single broker has lost does not hide the cut index for good."""
    publishing = Publishing(size=RING)

    publishing.publisher.write_sentinel(b"nonce")

    assert publishing.log.last_records(_PROGRESS)[sentinel_key("shop")][1] == b"nonce"
    for producer in publishing.producers:
        assert producer.calls == [
            "init",
            "begin",
            f"produce {_PROGRESS}-0 1",
            f"produce {_CUTS}-0 1",
            "flush",
            "commit",
        ]
    assert not publishing.publisher.is_open


def test_older_publisher_can_commit_nothing_once_a_newer_one_has_fenced_it() -> None:
    older = Publishing()
    older.write(_records("a"))
    Publishing(older.log)

    with pytest.raises(ProducerFenced):
        older.commit()

    assert older.values == []


def test_producers_take_turns() -> None:
    publishing = Publishing(size=RING)

    for value in "abcd":
        publishing.write(_records(value))
        publishing.commit()

    assert [producer.calls.count("commit") for producer in publishing.producers] == [2, 1, 1]
    assert publishing.values == [(0, value.encode()) for value in "abcd"]


def test_start_fences_every_producer_that_a_version_may_have_and_keeps_its_own() -> None:
    publishing = Publishing(size=RING_MAX)
    publishing.publisher.write_sentinel(b"nonce")

    assert all(producer.calls[0] == "init" for producer in publishing.producers)
    assert all(producer.calls.count("commit") == 1 for producer in publishing.producers)
    assert ["close" in producer.calls for producer in publishing.producers] == [False] * RING + [True] * (
        RING_MAX - RING
    )


def test_next_batch_is_written_before_the_commit_of_the_one_before() -> None:
    publishing = Publishing(size=2, when="late")
    publishing.write(_records("a"))
    publishing.submit()

    publishing.publisher.wait_delivered()
    publishing.write(_records("b"))

    assert "commit" not in publishing.producers[0].calls
    assert publishing.values == []


def test_nothing_is_written_before_the_records_of_the_batch_before_are_acknowledged() -> None:
    publishing = Publishing(size=2, when="late")
    publishing.write(_records("a"))
    publishing.submit()

    assert not publishing.publisher.ready
    with pytest.raises(AssertionError, match="not delivered"):
        publishing.write(_records("b"))


def test_batch_waits_for_a_free_producer() -> None:
    publishing = Publishing(size=2, when="late")
    for value in "ab":
        publishing.write(_records(value))
        publishing.submit()
        publishing.publisher.wait_delivered()

    full = [publishing.publisher.full, publishing.publisher.ready]
    publishing.publisher.settle()

    assert full == [True, False]
    assert (publishing.publisher.full, publishing.publisher.ready) == (False, True)
    assert publishing.values == [(0, b"a")]


def test_transaction_is_not_committed_unless_the_one_before_is_known_to_be() -> None:
    publishing = Publishing(size=2, when="late")
    publishing.producers[0].next_commit = "lost"
    for value in "ab":
        publishing.write(_records(value))
        publishing.submit()
        publishing.publisher.wait_delivered()

    for _ in "ab":
        with pytest.raises(OutcomeUnknown):
            publishing.publisher.settle()
        publishing.publisher._submitted.popleft()

    assert "commit" not in publishing.producers[1].calls
    assert publishing.values == []


def test_closing_without_a_commit_publishes_nothing() -> None:
    publishing = Publishing()
    publishing.write(_records("a", "b"))

    publishing.publisher.close()

    assert publishing.values == []
    assert publishing.cuts == []


def test_odd_producer_is_reported_as_worn() -> None:
    publishing = Publishing(size=2)
    assert publishing.publisher.retire_reason is None

    publishing.producers[-1].suspicious = "the last commit was retried"

    assert publishing.publisher.retire_reason == "the last commit was retried"


def test_is_open_says_whether_something_is_uncommitted() -> None:
    publishing = Publishing()
    opened = [publishing.publisher.is_open]

    publishing.write(_records("a"))
    opened.append(publishing.publisher.is_open)
    publishing.commit()
    opened.append(publishing.publisher.is_open)

    assert opened == [False, True, False]


def test_same_schema_gives_the_same_bytes() -> None:
    """Guarantee G9 for the schema topic: a restart repeats the records; a compacted reader sees no change."""
    logs = []
    for _ in range(2):
        publishing = Publishing()
        publishing.write(schemas=[customer_table.schema().record(_TOPIC, 1, Lsn(5))])
        publishing.commit()
        logs.append([(stored.key, stored.value) for stored in publishing.log.records(_SCHEMA)])

    assert logs[0] == logs[1]
