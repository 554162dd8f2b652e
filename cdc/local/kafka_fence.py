"""What a lone broker needs before it may start again after a crash: to be fenced by its own controller. Pure.

A broker that was killed is alive to the controller until its session ends, so the one that starts in its place
finds itself the leader of every partition and goes on with the transactions whose commit was acknowledged but whose
markers were not written yet. Then the session ends, no partition has a leader for a moment, and to Kafka 4.3 that is
the same as a topic that was deleted (`KRaftMetadataCache.getPartitionLeaderEndpoint`): the coordinator leaves the
markers out and writes that the transaction is complete. The rows stay invisible to read_committed for ever. Seen
once in ten kills within milliseconds of a commit (4.3.1, busy machine, 2026-11-21); with replicas a partition has
another leader, so it is only a lone broker that must not be judged by it.

So after a crash the controller runs alone first, with a session that ends at once. The broker that starts next finds
no leaders, is let in immediately, and leads again only when it can take markers. And while it runs its session is
long, since a pause that ends it does the same harm.
"""

from __future__ import annotations

import re
from typing import Final

from cdc.local.ports import LOOPBACK

# What says that the last end was orderly: Kafka writes it into each of its data folders then.
CLEAN_END_FILE: Final = ".kafka_cleanshutdown"
METADATA_FOLDER: Final = "__cluster_metadata-0"

# Warnings and worse, and what the controller says about brokers.
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
# A registration says whether it is fenced; a change says 1 for fenced now, -1 for let in now, 0 for neither.
_FENCED: Final = re.compile(
    r"\bRegisterBrokerRecord\(brokerId=\d+,.*?\bfenced=(true|false)"
    r"|\bBrokerRegistrationChangeRecord\(brokerId=\d+,.*?\bfenced=(-1|1)\b"
)


def render_fencing_properties(*, node_id: int, data: str, controller_port: int) -> str:
    """The text of a ``server.properties`` that runs the controller without the broker."""
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
    """Whether a controller that writes these lines is active and has no broker that is let in.

    Its log is asked since a controller answers no question about that; the lines are those of the pinned version.
    """
    fenced = True  # a broker that never came has nothing to be kept from
    active = False
    for line in lines:
        active = active or _ACTIVATION in line
        match = _FENCED.search(line)
        if match is not None:
            fenced = match[1] == "true" if match[1] else match[2] == "1"
    return active and fenced
