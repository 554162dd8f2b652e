"""A cut is divided: each record is in exactly one piece, in partition order, and pieces are small."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cdc.config.settings import Warehouse
from cdc.errors import LakeOverloaded, SparkFailed
from sinks.warehouse.cut_plan import FAILURES_MAX, CutSize, begun_again, bytes_max, failed, left_behind, out_of_memory
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.first_load import loads_in, whole_log
from sinks.warehouse.lake.cut_commit import CutCommit
from sinks.warehouse.lake.cut_position import START, CutPosition
from sinks.warehouse.lake.manifest import ManifestStore, TableState
from sinks.warehouse.log.cut_pieces import Chunk, Piece, divide, parts_of, rest_of, topics_of, whole
from sinks.warehouse.log.lake_columns import LakeColumn, LakeTable
from sinks.warehouse.log.span import Span, is_any, next_span
from sinks.warehouse.log.table_choice import Choice
from sinks.warehouse.log.table_commit import Names
from tests.fixtures.lake.lake_events import cut
from tests.fixtures.lake.lake_files import manifest, pending, position

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cdc.model.progress_record import Cut
    from sinks.warehouse.lake.committer import Committer
    from sinks.warehouse.log.span_reading import SpanReader

TOPIC = "shop.public.t"
SETTINGS = Warehouse(path="lake")
LISTS = st.lists(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 900)), max_size=12), min_size=1, max_size=5)


def span_of(lists: list[list[tuple[int, int]]]) -> tuple[Span, list[Chunk]]:
    """A partition for each list of (records, bytes), and its chunks; topics have up to two partitions."""
    chunks: list[Chunk] = []
    accounts = {}
    for index, sizes in enumerate(lists):
        partition = (f"shop.public.t{index // 2}", index % 2)
        total, end = sum(records for records, _ in sizes), 0
        for records, size in sizes:
            begin, end = end, end + records
            chunks.append(Chunk(begin / total, partition, end, records, size))
        accounts[partition] = (end, total)
    return Span(START, CutPosition(1, 9, 9, 1, accounts, {}, 0), 1), chunks


@given(LISTS, st.integers(1, 2_000))
def test_every_record_is_in_one_piece_in_the_order_of_its_partition(
    lists: list[list[tuple[int, int]]], limit: int
) -> None:
    span, chunks = span_of(lists)

    pieces = divide(chunks, limit)
    parts = [part.ranges for part in parts_of(span, pieces)] if pieces else []

    for partition, (begin, end, records) in span.ranges.items():
        ranges = [part[partition] for part in parts if partition in part]
        assert [one[0] for one in ranges] == [begin, *(one[1] for one in ranges[:-1])]
        assert ranges[-1][1] == end
        assert sum(one[2] for one in ranges) == records
    sizes = {(chunk.partition, chunk.end): chunk.size for chunk in chunks}
    for part in parts:
        inside = [
            size
            for (partition, end), size in sizes.items()
            if partition in part and part[partition][0] < end <= part[partition][1]
        ]
        assert sum(inside) <= limit or len(inside) == 1


@given(LISTS, st.integers(1, 2_000), st.data())
def test_what_is_left_behind_written_pieces_is_divided_again_without_loss(
    lists: list[list[tuple[int, int]]], limit: int, data: st.DataObject
) -> None:
    span, chunks = span_of(lists)
    pieces = divide(chunks, limit)
    kept = pieces[: data.draw(st.integers(0, len(pieces)))]

    rest = rest_of(span, kept)

    taken = sum(records for piece in kept for _, records in piece.values())
    assert taken + rest.records == span.records
    again = [*kept, whole(rest)] if rest.ranges else kept
    assert sum(part.records for part in parts_of(span, again)) == span.records or not again


def test_a_cut_is_shortened_to_what_fits_and_divided_only_when_it_cannot_be() -> None:
    settings = structs.replace(SETTINGS, bytes_max=1_000)

    def span(records: int) -> Span:
        return span_of([[(records, 1)]])[0]

    def measure(found: Span) -> Sequence[Chunk]:
        tenth = found.records * 10
        chunks = [Chunk(n / 10, (TOPIC, 0), n, found.records // 10, tenth) for n in range(10)]
        return () if 10 * tenth <= 1_000 else chunks

    size = CutSize(settings)
    shortened, pieces = size.bounded(span(1_000), measure, span)

    assert (shortened.records, pieces) == (8, ())
    assert size.records_max == 16, "it grows again while cuts fit"
    single, divided = CutSize(settings).bounded(span(1_000), measure, lambda _: span(1_000))
    assert single.records == 1_000, "one transaction is never cut"
    assert len(divided) == 10


def test_bytes_of_a_cut_follow_from_the_memory_of_spark_and_halve_with_each_failure() -> None:
    assert bytes_max(SETTINGS) == 256 << 20
    assert bytes_max(SETTINGS, 2) == 64 << 20
    assert bytes_max(SETTINGS, 99) == 4 << 20
    assert bytes_max(structs.replace(SETTINGS, bytes_max=100), 3) == 100


class Tables:
    """Versions and applied cuts of tables: what a committer knows after a crash."""

    def __init__(self, **applied: int) -> None:
        self.applied_to = applied

    def version(self, _table: str) -> int:
        return 9

    def applied(self, _table: str, app: str) -> int | None:
        return self.applied_to.get(app.removeprefix("tailrace.").replace(".", "_"))


class Measured:
    """A reader that finds chunks of one record and one byte each in the rest of a span."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def chunks(self, span: Span, *, bytes_max: int) -> list[Chunk]:
        self.asked.append((span.records, bytes_max))
        return [
            Chunk(0.0, partition, end, 1, bytes_max)
            for partition, (begin, stop, _) in span.ranges.items()
            for end in range(begin + 1, stop + 1)
        ]


def test_second_attempt_after_a_failure_keeps_written_pieces_and_divides_the_rest() -> None:
    span = span_of([[(6, 6)]])[0]
    topic = next(iter(span.ranges))[0]
    choice = Choice({}, {}, {topic: "archive/t"}, frozenset())
    begun = structs.replace(pending(3), pieces=({f"{topic}-0": (2, 2)}, {f"{topic}-0": (6, 4)}), failures=1)
    reader = Measured()

    again = begun_again(
        begun, span, choice, cast("Committer", Tables(archive=3)), None, cast("SpanReader", reader), SETTINGS
    )

    assert again.pieces[0] == begun.pieces[0], "it is written"
    assert [piece[f"{topic}-0"] for piece in again.pieces[1:]] == [(3, 1), (4, 1), (5, 1), (6, 1)]
    assert reader.asked == [(4, 128 << 20)]
    assert again.attempts == 1


def test_piece_that_had_nothing_to_write_is_not_divided_again_behind_one_that_is_written() -> None:
    span = span_of([[(6, 6)]])[0]
    topic = next(iter(span.ranges))[0]
    choice = Choice({}, {}, {topic: "archive/t"}, frozenset())
    pieces = ({f"{topic}-0": (2, 2)}, {f"{topic}-0": (4, 2)}, {f"{topic}-0": (6, 2)})
    begun = structs.replace(pending(3), pieces=pieces, failures=1)

    again = begun_again(
        begun, span, choice, cast("Committer", Tables(archive_1=3)), None, cast("SpanReader", Measured()), SETTINGS
    )

    assert again.pieces[:2] == pieces[:2], "the first had only tombstones"
    assert sum(records for piece in again.pieces for _, records in piece.values()) == 6


def test_first_attempt_after_a_crash_takes_the_same_pieces() -> None:
    span = span_of([[(6, 6)]])[0]
    topic = next(iter(span.ranges))[0]
    begun = structs.replace(pending(3), pieces=({f"{topic}-0": (2, 2)}, {f"{topic}-0": (6, 4)}))

    again = begun_again(
        begun, span, Choice({}, {}, {}, frozenset()), cast("Committer", Tables()), None,
        cast("SpanReader", Measured()), SETTINGS,
    )  # fmt: skip

    assert again.pieces == begun.pieces
    assert topics_of(begun.pieces[0]) == {topic}


def test_cut_that_fails_again_and_again_stops_and_names_memory(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    store.begin(pending(1))
    for _ in range(FAILURES_MAX - 1):
        failed(store, SparkFailed("Spark's JVM is gone: out of memory"), SETTINGS, "")

    with pytest.raises(LakeOverloaded, match=r"failed 5 times.*16 MiB.*out of memory") as stopped:
        failed(store, SparkFailed("Spark's JVM is gone: out of memory"), SETTINGS, "")

    assert (stopped.value.state, stopped.value.exit_code, stopped.value.retry) == ("MISCONFIGURED", 3, "operator")
    assert "`memory` of the sink (now 2g)" in stopped.value.hint


def test_failures_of_other_servers_never_stop_a_cut(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    store.begin(pending(1))
    error = SparkFailed("Spark failed: org.apache.kafka.common.errors.TimeoutException")
    error.counts = False

    for _ in range(2 * FAILURES_MAX):
        failed(store, error, SETTINGS, "")

    assert store.pending() == pending(1)


def test_view_that_spark_cannot_compute_is_left_behind_until_memory_or_its_sql_changes(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    store.begin(pending(1))
    for view in ("other", "big", "big"):
        failed(store, SparkFailed("Spark's JVM is gone"), SETTINGS, view)
    begun = store.pending()
    assert begun is not None

    assert left_behind("big", "text", begun, None, SETTINGS) == out_of_memory(SETTINGS)
    assert begun.failures == 0, "the cut itself did not fail"
    assert left_behind("other", "text", begun, None, SETTINGS) == "", "once may be chance"
    assert left_behind("small", "text", begun, None, SETTINGS) == ""
    assert "memory = 2g" in out_of_memory(SETTINGS)


def test_finished_pieces_stay_whole_when_the_rest_is_divided_again() -> None:
    span = span_of([[(6, 6)]])[0]
    topic = next(iter(span.ranges))[0]
    pieces = ({f"{topic}-0": (2, 2)}, {f"{topic}-0": (6, 4)})
    begun = structs.replace(pending(3), pieces=pieces, failures=1, written=1)
    reader = Measured()

    again = begun_again(
        begun, span, Choice({}, {}, {topic: "archive/t"}, frozenset()), cast("Committer", Tables()), None,
        cast("SpanReader", reader), SETTINGS,
    )  # fmt: skip

    assert again.pieces[0] == pieces[0], "it held only tombstones, so that no table shows it"
    assert (again.written, reader.asked) == (1, [(4, 128 << 20)])


def test_finished_piece_is_durable_with_its_tables_and_takes_back_a_failure(tmp_path: Path) -> None:
    store, lake = ManifestStore(tmp_path), DeltaRs(tmp_path)
    begun = structs.replace(pending(1), pieces=({f"{TOPIC}-0": (1, 1)}, {f"{TOPIC}-0": (2, 1)}), failures=2, attempts=3)
    commit = CutCommit(store, lake, begun)
    commit.begin_piece(0)
    commit.archive("archive/t", pa.table({"id": [1]}), schema_id="one")
    commit.end_piece(0)
    commit.begin_piece(1)
    commit.archive("archive/t", pa.table({"id": [2]}), schema_id="one")

    found = store.pending()
    assert found is not None
    assert (found.written, found.failures, found.attempts) == (1, 1, 0)
    again = CutCommit(store, lake, found)
    assert again.version("archive/t") == 0, "the second piece is not finished"
    again.begin_piece(1)
    assert again.archive("archive/t", pa.table({"id": [2]}), schema_id="one") == 1, "it is recognised"
    again.end_piece(1)
    assert again.publish(name="shop", committed_at_us=1).tables["archive/t"].rows == 2


def test_only_a_cut_in_pieces_loads_tables_and_only_those_without_rows() -> None:
    def table(name: str, key: str = "bigint") -> LakeTable:
        column = LakeColumn("id", key, "integer", key=True)
        return LakeTable(f"public.{name}", f"shop.public.{name}", "one", ("id",), (column,))

    tables = {one.topic: one for one in map(table, ("new", "empty", "full"))}
    tables |= {"shop.public.inexact": table("inexact", "double")}
    tables |= {"shop.public.keyless": LakeTable("public.keyless", "shop.public.keyless", "one", (), ())}
    names = {topic: Names.of(one, history=False) for topic, one in tables.items()}
    choice = Choice(tables, names, {}, frozenset())
    held = {
        name: TableState(version=1, schema_id="one", rows=rows)
        for topic, rows in (("shop.public.empty", 0), ("shop.public.full", 3))
        for name in names[topic].all
    }
    before = structs.replace(manifest(1), tables=held)
    piece: Piece = {f"{topic}-0": (2, 2) for topic in tables}

    assert loads_in(choice, before, [piece]) == ("shop.public.empty", "shop.public.new")
    assert loads_in(choice, before, []) == ()
    assert loads_in(choice, None, [piece]) == ("shop.public.empty", "shop.public.full", "shop.public.new")


def test_first_load_takes_the_log_up_to_its_end_or_to_the_next_repair() -> None:
    log = [(2 * number, cut(100 + number, {f"{TOPIC}-0": (number, number)})) for number in range(1, 8)]
    asked: list[int] = []

    def read(start: CutPosition) -> list[tuple[int, Cut]]:
        asked.append(start.cuts_offset)
        return [one for one in log if one[0] >= start.cuts_offset][:3]

    first = next_span(replace(position(1), accounts={}, cuts_offset=0, end_lsn=100), log[:1], events_max=1)
    assert first is not None
    whole_span = whole_log(read, first, is_any)

    assert (whole_span.start, whole_span.end.end_lsn, whole_span.records) == (first.start, 107, 7)
    assert len(asked) == 3
    log[3:] = [(offset, structs.replace(one, epoch=2, full=True)) for offset, one in log[3:]]
    assert whole_log(read, first, is_any).end.end_lsn == 103
