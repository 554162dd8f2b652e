"""Names of Kafka topics: injective, legal, the same for ever.

A data topic is ``<name>.<schema>.<table>``. Letters, digits and ``_`` stand for themselves; every other byte of the
UTF-8 name is ``-`` and two hex digits, so two tables never share a topic. Kafka takes 249 characters; what is
longer is cut and ends in ``-h`` and 16 hex digits of the whole name's SHA-256 (``h`` is no hex digit, so no
uncut name looks like it).
"""

from __future__ import annotations

import hashlib
import re
import string
from typing import Final

VIEWS: Final = "views"
"""The schema that published views stand in; a captured one of that name shares its topics."""

TOPIC_LENGTH_MAX: Final = 249  # org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH
_ESCAPED: Final = re.compile(rb"-([0-9a-f]{2})")
_PLAIN: Final = frozenset((string.ascii_letters + string.digits + "_").encode())


def escape(identifier: str) -> str:
    """One part of a topic name."""
    return "".join(chr(byte) if byte in _PLAIN else f"-{byte:02x}" for byte in identifier.encode())


def partition_text(topic: str, index: int) -> str:
    """Return ``topic-3``, as the cut index and manifests name a partition."""
    return f"{topic}-{index}"


def parse_partition(text: str) -> tuple[str, int]:
    """Read ``topic-3``. The topic may contain dashes."""
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def data_topic(name: str, namespace: str, table: str) -> str:
    """The topic of a table."""
    topic = f"{name}.{escape(namespace)}.{escape(table)}"
    if len(topic) <= TOPIC_LENGTH_MAX:
        return topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
    return f"{topic[: TOPIC_LENGTH_MAX - 18]}-h{digest}"


def table_of(topic: str) -> tuple[str, str]:
    """Schema and table of a data topic; of one that was cut, as far as it is there. The name before may have no dot."""
    _, _, rest = topic.partition(".")
    namespace, _, table = rest.partition(".")
    return unescape(namespace), unescape(table)


def unescape(part: str) -> str:
    """What `escape` made a part of a topic's name of."""
    found = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), part.encode())
    return found.decode(errors="replace")


def progress_topic(name: str) -> str:
    """The restart state; compacted."""
    return f"{name}.__progress"


def cuts_topic(name: str) -> str:
    """The cut index; one record per Kafka transaction."""
    return f"{name}.__cuts"


def signals_topic(name: str) -> str:
    """What somebody asks of capture."""
    return f"{name}.__signals"


def transaction_topic(name: str) -> str:
    """Which source transactions there were, when that is asked for."""
    return f"{name}.transaction"


def message_topic(name: str) -> str:
    """Logical messages, when they are asked for."""
    return f"{name}.message"


def heartbeat_topic(name: str) -> str:
    """How far capture is, again and again, when that is asked for."""
    return f"{name}.heartbeat"


def refused_events_topic(name: str) -> str:
    """Events of the outbox that cannot be published as they are."""
    return f"{name}.__refused"


def schema_topic(name: str) -> str:
    """Every schema a row was ever encoded with; compacted."""
    return f"{name}.__schema"


def sink_group(name: str, sink: str) -> str:
    """The consumer group of a sink; also its transactional id, where it has one."""
    return f"{name}.sink.{sink}"


def sink_state_topic(name: str, sink: str) -> str:
    """What a sink keeps about itself: blocked keys, and whether it is paused; compacted."""
    return f"{name}.__blocked.{sink}"


def dead_letters_topic(name: str, sink: str) -> str:
    """Records that the store of a sink would not take."""
    return f"{name}.__dlq.{sink}"


def view_topic(name: str, view: str) -> str:
    """The topic of a published view: that of a table of the schema ``views``."""
    return data_topic(name, VIEWS, view)


def view_cuts_topic(name: str, lake: str) -> str:
    """The cut index of the views that a lake publishes; one record per Kafka transaction, of which the last counts."""
    return f"{name}.__cuts.{lake}"


def view_schema_topic(name: str, lake: str) -> str:
    """Every schema a row of a published view was ever encoded with; compacted."""
    return f"{name}.__schema.{lake}"


def matches_topic(name: str) -> str:
    """What stored queries match."""
    return f"{name}.__matches"
