"""Names of the outbox's schema and tables, as the writer, the models and the migrations use them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outbox.errors import OutboxError

_IDENTIFIER_BYTES_MAX: Final = 63  # NAMEDATALEN - 1
_SUFFIX_BYTES: Final = 13  # "_p20261123", "_one_payload"


@dataclass(frozen=True, slots=True)
class Names:
    """Names of the schema and its tables. Raises OutboxError for a name that PostgreSQL does not accept."""

    schema: str = "outbox"
    outbox: str = "outbox"
    inbox: str = "inbox"
    heartbeat: str = "heartbeat"
    event_store: str = "event_store"
    snapshot: str = "snapshot"
    dead_letter: str = "dead_letter"

    def __post_init__(self) -> None:
        for name in (self.schema, *self.tables):
            if not name or "\0" in name or len(name.encode()) > _IDENTIFIER_BYTES_MAX:
                raise OutboxError(f"invalid schema or table name {name!r}: expected 1 to {_IDENTIFIER_BYTES_MAX} bytes")
        if len(self.outbox.encode()) > _IDENTIFIER_BYTES_MAX - _SUFFIX_BYTES:
            raise OutboxError(f"table name {self.outbox!r} is too long for the names of its partitions")
        if len(set(self.tables)) != len(self.tables):
            raise OutboxError("two of the outbox's tables have the same name")

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the tables, without the schema."""
        return (self.outbox, self.inbox, self.heartbeat, self.event_store, self.snapshot, self.dead_letter)

    def qualified(self, table: str) -> str:
        """Return ``"schema"."table"``, quoted for a statement."""
        return f"{quoted(self.schema)}.{quoted(table)}"


def quoted(identifier: str) -> str:
    """Quote an identifier for a statement."""
    return '"' + identifier.replace('"', '""') + '"'
