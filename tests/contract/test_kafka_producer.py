"""The transactional producer on a real broker."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from cdc.errors import (
    BrokerUnreachable,
    ConfigError,
    OutcomeUnknown,
    ProducerFenced,
    RowRefused,
    TailraceError,
    TopicMismatch,
)
from cdc.kafka.client_errors import attempt
from cdc.kafka.client_options import record_bytes_max
from cdc.kafka.log_reader import LogReader
from cdc.kafka.producer import TransactionalProducer
from cdc.kafka.sender import send
from cdc.model.change_records import Record
from tests.contract.kafka_clients import (
    MESSAGE_BYTES_MAX,
    NOWHERE,
    WAIT_S,
    Broker,
    create_topic,
    producing,
    publish,
    read_all,
    rows,
    settings_of,
    values,
)


def test_records_are_visible_after_the_commit_and_never_before(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer:
        producer.begin()
        producer.produce_all(topic, 0, rows("1", "2"))
        producer.flush(WAIT_S)

        before = read_all(kafka, topic, count=0)
        producer.commit(WAIT_S)

        assert before == []
        assert values(read_all(kafka, topic, count=2)) == [b"1", b"2"]


def test_aborted_records_are_never_visible(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer:
        producer.begin()
        producer.produce_all(topic, 0, rows("lost"))
        producer.flush(WAIT_S)

        assert producer.abort(WAIT_S)
        publish(producer, topic, 0, rows("kept"))

        assert values(read_all(kafka, topic, count=1)) == [b"kept"]


def test_keys_values_headers_and_their_absence_arrive_unchanged(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    sent: list[Record] = [
        (b"k", b"v", None),
        (b"k", None, None),
        (None, b"v", None),
        (b"", b"", None),
        (b"k", b"v", [("a", b"1"), ("a", b"2"), ("b", b"")]),
        (b"k", None, [("__debezium.newkey", b'{"id":1}')]),
    ]
    with producing(kafka, topic_prefix) as producer:
        publish(producer, topic, 0, sent)

        assert [record[4:] for record in read_all(kafka, topic, count=len(sent))] == sent


def test_the_offset_after_a_transaction_is_one_marker_behind_its_last_record(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, partitions=3)
    with producing(kafka, topic_prefix) as producer:
        last: dict[int, list[int]] = {0: [], 1: [], 2: []}
        # Given partition -> records, for three transactions.
        for counts in ({0: 3, 1: 1}, {0: 2}, {0: 1, 1: 4}):
            producer.begin()
            for partition, count in counts.items():
                producer.produce_all(topic, partition, rows(*map(str, range(count))), last[partition].append)
            producer.flush(WAIT_S)
            producer.commit(WAIT_S)

        # Last + records + one marker for each earlier transaction in the partition (docs/internals/cut-index.md).
        assert last == {0: [2, 5, 7], 1: [0, 5], 2: []}


def test_the_last_offset_counts_every_record_of_a_large_batch(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer:
        assert publish(producer, topic, 0, [(b"k", b"x" * 500, None)] * 20_000) == 19_999


def test_a_batch_without_records_is_nothing(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    offsets: list[int] = []
    with producing(kafka, topic_prefix) as producer:
        producer.begin()
        producer.produce_all(topic, 0, [], offsets.append)
        producer.flush(WAIT_S)
        producer.commit(WAIT_S)

        assert offsets == []
        assert read_all(kafka, topic, count=0) == []


def test_a_full_queue_makes_the_caller_wait_and_keeps_the_order(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    sent = rows(*(f"{number:05}" for number in range(2_000)))
    with producing(kafka, topic_prefix, queue__buffering__max__messages="50") as producer:
        assert publish(producer, topic, 0, sent) == len(sent) - 1

        assert values(read_all(kafka, topic, count=len(sent))) == [value for _, value, _ in sent]


def test_a_newer_producer_aborts_what_an_older_one_left_open(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as older:
        older.begin()
        older.produce_all(topic, 0, rows("lost"))
        older.flush(WAIT_S)

        with producing(kafka, topic_prefix) as newer:
            publish(newer, topic, 0, rows("kept"))

        assert values(read_all(kafka, topic, count=1)) == [b"kept"]


def test_flush_and_every_later_call_of_a_fenced_producer_raise_producer_fenced(
    kafka: Broker, topic_prefix: str
) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as older:
        older.begin()
        older.produce_all(topic, 0, rows("1"), lambda _: None)
        older.flush(WAIT_S)
        with producing(kafka, topic_prefix):
            older.produce_all(topic, 0, rows("2"), lambda _: None)

            with pytest.raises(ProducerFenced, match="cannot deliver records"):
                older.flush(WAIT_S)
            with pytest.raises(ProducerFenced):
                older.produce_all(topic, 0, rows("3"))
            with pytest.raises(ProducerFenced):
                older.commit(WAIT_S)
            with pytest.raises(ProducerFenced):
                older.begin()
            assert not older.abort(WAIT_S)


def test_commit_of_a_fenced_producer_raises_producer_fenced(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as older:
        older.begin()
        older.produce_all(topic, 0, rows("1"))
        older.flush(WAIT_S)
        with producing(kafka, topic_prefix), pytest.raises(ProducerFenced) as caught:
            older.commit(WAIT_S)

        assert caught.value.facts["transactional_id"] == topic_prefix
        assert read_all(kafka, topic, count=0) == []


def test_asking_why_records_were_thrown_away_never_commits_the_rest(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix, linger__ms="500") as producer:
        producer.begin()
        producer.produce_all(topic, 0, rows("1"))
        producer.flush(WAIT_S)
        producer.produce_all(topic, 0, rows("2"), lambda _: None)
        producer._producer.purge(in_queue=True, in_flight=False)

        with pytest.raises(TailraceError):
            producer.flush(WAIT_S)

    assert read_all(kafka, topic, count=0) == []


def test_the_client_raises_what_no_except_clause_but_a_bare_one_catches(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as older:
        older.begin()
        older.produce_all(topic, 0, rows("1"))
        older.flush(WAIT_S)
        with producing(kafka, topic_prefix):
            # Any call into C from a callback will do, while the fatal error is being raised.
            older._producer.produce(topic, b"2", b"k", 0, lambda *_: _call_into_c())

            _, raised = attempt(lambda: older._producer.flush(WAIT_S))

        # When this fails, the client has mended itself, and `cdc.kafka.client_errors.attempt` needs no bare except any
        # more.
        assert isinstance(raised, KafkaError)
        assert not isinstance(raised, BaseException)


def test_a_record_over_the_limit_is_refused_when_it_is_handed_over(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    large: Record = (b"k", b"x" * MESSAGE_BYTES_MAX, [("h", b"1")])
    with producing(kafka, topic_prefix) as producer:
        for records in ([large], [large, *rows("after")], [*rows("before"), large, *rows("after")]):
            producer.begin()
            with pytest.raises(RowRefused) as caught:
                producer.produce_all(topic, 0, records)
            assert (caught.value.facts["topic"], caught.value.facts["size"]) == (topic, MESSAGE_BYTES_MAX + 3)
            assert producer.abort(WAIT_S)


def test_a_record_the_topic_does_not_take_is_refused_by_flush(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix, configs={"max.message.bytes": "2000"})
    with producing(kafka, topic_prefix) as producer:
        producer.begin()
        producer.produce_all(topic, 0, [(b"k", os.urandom(3_000), None)])

        with pytest.raises(RowRefused, match=topic):
            producer.flush(WAIT_S)


@pytest.mark.parametrize("limit", [4_096, 1 << 20])
def test_the_largest_record_we_take_fits_into_the_topic(kafka: Broker, topic_prefix: str, limit: int) -> None:
    topic = create_topic(kafka, topic_prefix, configs={"max.message.bytes": str(limit)})
    key = b"k" * 50
    with producing(kafka, topic_prefix, message_bytes_max=limit) as producer:
        # Random bytes do not become smaller by compression. librdkafka counts 36 bytes for the frame of a record.
        value = os.urandom(record_bytes_max(limit) - len(key) - 36)

        assert publish(producer, topic, 0, [(key, value, None)]) == 0


def test_a_partition_that_is_not_there_is_a_mismatch(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer:
        producer.begin()

        def deliver() -> None:
            """Fails at once if the client knows the topic already, else when the broker has told it."""
            producer.produce_all(topic, 5, rows("1"))
            producer.flush(WAIT_S)

        with pytest.raises(TopicMismatch, match=topic):
            deliver()


def test_a_topic_that_is_not_there_is_a_mismatch_in_bounded_time(kafka: Broker, topic_prefix: str) -> None:
    with producing(kafka, topic_prefix, topic__metadata__propagation__max__ms="500") as producer:
        producer.begin()
        producer.produce_all(topic_prefix, 0, rows("1"))

        with pytest.raises(TopicMismatch, match=topic_prefix):
            producer.flush(WAIT_S)


def test_no_client_creates_a_topic_that_it_asks_for(kafka: Broker, topic_prefix: str) -> None:
    """The broker would: `auto.create.topics.enable` is true by default, and in these tests."""
    with producing(kafka, topic_prefix, topic__metadata__propagation__max__ms="500") as producer:
        producer.check(f"{topic_prefix}.checked", WAIT_S)
        producer.begin()
        producer.produce_all(f"{topic_prefix}.written", 0, rows("1"))
        with pytest.raises(TopicMismatch):
            producer.flush(WAIT_S)
    with pytest.raises(TopicMismatch):
        send(settings_of(kafka), f"{topic_prefix}.sent", b"k", b"v")
    with LogReader(settings_of(kafka), client_id="test") as reader, pytest.raises(TopicMismatch):
        reader.end_offsets([f"{topic_prefix}.read"])

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 3})
    assert [name for name in admin.list_topics(timeout=WAIT_S).topics if name.startswith(topic_prefix)] == []


def test_no_broker_is_unreachable_in_bounded_time_with_the_reason() -> None:
    producer = TransactionalProducer(NOWHERE, "nobody", message_bytes_max=MESSAGE_BYTES_MAX)
    start_s = time.monotonic()

    with pytest.raises(BrokerUnreachable, match="Connection refused"):
        producer.init(1.0)
    with pytest.raises(BrokerUnreachable, match="cannot reach Kafka"):
        producer.check("t", 1.0)
    producer.close()

    assert time.monotonic() - start_s < 30.0


def test_tls_to_a_plaintext_listener_is_explained(kafka: Broker, topic_prefix: str) -> None:
    producer = TransactionalProducer(
        settings_of(kafka, security__protocol="SSL"), topic_prefix, message_bytes_max=MESSAGE_BYTES_MAX
    )

    with pytest.raises(BrokerUnreachable, match=r"SSL handshake failed|in state SSL_HANDSHAKE"):
        producer.init(2.0)
    producer.close()


def test_credentials_the_broker_does_not_take_are_refused_with_the_reason(kafka: Broker, topic_prefix: str) -> None:
    user = {"security__protocol": "SASL_PLAINTEXT", "sasl__mechanism": "PLAIN", "sasl__username": "u"}
    producer = TransactionalProducer(
        settings_of(kafka, **user, sasl__password="hunter2"), topic_prefix, message_bytes_max=MESSAGE_BYTES_MAX
    )

    with pytest.raises(TailraceError) as caught:
        producer.init(2.0)
    producer.close()

    assert caught.value.state == "MISCONFIGURED"
    assert "SASL PLAIN" in caught.value.message
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("lingr__ms", "5", "kafka.options.lingr.ms is not an option of librdkafka"),
        ("compression__codec", "brotli", "kafka.options.compression.codec has a value that librdkafka does not accept"),
        ("linger__ms", "soon", "kafka.options.linger.ms has a value that librdkafka does not accept"),
        ("oauth_cb", "print", "kafka.options (oauth_cb) has a value that librdkafka does not accept"),
    ],
)
def test_options_librdkafka_does_not_take_are_named(kafka: Broker, option: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TransactionalProducer(settings_of(kafka, **{option: value}), "x", message_bytes_max=MESSAGE_BYTES_MAX)

    assert message in caught.value.message


def test_a_suspicious_producer_begins_no_transaction(kafka: Broker, topic_prefix: str) -> None:
    with producing(kafka, topic_prefix) as producer:
        assert producer.suspicious is None
        producer._events.lost = "a request timed out"

        with pytest.raises(OutcomeUnknown, match="must take over: a request timed out"):
            producer.begin()


def test_many_transactions_on_a_healthy_broker_raise_no_suspicion(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    with producing(kafka, topic_prefix) as producer:
        offsets = [publish(producer, topic, 0, rows("1")) for _ in range(60)]

        assert offsets == [2 * number for number in range(60)]
        assert producer.suspicious is None


def test_a_closed_producer_leaves_no_thread(kafka: Broker, topic_prefix: str) -> None:
    topic = create_topic(kafka, topic_prefix)
    before = _threads()
    with producing(kafka, topic_prefix) as older:
        older.begin()
        older.produce_all(topic, 0, rows("1"))
        older.flush(WAIT_S)
        with producing(kafka, topic_prefix):
            errors = []
            for _ in range(3):
                with pytest.raises(ProducerFenced) as caught:
                    older.commit(WAIT_S)
                # Errors that are kept must not keep the client.
                errors.append(caught.value)
            during = _threads()

    assert len(during - before) > 0
    assert _threads() - before == set()
    assert len(errors) == 3


def test_a_closed_producer_can_be_closed_again(kafka: Broker, topic_prefix: str) -> None:
    with producing(kafka, topic_prefix) as producer:
        producer.close()
        producer.close()


def test_nothing_is_written_to_stderr(kafka: Broker, topic_prefix: str, capfd: pytest.CaptureFixture[str]) -> None:
    with producing(kafka, topic_prefix) as older, producing(kafka, topic_prefix):
        older.begin()
        older.commit(WAIT_S)
    producer = TransactionalProducer(NOWHERE, "nobody", message_bytes_max=MESSAGE_BYTES_MAX)
    with pytest.raises(BrokerUnreachable):
        producer.init(0.5)
    producer.close()

    assert capfd.readouterr() == ("", "")


def _call_into_c() -> None:
    int("1")


def _threads() -> set[str]:
    """Threads of librdkafka in this process."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text()
        except OSError:  # it ended meanwhile
            continue
        if name.startswith("rdk:"):
            found.add(task.name)
    return found


def test_offsets_of_a_group_are_committed_with_the_transaction(kafka: Broker, topic_prefix: str) -> None:
    topic, group = create_topic(kafka, f"{topic_prefix}.t"), f"{topic_prefix}.sink.lake"

    with producing(kafka, group) as producer:
        for offset in (7, 9):
            producer.begin()
            producer.send_offsets({(topic, 0): offset}, group, WAIT_S)
            producer.commit(WAIT_S)

    assert committed(kafka, group, topic) == 9


def test_a_fenced_producer_commits_no_offsets(kafka: Broker, topic_prefix: str) -> None:
    topic, group = create_topic(kafka, f"{topic_prefix}.t"), f"{topic_prefix}.sink.lake"

    with producing(kafka, group) as older, producing(kafka, group) as newer:
        newer.begin()
        newer.send_offsets({(topic, 0): 5}, group, WAIT_S)
        newer.commit(WAIT_S)
        older.begin()
        with pytest.raises(ProducerFenced):
            older.send_offsets({(topic, 0): 6}, group, WAIT_S)

    assert committed(kafka, group, topic) == 5


def committed(kafka: Broker, group: str, topic: str) -> int:
    """The group's committed offset in the first partition."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        return consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)[0].offset
    finally:
        consumer.close()
