"""Distinguishes partitions without a leader from missing ones: librdkafka calls both unknown when asked for offsets.

A partition has no leader while none of the brokers runs that had all its records. That ends without an operator of
capture, but a missing partition does not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from confluent_kafka import Consumer

from cdc.errors import BrokerUnreachable, TailraceError, TopicMissing
from cdc.kafka.client_errors import attempt
from cdc.kafka.cluster_facts import TopicPartition


def explained(
    error: TailraceError, doing: str, consumer: Consumer, partitions: Collection[TopicPartition], *, timeout_s: float
) -> TailraceError:
    """Return BrokerUnreachable if `error` says that one of `partitions` is missing, but the broker knows them all."""
    if not isinstance(error, TopicMissing):
        return error
    topics = {topic for topic, _ in partitions}
    only = next(iter(topics)) if len(topics) == 1 else None  # librdkafka requests either one topic or all topics
    answer, _ = attempt(
        lambda: consumer.list_topics(only, timeout_s) if only else consumer.list_topics(None, timeout_s)
    )
    if answer is None:
        return error
    leaders = {(name, at): one.leader for name, topic in answer.topics.items() for at, one in topic.partitions.items()}
    if any(place not in leaders for place in partitions):
        return error
    waiting = sorted(place for place in partitions if leaders[place] < 0)
    if waiting:
        return no_leader(doing, waiting)
    return BrokerUnreachable(
        f"cannot {doing}: leaders change",
        hint="this passes by itself once every broker knows the new leaders; if it does not, check the brokers",
        command="cdc why",
    )


def no_leader(doing: str, partitions: Sequence[TopicPartition]) -> BrokerUnreachable:
    """Return the error for partitions that have no leader; at least one."""
    topic, number = partitions[0]
    some = "1 partition has" if len(partitions) == 1 else f"{len(partitions)} partitions have"
    return BrokerUnreachable(
        f"cannot {doing}: {some} no leader ({topic}-{number})",
        hint="start the brokers that hold the newest records; `cdc why` lists partitions and brokers",
        command="cdc why",
        topic=topic,
    )
