"""Renders the configuration files of a local Kafka broker. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cdc.local.ports import LOOPBACK

NODE_ID: Final = 1

# Warnings and worse: at INFO every start logs 400 lines.
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

# Settings of a single development broker, also used for brokers in containers.
SHARED_PROPERTIES: Final[Mapping[str, str]] = {
    # One broker: every internal topic has one replica, and few partitions for a quick start.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Members of groups of the new protocol (KIP-848) learn about a rebalance by heartbeat, by default every 5 s.
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    # A topic that is created by accident has the wrong number of partitions and is not compacted.
    "auto.create.topics.enable": "false",
    # A row of PostgreSQL may be far larger than Kafka's default of 1 MiB.
    "message.max.bytes": str(32 << 20),
    "num.network.threads": "2",
    "num.io.threads": "2",
    # Compact within seconds, so that its effects are visible in development.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
}


def render_properties(*, data: str, port: int, controller_port: int, settings: Mapping[str, str]) -> str:
    """Return the text of ``server.properties``; `settings` override ours."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"{NODE_ID}@{LOOPBACK}:{controller_port}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "log.dirs": data,
        # A broker that hangs for a while must keep its partitions, see `cdc.local.kafka_fence`.
        "broker.session.timeout.ms": "60000",
        **SHARED_PROPERTIES,
        **settings,
    }
    return "".join(f"{name}={_escape(value)}\n" for name, value in properties.items())


def render_meta(cluster_id: str, directory_id: str) -> str:
    """Return the text of ``meta.properties``, the identity of a data folder, as Kafka's storage tool writes it."""
    return f"version=1\nnode.id={NODE_ID}\ncluster.id={cluster_id}\ndirectory.id={directory_id}\n"


def _escape(value: str) -> str:
    """Escape a value for java.util.Properties."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
