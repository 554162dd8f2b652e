"""Names of Kafka topics: injective, legal, the same for ever.

A data topic is ``<name>.<schema>.<table>``. Letters, digits and ``_`` stand for themselves; every other byte of the
UTF-8 name is ``-`` and two hex digits, so two tables never share a topic. Kafka takes 249 characters; what is
longer is cut and ends in ``-h`` and 16 hex digits of the whole name's SHA-256 (``h`` is no hex digit, so no
uncut name looks like it).
"""

from __future__ import annotations

import hashlib
import string
from typing import Final

TOPIC_LENGTH_MAX: Final = 249  # org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH
_PLAIN: Final = frozenset((string.ascii_letters + string.digits + "_").encode())


def escape(identifier: str) -> str:
    """One part of a topic name."""
    return "".join(chr(byte) if byte in _PLAIN else f"-{byte:02x}" for byte in identifier.encode())


def data_topic(name: str, namespace: str, table: str) -> str:
    """The topic of a table."""
    topic = f"{name}.{escape(namespace)}.{escape(table)}"
    if len(topic) <= TOPIC_LENGTH_MAX:
        return topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
    return f"{topic[: TOPIC_LENGTH_MAX - 18]}-h{digest}"


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


def schema_topic(name: str) -> str:
    """Every schema a row was ever encoded with; compacted."""
    return f"{name}.__schema"
