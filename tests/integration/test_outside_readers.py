"""External readers end with the rows of the table. `make readers` runs more and slower ones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.fixtures.capture.topic_log import read_log
from tests.fixtures.servers.java_clients import JavaClients
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks import duckdb_reader
from tests.fixtures.sinks.reader_workload import COMPOSITE, DEFAULT, FULL, expected, last_offsets, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.capture.topic_log import TopicLog
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.sinks.reader_workload import Readable

# Compaction takes closed segments, and a segment closes when a record comes after this time.
_AT_ONCE: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0.001",
    "max.message.bytes": str(16 << 20),
}
_COMPACTED_S: Final = 120.0


@pytest.fixture
def java(readable: Readable) -> JavaClients:
    return JavaClients(readable.site.bootstrap)


@pytest.mark.parametrize("table", [DEFAULT, FULL])
def test_duckdb_folds_what_javas_client_reads_to_the_rows_of_the_table(
    table: str, readable: Readable, java: JavaClients, tmp_path: Path
) -> None:
    records = java.dump(readable.topic(table), readable.last(table))

    assert duckdb_reader.items(records, tmp_path) == readable.rows[table]
    assert any(record.payload is None for record in records)


@pytest.mark.parametrize("table", [DEFAULT, COMPOSITE])
def test_javas_client_puts_each_key_into_the_partition_it_is_in(
    table: str, readable: Readable, java: JavaClients
) -> None:
    ours = {record.key: record.partition for record in java.dump(readable.topic(table), readable.last(table))}
    other = f"{readable.site.name}.by-java.{table}"
    create_topic(readable.site.bootstrap, other, {})

    java.produce(other, sorted(ours))
    last = last_offsets(read_log(readable.site.bootstrap, f"{readable.site.name}.by-java"), other)
    theirs = {record.key: record.partition for record in java.dump(other, last)}

    assert theirs == ours
    assert set(ours.values()) == {0, 1}


def test_topic_read_from_the_start_after_compaction_is_the_whole_table(capture: CaptureSite, tmp_path: Path) -> None:
    topic = capture.topic(DEFAULT)
    create_topic(capture.bootstrap, topic, _AT_ONCE)
    written = write(capture, seed())
    workload = {partition: written.log.ends[topic, partition] for partition in (0, 1)}

    # A record in each partition closes the segment with the last of the workload.
    daemon = capture.running()
    capture.sql(f"insert into {DEFAULT} (id) select 9000 + g from generate_series(1, 20) g")
    daemon.until_position(capture.wal())
    until(lambda: not repeated(capture, topic, workload), "compaction", within_s=_COMPACTED_S, every_s=0.5)

    log = capture.log()
    records = JavaClients(capture.bootstrap).dump(topic, last_offsets(log, topic))
    assert len(records) < written_count(log, topic)
    assert duckdb_reader.items(records, tmp_path) == expected(capture, DEFAULT)


def repeated(site: CaptureSite, topic: str, ends: dict[int, int]) -> set[bytes]:
    """Keys that have more than one record before these offsets."""
    keys = Counter(r.key for r in site.log().topic(topic) if r.offset < ends[r.partition] and r.key is not None)
    return {key for key, count in keys.items() if count > 1}


def written_count(log: TopicLog, topic: str) -> int:
    """How many records the topic ever got, of which the cut index keeps count."""
    counts: dict[str, int] = {}
    for cut in log.cuts:
        counts |= {name: end[1] for name, end in cut["changed"].items() if name.rpartition("-")[0] == topic}
    return sum(counts.values())


def create_topic(bootstrap: str, topic: str, settings: dict[str, str]) -> None:
    """A topic with as many partitions as captures of tests have."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(topic, 2, 1, config=settings)])[topic].result(30)
