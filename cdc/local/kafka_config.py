"""The configuration that a local Kafka broker is run with, as text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cdc.local.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

NODE_ID: Final = 1

# Warnings and worse: what Kafka says at INFO at every start is 400 lines.
LOG4J: Final = """\
Configuration:
  status: error
  Appenders:
    Console:
      name: STDOUT
      PatternLayout: {pattern: "[%d] %p %m (%c)%n"}
  Loggers:
    Root:
      level: WARN
      AppenderRef: [{ref: STDOUT}]
"""

# What makes one broker a good one to develop on, wherever it runs; containers get the same.
SHARED_PROPERTIES: Final[Mapping[str, str]] = {
    # One broker: every internal topic has one replica, and few partitions to open at a start.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Members of groups that the broker deals (KIP-848) learn of a change by a heartbeat, else every 5 s.
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    # A topic made by accident has the wrong partitions and is not compacted.
    "auto.create.topics.enable": "false",
    # A row of PostgreSQL may be far larger than Kafka's default of 1 MiB.
    "message.max.bytes": str(32 << 20),
    "num.network.threads": "2",
    "num.io.threads": "2",
    # Compaction within seconds, so that what it does to topics is seen in development.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
}


def render_properties(*, data: str, port: int, controller_port: int, settings: Mapping[str, str]) -> str:
    """The text of ``server.properties``; `settings` go over ours."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"{NODE_ID}@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "log.dirs": data,
        # A broker that hangs for a while keeps its partitions, see `cdc.local.kafka_fence`.
        "broker.session.timeout.ms": "60000",
        **SHARED_PROPERTIES,
        **settings,
    }
    return "".join(f"{name}={_escape(value)}\n" for name, value in properties.items())


def render_meta(cluster_id: str, directory_id: str) -> str:
    """The text of ``meta.properties``, the identity of a data folder, as Kafka's storage tool writes it."""
    return f"version=1\nnode.id={NODE_ID}\ncluster.id={cluster_id}\ndirectory.id={directory_id}\n"


def _escape(value: str) -> str:
    """A value as java.util.Properties reads it back."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
