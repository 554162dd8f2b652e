"""A span read by Spark is exactly what the cut index says, without aborted records and markers in between."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from cdc.errors import SinkGap
from cdc.kafka.log_reader import LogReader
from sinks.warehouse.lake.cut_position import START, CutPosition
from sinks.warehouse.log.java_kafka_options import spark_options
from sinks.warehouse.log.lake_columns import lake_table
from sinks.warehouse.log.span import Span, next_span
from sinks.warehouse.log.span_batch import check_counts, parse, read_span, survey
from sinks.warehouse.log.span_reading import SpanReader
from tests.contract.kafka_clients import WAIT_S, Broker, create_topic, producing, settings_of
from tests.fixtures.lake.lake_events import ID, Events, column, cut, rows_of, schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cdc.kafka.producer import TransactionalProducer
    from cdc.model.change_records import Record


def _publish(producer: TransactionalProducer, topic: str, batches: Sequence[Sequence[Record]]) -> dict[str, int]:
    """Write one transaction with a batch per partition; returns the next offset of each written partition."""
    lasts: list[list[int]] = [[] for _ in batches]
    producer.begin()
    for index, records in enumerate(batches):
        producer.produce_all(topic, index, records, lasts[index].append)
    producer.flush(WAIT_S)
    producer.commit(WAIT_S)
    return {f"{topic}-{index}": last[0] + 1 for index, last in enumerate(lasts) if last}


def _abort(kafka: Broker, prefix: str, topic: str, records: Sequence[Record]) -> None:
    """Begin a transaction that a successor fences."""
    with producing(kafka, prefix) as producer:
        producer.begin()
        for index in (0, 1):
            producer.produce_all(topic, index, records)
        producer.flush(WAIT_S)


def _records(events: Events) -> list[Record]:
    return [(key, value, None) for _, _, _, key, value in events.rows]


def test_span_holds_the_committed_records_of_its_cuts(spark: SparkSession, kafka: Broker, topic_prefix: str) -> None:
    record = msgspec.structs.replace(schema(ID, column("name")), topic=f"{topic_prefix}.public.orders")
    topic = create_topic(kafka, record.topic, partitions=2)
    first, second, lost, third = (Events(record) for _ in range(4))
    first.put("c", {"id": 1, "name": "a"})
    first.put("c", {"id": 3, "name": "a"})
    second.put("d", {"id": 1})
    second.put("u", {"id": 3, "name": "b"})
    lost.put("c", {"id": 9, "name": "never"})
    third.put("c", {"id": 5, "name": "c"})
    with producing(kafka, topic_prefix) as producer:
        ends = _publish(producer, topic, [_records(first), []])
        cuts = [(0, cut(10, {f"{topic}-0": (ends[f"{topic}-0"], 2), f"{topic}-1": (0, 0)}, full=True))]
    _abort(kafka, topic_prefix, topic, _records(lost))
    with producing(kafka, topic_prefix) as producer:
        ends = _publish(producer, topic, [_records(second), _records(third)])
        cuts.append((2, cut(20, {f"{topic}-0": (ends[f"{topic}-0"], 5), f"{topic}-1": (ends[f"{topic}-1"], 1)})))
        ends = _publish(producer, topic, [[], _records(second)])
        cuts.append((4, cut(30, {f"{topic}-1": (ends[f"{topic}-1"], 4)})))
    options = spark_options(settings_of(kafka))

    found: list[tuple[int, list[tuple[str, object, object]]]] = []
    mark: CutPosition = START
    while (span := next_span(mark, [one for one in cuts if one[0] >= mark.cuts_offset], events_max=1)) is not None:
        raw = read_span(spark, options, span).persist()
        check_counts(survey(raw).records, span)
        parsed = parse(raw, [lake_table(record)])
        rows = rows_of(parsed.where("_op is not null"), "_partition", "_offset")
        found.append((span.records, [(row["_op"], row["row"]["id"], row["row"]["name"]) for row in rows]))
        raw.unpersist()
        mark = span.end

    assert found == [
        (2, [("c", 1, "a"), ("c", 3, "a")]),
        (4, [("d", 1, None), ("u", 3, "b"), ("c", 5, "c")]),
        (3, [("d", 1, None), ("u", 3, "b")]),
    ]


def test_records_that_are_missing_or_too_many_are_a_gap() -> None:
    span = Span(
        CutPosition(1, 1, 1, 0, {}, {}, 0),
        CutPosition(1, 2, 2, 1, {("s.p.t", 0): (9, 4), ("s.p.t", 1): (3, 3)}, {}, 0),
        1,
    )

    check_counts({("s.p.t", 0): 4, ("s.p.t", 1): 3}, span)
    for records in ({("s.p.t", 0): 3, ("s.p.t", 1): 3}, {("s.p.t", 0): 4}, {("s.p.t", 0): 4, ("s.p.t", 1): 4}):
        with pytest.raises(SinkGap) as gap:
            check_counts(records, span)
        assert gap.value.facts["topic"] == "s.p.t"


def test_topic_that_lost_every_record_is_a_gap_before_anything_is_known_of_its_rows(
    spark: SparkSession, kafka: Broker, topic_prefix: str
) -> None:
    """Without a row there is no schema, and so no table to read it for."""
    topic = create_topic(kafka, f"{topic_prefix}.public.orders", partitions=1)
    with producing(kafka, topic_prefix) as producer:
        ends = _publish(producer, topic, [[(b'{"id":1}', None, None)]])
    span = Span(
        CutPosition(1, 1, 1, 0, {}, {}, 0), CutPosition(1, 2, 2, 1, {(topic, 0): (ends[f"{topic}-0"], 2)}, {}, 0), 1
    )
    reader = SpanReader(spark, lambda: spark_options(settings_of(kafka)))

    with pytest.raises(SinkGap, match="1 records") as gap:
        reader.survey(span, [topic])

    reader.close()
    assert gap.value.facts["topic"] == topic


def test_span_without_counts_passes() -> None:
    span = Span(START, CutPosition(1, 2, 2, 1, {("s.p.t", 0): (9, 4)}, {}, 5), 1)

    check_counts({("s.p.t", 0): 1}, span)


def test_small_span_read_by_the_driver_has_the_rows_that_spark_reads(
    spark: SparkSession, kafka: Broker, topic_prefix: str
) -> None:
    """The plan is kept from the first cut: the second cut's rows must come out, and none of the first."""
    record = msgspec.structs.replace(schema(ID, column("name")), topic=f"{topic_prefix}.public.orders")
    topic = create_topic(kafka, record.topic, partitions=2)
    first, other, lost, second = (Events(record) for _ in range(4))
    for number in (1, 3):
        first.put("c", {"id": number, "name": "a"})
    first.put("u", {"id": 1, "name": "b"})
    other.put("c", {"id": 2, "name": None})
    lost.put("c", {"id": 9, "name": "never"})
    second.put("d", {"id": 1})
    second.put("c", {"id": 1, "name": "again"})
    tables = {topic: [lake_table(record)]}
    with producing(kafka, topic_prefix) as producer:
        begin = _publish(producer, topic, [_records(first), _records(other)])
    _abort(kafka, topic_prefix, topic, _records(lost))
    with producing(kafka, topic_prefix) as producer:
        end = _publish(producer, topic, [_records(second), []])
    marks = [CutPosition(1, 1, 1, 0, {}, {}, 0)]
    counts = {0: len(first.rows), 1: len(other.rows)}
    marks.append(
        CutPosition(1, 2, 2, 1, {(topic, index): (begin[f"{topic}-{index}"], counts[index]) for index in (0, 1)}, {}, 0)
    )
    counts[0] += len(second.rows)
    ends = {(topic, index): ((begin | end)[f"{topic}-{index}"], counts[index]) for index in (0, 1)}
    marks.append(CutPosition(1, 3, 3, 2, ends, {}, 0))
    options = spark_options(settings_of(kafka))

    with LogReader(settings_of(kafka)) as log, ExitStack() as closing:
        by_spark = SpanReader(spark, lambda: options)
        by_driver = SpanReader(spark, lambda: options, log)
        closing.callback(by_spark.close)
        closing.callback(by_driver.close)
        for start, stop in itertools.pairwise(marks):
            span = Span(start, stop, 1)
            (_, slow), (_, fast) = *by_spark.rows(span, tables), *by_driver.rows(span, tables)
            assert _listed(fast) == _listed(slow)
            assert len(_listed(fast)) == span.records > 0
        wrong = Span(marks[1], replace(marks[2], accounts={at: (end, n + 1) for at, (end, n) in ends.items()}), 1)
        with pytest.raises(SinkGap, match="the cut index says"):
            list(by_driver.rows(wrong, tables))


def _listed(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))


def test_large_partition_is_read_by_several_tasks_and_every_record_once(
    spark: SparkSession, kafka: Broker, topic_prefix: str
) -> None:
    record = msgspec.structs.replace(schema(ID, column("name")), topic=f"{topic_prefix}.public.orders")
    topic = create_topic(kafka, record.topic, partitions=1)
    events = Events(record)
    for number in range(40):
        events.put("c", {"id": number, "name": "a"})
    with producing(kafka, topic_prefix) as producer:
        ends = [_publish(producer, topic, [_records(events)])[f"{topic}-0"] for _ in range(2)]  # a marker in between
    only = cut(10, {f"{topic}-0": (ends[-1], 80)}, full=True)
    span = next_span(START, [(0, only)], events_max=1)
    assert span is not None
    options = spark_options(settings_of(kafka))

    whole = read_span(spark, options, span)
    divided = read_span(spark, options, span, task_records=20)

    assert (whole.rdd.getNumPartitions(), divided.rdd.getNumPartitions()) == (1, 2)
    offsets = [row["offset"] for row in divided.select("offset").collect()]
    assert sorted(offsets) == [*range(40), *range(41, 81)]
    check_counts(survey(divided).records, span)
