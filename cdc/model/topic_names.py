"""Builds the names of Kafka topics: injective, legal, and never changed.

A data topic is ``<name>.<schema>.<table>``. Letters, digits and ``_`` stay; every other byte of the UTF-8 name becomes
``-`` and two hex digits, so two tables never share a topic. Kafka allows 249 characters. A longer name is cut and ends
in ``-h`` and 16 hex digits of the SHA-256 of the whole name; ``h`` is not a hex digit, so no uncut name looks like it.
"""

from __future__ import annotations

import hashlib
import re
import string
from typing import Final

VIEWS: Final = "views"
"""The schema part of a published view's topic; a captured schema with this name shares its topics."""

TOPIC_LENGTH_MAX: Final = 249  # org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH
_ESCAPED: Final = re.compile(rb"-([0-9a-f]{2})")
_PLAIN: Final = frozenset((string.ascii_letters + string.digits + "_").encode())


def escape(identifier: str) -> str:
    """Return an identifier as one part of a topic name."""
    return "".join(chr(byte) if byte in _PLAIN else f"-{byte:02x}" for byte in identifier.encode())


def partition_text(topic: str, index: int) -> str:
    """Return ``topic-3``, as the cut index and manifests name a partition."""
    return f"{topic}-{index}"


def parse_partition(text: str) -> tuple[str, int]:
    """Read ``topic-3``. The topic may contain dashes."""
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def data_topic(name: str, namespace: str, table: str) -> str:
    """Return the topic of a table."""
    topic = f"{name}.{escape(namespace)}.{escape(table)}"
    if len(topic) <= TOPIC_LENGTH_MAX:
        return topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
    return f"{topic[: TOPIC_LENGTH_MAX - 18]}-h{digest}"


def table_of(topic: str) -> tuple[str, str]:
    """Return schema and table of a data topic; those of a cut name are truncated. `name` must not contain a dot."""
    _, _, rest = topic.partition(".")
    namespace, _, table = rest.partition(".")
    return unescape(namespace), unescape(table)


def unescape(part: str) -> str:
    """Return the identifier that `escape` encoded."""
    found = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), part.encode())
    return found.decode(errors="replace")


def progress_topic(name: str) -> str:
    """The restart state; compacted."""
    return f"{name}.__progress"


def cuts_topic(name: str) -> str:
    """The cut index; one record per Kafka transaction."""
    return f"{name}.__cuts"


def signals_topic(name: str) -> str:
    """Signals to capture."""
    return f"{name}.__signals"


def transaction_topic(name: str) -> str:
    """Begin and end of source transactions, if enabled."""
    return f"{name}.transaction"


def message_topic(name: str) -> str:
    """Logical messages, if enabled."""
    return f"{name}.message"


def heartbeat_topic(name: str) -> str:
    """Periodic positions of capture, if enabled."""
    return f"{name}.heartbeat"


def actions_topic(name: str) -> str:
    """What operators did: one record per action."""
    return f"{name}.__actions"


def refused_events_topic(name: str) -> str:
    """Outbox events that cannot be published."""
    return f"{name}.__refused"


def schema_topic(name: str) -> str:
    """Every schema with which a row was ever encoded; compacted."""
    return f"{name}.__schema"


def sink_group(name: str, sink: str) -> str:
    """The consumer group of a sink; also its transactional id, where it has one."""
    return f"{name}.sink.{sink}"


def sink_state_topic(name: str, sink: str) -> str:
    """The state of a sink: blocked keys, pauses, reports; compacted."""
    return f"{name}.__blocked.{sink}"


def dead_letters_topic(name: str, sink: str) -> str:
    """Records that the store of a sink refused."""
    return f"{name}.__dlq.{sink}"


def view_topic(name: str, view: str) -> str:
    """The topic of a published view, like that of a table in the schema ``views``."""
    return data_topic(name, VIEWS, view)


def view_cuts_topic(name: str, lake: str) -> str:
    """The cut index of the views that a lake publishes; one record per Kafka transaction, the last one counts.

    Views have their own cut index because capture detects every foreign record in its topics.
    """
    return f"{name}.__cuts.{lake}"


def view_schema_topic(name: str, lake: str) -> str:
    """Every schema with which a row of a published view was ever encoded; compacted."""
    return f"{name}.__schema.{lake}"


def matches_topic(name: str) -> str:
    """Matches of stored queries."""
    return f"{name}.__matches"
