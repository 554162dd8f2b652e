"""The independent reader of the tests does not take a commit that is not visible yet for a loss."""

from __future__ import annotations

import threading

import pytest

from tests.contract.kafka_clients import WAIT_S, Broker, create_topic, producing, publish, rows
from tests.fixtures.capture import topic_log
from tests.fixtures.capture.topic_log import read_log


def test_reader_waits_for_a_transaction_to_end_and_says_when_it_does_not(
    kafka: Broker, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(kafka, f"{topic_prefix}.public.t", partitions=2)
    with producing(kafka, f"{topic_prefix}-a") as ended, producing(kafka, f"{topic_prefix}-b") as going_on:
        publish(ended, topic, 1, rows("1", "2"))
        going_on.begin()
        going_on.produce_all(topic, 0, rows("3"), lambda _: None)
        going_on.flush(WAIT_S)

        with monkeypatch.context() as impatient:
            impatient.setattr(topic_log, "_SILENT_S", 1.0)
            assert [record.key for record in read_log(kafka.bootstrap, topic_prefix).data] == [b"k1", b"k2"]
            with pytest.raises(TimeoutError, match=r"no end seen of .* within 1 s"):
                read_log(kafka.bootstrap, topic_prefix, all_ended=True)

        late = threading.Timer(1.0, going_on.commit, [WAIT_S])
        late.start()
        log = read_log(kafka.bootstrap, topic_prefix, all_ended=True)
        late.join()

    assert [record.key for record in log.data] == [b"k3", b"k1", b"k2"]
