"""Reads the records of a span, topic by topic, from Kafka through Spark to Arrow: one job per topic, two at once.

Spark's own Kafka source reads a large span. The driver reads a small one, and runs prepared plans over it where tasks
run on this machine.

All topics are read between the same two positions, fixed before anything is written, so it does not matter when each
topic is read. The records of a topic are counted before its rows are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from sinks.warehouse.lake.committer import Frame
from sinks.warehouse.log import changes, event_archive, span_batch, span_size, table_outputs
from sinks.warehouse.log.prepared_plans import PreparedPlans, fits
from sinks.warehouse.log.row_outputs import ArrowRows, FrameRows
from sinks.warehouse.log.small_spans import counted, is_small, read_small

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from cdc.kafka.log_reader import LogReader
    from sinks.warehouse.lake.committer import Changes
    from sinks.warehouse.lake.cut_position import Partition, PartitionCount
    from sinks.warehouse.log.cut_pieces import Chunk
    from sinks.warehouse.log.lake_columns import LakeTable
    from sinks.warehouse.log.row_outputs import RowOutputs
    from sinks.warehouse.log.span import Span

_Read = TypeVar("_Read")
_AT_ONCE: Final = 2  # a job of a small cut waits half of its time: for the broker, for the driver's planning


@dataclass(slots=True)
class SpanReader:
    """Reads spans with one session. Long-lived: each of its threads has its own thread in the JVM.

    Attributes:
        spark: the session.
        options: as `sinks.warehouse.log.kafka_access.KafkaAccess.options`, called for each read.
        reader: reads small spans; None if Spark reads everything.
        seen: takes the values of the records of small spans, for traces.
        in_frames: leave rows in the executors, for a distributed committer. `reader` must be None then.
    """

    spark: SparkSession
    options: Callable[[], Mapping[str, str]] = field(repr=False)
    reader: LogReader | None = None
    seen: Callable[[Iterable[bytes | None]], None] | None = None
    in_frames: bool = False
    _plans: PreparedPlans | None = None
    _held: tuple[Span, dict[str, pa.Table]] | None = None
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_AT_ONCE, "lake-read"))

    def chunks(self, span: Span, *, bytes_max: int) -> Sequence[Chunk]:
        """Return the size of a span's records by ranges of offsets; empty if all of them are at most `bytes_max`.

        A span of few records is read completely for this and kept for `rows`. Raises SinkGap if records are missing.
        """
        topics = {topic for topic, _ in span.ranges}
        if self.reader is not None and is_small(span):
            records = read_small(self.reader, span, topics, bytes_max=bytes_max)
            if records is not None:
                self._held = span, records
                return ()
        raw = span_batch.read_span(self.spark, self.options(), span)
        chunks = span_size.chunks(raw, span)
        counts: dict[Partition, int] = {}
        for chunk in chunks:
            counts[chunk.partition] = counts.get(chunk.partition, 0) + chunk.records
        span_batch.check_counts(counts, span)
        return chunks if sum(chunk.size for chunk in chunks) > bytes_max else ()

    def survey(self, span: Span, topics: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return topic -> ids of its events' schemas in the span, that of the newest event last.

        A topic without events is left out, so the records are counted here as well. Raises SinkGap.
        """
        only = _part(span, frozenset(topics))
        found = span_batch.survey(span_batch.read_span(self.spark, self.options(), only))
        span_batch.check_counts(found.records, only)
        return found.schemas

    def outputs(
        self, span: Span, forms: Mapping[str, Sequence[LakeTable]], *, loads: Collection[str] = ()
    ) -> Iterator[tuple[str, RowOutputs]]:
        """As `rows`, in the form that the committer takes. For the topics of `loads` only the archive is needed."""
        if not self.in_frames:
            yield from ((topic, ArrowRows(rows, self.spark)) for topic, rows in self.rows(span, forms, loads=loads))
            return
        reads = {topic: partial(_frame_rows, tables=tables, is_load=topic in loads) for topic, tables in forms.items()}
        yield from self._frames(span, reads)

    def rows(
        self, span: Span, forms: Mapping[str, Sequence[LakeTable]], *, loads: Collection[str] = ()
    ) -> Iterator[tuple[str, pa.Table]]:
        """Yield each topic with its `sinks.warehouse.log.changes.sequenced` rows, in the order of `forms`.

        Args:
            span: what to read.
            forms: topic -> the forms of its table that there are rows of, the newest last.
            loads: topics whose rows may lack the columns that only mirrors and histories need.

        Raises:
            SinkGap: records are missing or surplus.
        """
        records = self._small(span, forms)
        if records is not None:
            yield from self._prepared(records, forms)
            return
        reads = {topic: partial(_changes, tables=tables, is_load=topic in loads) for topic, tables in forms.items()}
        yield from self._each(span, reads)

    def events(self, span: Span, topics: Sequence[str]) -> Iterator[tuple[str, Changes]]:
        """Yield each of these outbox event topics with its rows (`event_archive.archived`). Raises as `rows` does.

        A frame is released when the next topic is requested.
        """
        if not self.in_frames:
            yield from self._each(span, dict.fromkeys(topics, event_archive.archived), headers=True)
            return
        for topic, rows in self._frames(span, dict.fromkeys(topics, _frame_of_events), headers=True):
            try:
                yield topic, Frame(rows.frame, sum(rows.counts.values()))
            finally:
                rows.release()

    def close(self) -> None:
        """Start nothing more. Running reads end with the session."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._plans is not None:
            self._plans.close()

    def _small(self, span: Span, topics: Collection[str]) -> dict[str, pa.Table] | None:
        """Return the counted records of a span that the driver reads; None for one that Spark reads."""
        held, self._held = self._held, None
        if self.reader is None or not topics or not is_small(span) or not fits(self.spark):
            return None
        if held is not None and held[0] == span:
            records = {topic: held[1][topic] for topic in topics}
        else:
            found = read_small(self.reader, span, topics)
            if found is None:
                return None
            records = found
        counts = {at: count for table in records.values() for at, count in counted(table).items()}
        span_batch.check_counts(counts, _part(span, frozenset(topics)))
        if self.seen is not None:
            for table in records.values():
                self.seen(table["value"].to_pylist())
        return records

    def _prepared(
        self, records: Mapping[str, pa.Table], forms: Mapping[str, Sequence[LakeTable]]
    ) -> Iterator[tuple[str, pa.Table]]:
        if self._plans is None:
            self._plans = PreparedPlans(self.spark)
        futures = {topic: self._pool.submit(self._plans.rows, records[topic], forms[topic]) for topic in forms}
        yield from _in_order(futures)

    def _each(
        self, span: Span, reads: Mapping[str, Callable[[DataFrame], pa.Table]], *, headers: bool = False
    ) -> Iterator[tuple[str, pa.Table]]:
        for topic, rows, part in self._read(span, reads, headers=headers):
            counts = {(topic, index): count for index, count in table_outputs.counts(rows).items()}
            span_batch.check_counts(counts, part)
            yield topic, rows

    def _frames(
        self, span: Span, reads: Mapping[str, Callable[[DataFrame], FrameRows]], *, headers: bool = False
    ) -> Iterator[tuple[str, FrameRows]]:
        for topic, rows, part in self._read(span, reads, headers=headers):
            span_batch.check_counts({(topic, index): count for index, count in rows.counts.items()}, part)
            yield topic, rows

    def _read(
        self, span: Span, reads: Mapping[str, Callable[[DataFrame], _Read]], *, headers: bool
    ) -> Iterator[tuple[str, _Read, Span]]:
        parts = _by_topic(span)

        def read(topic: str) -> _Read:
            raw = span_batch.read_span(self.spark, self.options(), parts[topic], headers=headers)
            return reads[topic](raw)

        for topic, rows in _in_order({topic: self._pool.submit(read, topic) for topic in reads}):
            yield topic, rows, parts[topic]


def _in_order(futures: dict[str, Future[_Read]]) -> Iterator[tuple[str, _Read]]:
    """Yield each result in order. Reads that are no longer wanted are not started."""
    try:
        for topic in list(futures):
            yield topic, futures.pop(topic).result()
    finally:
        for future in futures.values():
            if not future.cancel():
                future.add_done_callback(_unwanted)


def _unwanted(future: Future[_Read]) -> None:
    """Free the executors' memory of rows that are not used."""
    if not future.cancelled() and future.exception() is None and isinstance(rows := future.result(), FrameRows):
        rows.release()


def _frame_rows(raw: DataFrame, tables: Sequence[LakeTable], *, is_load: bool) -> FrameRows:
    return FrameRows.of(_parsed(raw, tables, is_load=is_load))


def _frame_of_events(raw: DataFrame) -> FrameRows:
    return FrameRows.of_events(event_archive.archive_frame(raw))


def _changes(raw: DataFrame, tables: Sequence[LakeTable], *, is_load: bool) -> pa.Table:
    return _parsed(raw, tables, is_load=is_load).toArrow()


def _parsed(raw: DataFrame, tables: Sequence[LakeTable], *, is_load: bool) -> DataFrame:
    found = span_batch.parse(raw, tables)
    return changes.plain(found, tables[-1]) if is_load else changes.sequenced(found, tables[-1])


def _part(span: Span, topics: Collection[str]) -> Span:
    accounts = {at: account for at, account in span.end.accounts.items() if at[0] in topics}
    return replace(span, end=replace(span.end, accounts=accounts))


def _by_topic(span: Span) -> dict[str, Span]:
    """Return the span of each topic, in one pass: there may be thousands of topics."""
    accounts: dict[str, dict[Partition, PartitionCount]] = {}
    for at, account in span.end.accounts.items():
        accounts.setdefault(at[0], {})[at] = account
    return {topic: replace(span, end=replace(span.end, accounts=found)) for topic, found in accounts.items()}
