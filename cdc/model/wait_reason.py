"""Says in words what a sink in state WAITING waits for. Pure."""

from __future__ import annotations

from typing import Final

_REASONS: Final = {
    "broker": "it waits for Kafka",
    "store": "it waits for its store",
    "tables": "its tables are not captured, or its views not published, yet",
    "capture": "it waits for the first start of capture",
    "paused": "an operator paused it",
    "source": "it waits for PostgreSQL",
    "repair": "it waits until capture has read every table again after a repair of the log",
    "disk": "it waits for space on disk",
    "credential": "a password or token cannot be read",
    "machine": "the machine has no memory or files left",
}


def reason_text(reason: str) -> str:
    """Return a sentence for a reason of a state; an unknown reason as it is."""
    return _REASONS.get(reason, reason)
