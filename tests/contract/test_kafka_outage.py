"""The Kafka clients during an outage of their broker; each test has a broker of its own."""

from __future__ import annotations

import time

import pytest

from cdc.errors import BrokerUnreachable, OutcomeUnknown
from cdc.kafka.producer import TransactionalProducer
from tests.contract.kafka_clients import (
    MESSAGE_BYTES_MAX,
    WAIT_S,
    create_topic,
    producing,
    publish,
    read_all,
    rows,
    settings_of,
    values,
)
from tests.fixtures.servers.running_servers import MakeStack


def test_a_commit_that_outlives_a_restart_is_known_and_its_producer_replaced(make_stack: MakeStack) -> None:
    kafka = make_stack("kafka").kafka
    topic = create_topic(kafka, "t")
    with producing(kafka, "x") as producer:
        producer.begin()
        producer.produce_all(topic, 0, rows("1"))
        producer.flush(WAIT_S)

        kafka.kill()
        kafka.start()
        producer.commit(WAIT_S)

        assert producer.suspicious is not None
        with pytest.raises(OutcomeUnknown, match="must take over"):
            producer.begin()
    assert values(read_all(kafka, topic, count=1)) == [b"1"]


def test_an_outage_is_bounded_and_leaves_nothing_behind_that_could_fence_the_successor(make_stack: MakeStack) -> None:
    kafka = make_stack("kafka").kafka
    topic = create_topic(kafka, "t")
    with producing(kafka, "x") as producer:
        publish(producer, topic, 0, rows("1"))
        producer.begin()
        kafka.kill()
        producer.produce_all(topic, 0, rows("lost"))

        with pytest.raises(BrokerUnreachable, match="cannot deliver 1 records in 1 s"):
            producer.flush(1.0)
        with pytest.raises(OutcomeUnknown):
            producer.commit(1.0)
        assert not producer.abort(0.5)
        start_s = time.monotonic()
        producer.close()
        assert time.monotonic() - start_s < 20.0

    # The init that was given up must not be finished by an instance nobody has any more: it would take the id.
    given_up = TransactionalProducer(settings_of(kafka), "x", message_bytes_max=MESSAGE_BYTES_MAX)
    with pytest.raises(BrokerUnreachable) as kept:
        given_up.init(1.0)
    given_up.close()
    kafka.start()
    with producing(kafka, "x") as producer:
        for text in ("2", "3", "4"):
            publish(producer, topic, 0, rows(text))
            time.sleep(0.3)

    assert kept.value.retry == "timed"
    assert values(read_all(kafka, topic, count=4)) == [b"1", b"2", b"3", b"4"]
