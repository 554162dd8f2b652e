"""Fences a single Kafka broker by its own controller after a crash, before the broker restarts. Pure.

Without this, a crash can lose a committed transaction. The controller considers a killed broker alive until its session
ends. The restarted broker therefore finds itself the leader of every partition, and completes the transactions whose
commit was acknowledged but whose markers were not written. When the old session ends, no partition has a leader for a
moment. Kafka 4.3 treats that like a deleted topic (`KRaftMetadataCache.getPartitionLeaderEndpoint`): the coordinator
skips the markers and records the transaction as complete. Its rows stay invisible to read_committed readers forever.
This happened once in ten kills within milliseconds of a commit (4.3.1, busy machine, 2026-11-21). It concerns a single
broker only: with replicas, a partition has another leader.

So after a crash the controller first runs alone, with a session that ends at once. The broker that starts next finds no
leaders, is unfenced immediately, and leads again only when it can write markers. While it runs, its session is long,
because a pause that ends the session does the same harm.
"""

from __future__ import annotations

import re
from typing import Final

from cdc.local.ports import LOOPBACK

# Kafka writes this file into its data folders at an orderly shutdown.
CLEAN_END_FILE: Final = ".kafka_cleanshutdown"
METADATA_FOLDER: Final = "__cluster_metadata-0"

# Warnings and worse, and the controller's messages about brokers.
FENCING_LOG4J: Final = """\
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
    Logger:
      - {name: org.apache.kafka.controller.ClusterControlManager, level: INFO}
      - {name: org.apache.kafka.controller.QuorumController, level: INFO}
"""

_ACTIVATION: Final = "Performing controller activation"
# A registration has fenced=true or false; a change has 1 for fenced, -1 for unfenced, 0 for no change.
_FENCED: Final = re.compile(
    r"\bRegisterBrokerRecord\(brokerId=\d+,.*?\bfenced=(true|false)"
    r"|\bBrokerRegistrationChangeRecord\(brokerId=\d+,.*?\bfenced=(-1|1)\b"
)


def render_fencing_properties(*, node_id: int, data: str, controller_port: int) -> str:
    """Return the text of a ``server.properties`` that runs the controller without the broker."""
    address = f"{LOOPBACK}:{controller_port}"
    properties = {
        "process.roles": "controller",
        "node.id": str(node_id),
        "controller.quorum.voters": f"{node_id}@{address}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://{address}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "broker.session.timeout.ms": "100",
        "broker.heartbeat.interval.ms": "50",
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def is_fenced(lines: list[str]) -> bool:
    """Return whether a controller with these log lines is active and has no unfenced broker.

    A controller has no API for this, so its log is parsed. The lines are those of the pinned version.
    """
    fenced = True  # a broker that never registered needs no fencing
    active = False
    for line in lines:
        active = active or _ACTIVATION in line
        match = _FENCED.search(line)
        if match is not None:
            fenced = match[1] == "true" if match[1] else match[2] == "1"
    return active and fenced
