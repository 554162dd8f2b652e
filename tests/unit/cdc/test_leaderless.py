"""A partition without a leader is waited for; one that does not exist is missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaException

from cdc.errors import BrokerUnreachable, TailraceError, TopicMissing
from cdc.kafka.leaderless import explained

if TYPE_CHECKING:
    from confluent_kafka import Consumer

UNKNOWN = TopicMissing("cannot read offsets: Local: Unknown partition")


class Broker:
    """Answers requests for metadata: topic -> the leader of each partition."""

    def __init__(self, **leaders: list[int]) -> None:
        self._leaders = leaders

    def list_topics(self, topic: str | None, timeout_s: float) -> Any:
        known = {topic: self._leaders.get(topic, [])} if topic else self._leaders
        return SimpleNamespace(
            topics={
                name: SimpleNamespace(partitions={at: SimpleNamespace(leader=one) for at, one in enumerate(leaders)})
                for name, leaders in known.items()
            }
        )


class Silent:
    """A broker that does not answer."""

    def list_topics(self, *_: object) -> Any:
        raise KafkaException


def asked(broker: object, *partitions: tuple[str, int], error: TailraceError = UNKNOWN) -> TailraceError:
    return explained(error, "read offsets", cast("Consumer", broker), partitions, timeout_s=1)


def test_partition_without_a_leader_is_waited_for_and_named() -> None:
    found = asked(Broker(t=[1, -1, -1]), ("t", 0), ("t", 1), ("t", 2))

    assert isinstance(found, BrokerUnreachable)
    assert found.message == "cannot read offsets: 2 partitions have no leader (t-1)"
    assert found.retry == "timed"
    assert "start the brokers" in found.hint


def test_partition_that_got_its_leader_meanwhile_is_asked_again() -> None:
    found = asked(Broker(t=[1], u=[2]), ("t", 0), ("u", 0))

    assert isinstance(found, BrokerUnreachable)
    assert "passes by itself" in found.hint
    assert "start the brokers" not in found.hint, "every partition has a leader"


@pytest.mark.parametrize("broker", [Broker(t=[-1]), Broker(), Silent()])
def test_partition_that_no_broker_knows_stays_missing(broker: object) -> None:
    assert asked(broker, ("t", 0), ("t", 1)) is UNKNOWN


def test_other_errors_are_unchanged_and_nothing_is_asked() -> None:
    other = BrokerUnreachable("x")

    assert asked(None, ("t", 0), error=other) is other
