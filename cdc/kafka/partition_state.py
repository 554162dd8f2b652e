"""Reads the leaders and replicas of a pipeline's partitions, and how long Kafka takes for a small request."""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient

from cdc.config.settings import Kafka
from cdc.kafka import client_options
from cdc.kafka.callbacks import callbacks
from cdc.kafka.client_errors import attempt, guarded, translate
from cdc.kafka.client_events import ClientEvents
from cdc.kafka.sasl_rotation import create

_TRIPS: Final = 3  # the fastest counts: a pause of the broker's garbage collector is not the network


class PartitionState(NamedTuple):
    """A partition: whether it has a leader, and how many of its replicas are in sync."""

    name: str
    has_leader: bool
    in_sync: int
    replicas: int


class ClusterState(NamedTuple):
    """The partitions of a pipeline, the number of brokers, and the time of a request once connected."""

    broker_count: int
    partitions: list[PartitionState]
    round_trip_s: float


def cluster_state(kafka: Kafka, prefix: str, *, timeout_s: float) -> ClusterState:
    """Read the topics whose names begin with `prefix`. Raises BrokerUnreachable, BrokerRefused, ConfigError."""
    events = ClientEvents()
    config: dict[str, Any] = {
        **client_options.admin_options(kafka, client_id="tailrace-why"),
        **callbacks(kafka, events),
    }
    client = create(AdminClient, config, kafka, events)

    def read(topic: str | None) -> Any:
        def failed(error: object) -> Exception:
            attempt(lambda: client.poll(0))  # delivers pending error events
            return translate(error, doing="read the topics", events=events, servers=kafka.bootstrap)

        return guarded(lambda: client.list_topics(topic, timeout=timeout_s), failed)  # type: ignore[arg-type]

    cluster = read(None)
    found = [
        PartitionState(f"{name}-{number}", one.leader >= 0, len(one.isrs), len(one.replicas))
        for name, topic in sorted(cluster.topics.items())
        if name.startswith(prefix)
        for number, one in sorted(topic.partitions.items())
    ]
    one_topic = next(iter(cluster.topics), None)
    return ClusterState(len(cluster.brokers), found, min(_timed(lambda: read(one_topic)) for _ in range(_TRIPS)))


def _timed(call: Any) -> float:
    began_s = time.monotonic()
    call()
    return time.monotonic() - began_s
