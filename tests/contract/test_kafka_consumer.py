"""The reader of committed records on a real broker."""

from __future__ import annotations

import itertools
import time

import pytest

from cdc.errors import BrokerUnreachable, TopicMismatch
from cdc.kafka.log_reader import LogReader
from cdc.model.read_pace import ReadPace
from tests.contract.kafka_clients import (
    NOWHERE,
    WAIT_S,
    Broker,
    create_topic,
    eventually,
    producing,
    publish,
    read_all,
    rows,
    settings_of,
    values,
)


def test_reading_ends_behind_markers_and_aborted_records(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=2)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        publish(producer, topic, 0, rows("1", "2"))
        producer.begin()
        producer.produce_all(topic, 0, rows("lost", "lost"))
        producer.flush(WAIT_S)
        assert producer.abort(WAIT_S)

        # Two records and a marker, two aborted records and a marker; nothing in the other partition.
        eventually(lambda: reader.end_offsets([topic]), {(topic, 0): (0, 6), (topic, 1): (0, 0)})
        assert values(read_all(kafka, topic, count=2)) == [b"1", b"2"]


def test_reading_ends_where_there_are_only_aborted_records(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        producer.begin()
        producer.produce_all(topic, 0, rows("lost"))
        producer.flush(WAIT_S)
        assert producer.abort(WAIT_S)

        eventually(lambda: reader.end_offsets([topic]), {(topic, 0): (0, 2)})
        start_s = time.monotonic()
        assert list(reader.read({(topic, 0): 0}, {(topic, 0): 2}, timeout_s=WAIT_S)) == []
        assert time.monotonic() - start_s < WAIT_S / 2


def test_an_open_transaction_holds_the_end_back(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with (
        producing(kafka, f"{topic_prefix}-a") as one,
        producing(kafka, f"{topic_prefix}-b") as other,
        LogReader(settings_of(kafka)) as reader,
    ):
        publish(one, topic, 0, rows("1"))
        eventually(lambda: reader.end_offsets([topic]), {(topic, 0): (0, 2)})
        other.begin()
        other.produce_all(topic, 0, rows("2"))
        other.flush(WAIT_S)
        publish(one, topic, 0, rows("3"))

        during = reader.end_offsets([topic])
        other.commit(WAIT_S)

        assert during == {(topic, 0): (0, 2)}
        eventually(lambda: reader.end_offsets([topic]), {(topic, 0): (0, 6)})
        assert values(read_all(kafka, topic, count=3)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("start", "until", "wanted"),
    [(0, 2, ["0", "1"]), (1, 3, ["1", "2"]), (3, 3, []), (4, 2, []), (3, 4, []), (2, 5, ["2", "4"]), (5, 6, [])],
)
def test_reading_gives_exactly_the_records_from_start_to_until(
    kafka: Broker, topic_prefix: str, start: int, until: int, wanted: list[str]
) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        # Offsets 0 to 2 and a marker at 3, offset 4 and a marker at 5.
        publish(producer, topic, 0, rows("0", "1", "2"))
        publish(producer, topic, 0, rows("4"))

        batches = list(reader.read({(topic, 0): start}, {(topic, 0): until}, timeout_s=WAIT_S))

        assert [offset for batch in batches for _, _, offset, *_ in batch] == [int(text) for text in wanted]
        assert all(batches)


def test_partitions_are_read_to_their_own_ends_and_in_order(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=3)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        for partition, count in ((0, 5_000), (1, 10), (2, 3_000)):
            publish(producer, topic, partition, rows(*map(str, range(count))))

        until = {(topic, 0): 4_000, (topic, 1): 0, (topic, 2): 3_001}
        records = list(itertools.chain.from_iterable(reader.read(dict.fromkeys(until, 0), until, timeout_s=WAIT_S)))

        for partition, count in ((0, 4_000), (1, 0), (2, 3_000)):
            assert [record[2] for record in records if record[1] == partition] == list(range(count))


def test_one_reader_reads_partitions_again_that_ended_one_after_the_other(kafka: Broker, topic_prefix: str) -> None:
    """Those that ended are paused, which librdkafka does not forget by itself."""
    topic = create_topic(kafka, topic_prefix, partitions=3)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        for partition, count in ((0, 5_000), (1, 10), (2, 3_000)):
            publish(producer, topic, partition, rows(*map(str, range(count))))

        until = {(topic, 0): 5_000, (topic, 1): 10, (topic, 2): 3_000}
        for _ in range(3):
            read = reader.read(dict.fromkeys(until, 0), until, timeout_s=WAIT_S)
            assert sum(len(batch) for batch in read) == 8_010


def test_one_reader_reads_again_after_an_unfinished_read(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        publish(producer, topic, 0, rows(*map(str, range(5_000))))

        for _ in range(3):
            batches = reader.read({(topic, 0): 0}, {(topic, 0): 5_001}, timeout_s=WAIT_S)
            assert next(iter(batches))[0][2] == 0
            batches.close()
        assert sum(map(len, reader.read({(topic, 0): 10}, {(topic, 0): 5_001}, timeout_s=WAIT_S))) == 4_990


def test_without_an_end_it_hands_out_what_arrives_and_empty_batches(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        batches = reader.read({(topic, 0): 0})
        first = next(batches)
        publish(producer, topic, 0, rows("1"))
        later = next(batch for batch in itertools.islice(batches, 100) if batch)

        assert first == []
        assert values(later) == [b"1"]
        batches.close()


def test_records_have_the_time_they_were_made(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    before_ms = int(time.time() * 1000)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        publish(producer, topic, 0, rows("1"))
        after_ms = int(time.time() * 1000)

        ((_, _, _, timestamp_ms, _, _, _),) = read_all(kafka, topic, count=1)

        assert before_ms <= timestamp_ms <= after_ms
        assert reader.offsets_for_time([(topic, 0)], timestamp_ms) == {(topic, 0): 0}
        assert reader.offsets_for_time([(topic, 0)], after_ms + 60_000) == {(topic, 0): None}
        assert reader.offsets_for_time([(topic, 0)], -5) == {(topic, 0): 0}
        assert reader.offsets_for_time([], 0) == {}


def test_last_records_are_those_that_compaction_would_leave(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, configs={"cleanup.policy": "compact"})
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        assert reader.last_records(topic) == {}
        publish(producer, topic, 0, [(b"a", b"1", None), (b"b", b"1", None), (b"c", b"1", None)])
        publish(producer, topic, 0, [(b"a", b"2", None), (b"b", None, None)])
        producer.begin()
        producer.produce_all(topic, 0, [(b"a", b"aborted", None)])
        producer.flush(WAIT_S)
        assert producer.abort(WAIT_S)

        eventually(lambda: reader.last_records(topic), {b"a": (4, b"2"), b"c": (2, b"1")})
        assert reader.last_records(topic, keys={b"c", b"z"}) == {b"c": (2, b"1")}


@pytest.mark.parametrize("start", [3, 1_000])
def test_an_offset_that_is_not_in_the_log_is_a_mismatch_and_never_a_jump(
    kafka: Broker, topic_prefix: str, start: int
) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        publish(producer, topic, 0, rows("1"))

        with pytest.raises(TopicMismatch, match=topic):
            list(reader.read({(topic, 0): start}, {(topic, 0): start + 10}, timeout_s=WAIT_S))


@pytest.mark.parametrize("other", [True, False])
def test_a_topic_that_is_not_there_is_a_mismatch(*, kafka: Broker, topic_prefix: str, other: bool) -> None:
    topics = [create_topic(kafka, f"{topic_prefix}-is-there")] if other else []
    with LogReader(settings_of(kafka)) as reader, pytest.raises(TopicMismatch, match=f"{topic_prefix}-missing"):
        reader.end_offsets([*topics, f"{topic_prefix}-missing"])


def test_an_end_that_is_not_reached_is_an_error_in_bounded_time(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with LogReader(settings_of(kafka)) as reader, pytest.raises(BrokerUnreachable, match=f"cannot read {topic}-0"):
        list(reader.read({(topic, 0): 0}, {(topic, 0): 1}, timeout_s=1.0))


def test_reading_a_topic_that_is_not_there_is_a_mismatch(kafka: Broker, topic_prefix: str) -> None:
    with LogReader(settings_of(kafka)) as reader, pytest.raises(TopicMismatch, match=topic_prefix):
        list(reader.read({(topic_prefix, 0): 0}, {(topic_prefix, 0): 1}, timeout_s=1.0))


def test_no_broker_is_unreachable_in_bounded_time() -> None:
    start_s = time.monotonic()
    with LogReader(NOWHERE) as reader:
        with pytest.raises(BrokerUnreachable, match="Connection refused"):
            list(reader.read({("t", 0): 0}, {("t", 0): 1}, timeout_s=0.5))
        with pytest.raises(BrokerUnreachable, match="Connection refused"):
            reader.end_offsets(["t"], timeout_s=0.5)

    assert time.monotonic() - start_s < 30.0


def test_a_closed_reader_can_be_closed_again(kafka: Broker) -> None:
    with LogReader(settings_of(kafka)) as reader:
        reader.close()


def test_partition_that_is_held_back_stays_away_and_goes_on_where_it_was(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=2)
    with producing(kafka, topic_prefix) as producer, LogReader(settings_of(kafka)) as reader:
        for partition, count in ((0, 9_000), (1, 6_000)):
            publish(producer, topic, partition, rows(*map(str, range(count))))
        until, pace = {(topic, 0): 9_000, (topic, 1): 6_000}, ReadPace(held={(topic, 0)})
        found: dict[int, list[int]] = {0: [], 1: []}

        for batch in reader.read(dict.fromkeys(until, 0), until, timeout_s=WAIT_S, pace=pace):
            for record in batch:
                assert (topic, record.partition) not in pace.held
                found[record.partition].append(record.offset)
            if pace.held != {(topic, 1)} and pace.reached.get((topic, 1), 0) >= 2_000 and len(found[0]) < 4_000:
                pace.held = {(topic, 1)}  # the other one goes on meanwhile
            elif len(found[0]) >= 4_000:
                pace.held = set()

        for partition, count in ((0, 9_000), (1, 6_000)):
            assert list(dict.fromkeys(found[partition])) == list(range(count))  # some may come twice
        # Perhaps behind the markers of the transactions.
        assert pace.reached[topic, 0] >= 9_000
        assert pace.reached[topic, 1] >= 6_000
