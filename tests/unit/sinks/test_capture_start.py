"""A sink that is started before capture of its pipeline."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cdc.errors import BrokerError, CaptureNotStarted, TopicMissing
from cdc.kafka.cluster_facts import TopicPartition
from sinks.state.capture_start import waiting_for_capture

MISSING = TopicMissing("there is no topic 'shop.__schema'", topic="shop.__schema")


class Broker:
    """Knows some topics."""

    def __init__(self, *topics: str) -> None:
        self._topics = topics

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        for topic in topics:
            if topic not in self._topics:
                raise TopicMissing(f"there is no topic {topic!r}", topic=topic)
        return [(topic, 0) for topic in topics]


def raised(broker: Broker, *, has_position: bool) -> BrokerError:
    with (
        pytest.raises((TopicMissing, CaptureNotStarted)) as caught,
        waiting_for_capture(broker, "shop", lambda: has_position),
    ):
        raise MISSING
    return caught.value


def test_sink_that_is_started_before_capture_ever_ran_waits_for_it() -> None:
    error = raised(Broker(), has_position=False)

    assert isinstance(error, CaptureNotStarted)
    assert error.message == "capture of pipeline 'shop' has not started yet: topic 'shop.__schema' does not exist"
    assert (error.retry, error.state) == ("timed", "WAITING")


@pytest.mark.parametrize(
    ("broker", "has_position"),
    [(Broker(), True), (Broker("shop.__cuts"), False), (Broker("shop.__schema"), False)],
    ids=["the sink has a position", "the cut index exists", "the schema topic is a moment old"],
)
def test_topic_that_was_there_before_stays_missing(broker: Broker, *, has_position: bool) -> None:
    assert raised(broker, has_position=has_position) is MISSING
