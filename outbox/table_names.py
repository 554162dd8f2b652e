"""What the tables are called. Pure; the writer, the models and the migrations read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outbox.errors import OutboxError

_IDENTIFIER_BYTES_MAX: Final = 63  # NAMEDATALEN - 1
_SUFFIX_BYTES: Final = 13  # "_p20261123", "_one_payload"


@dataclass(frozen=True, slots=True)
class Names:
    """Schema and tables. Raises OutboxError for what PostgreSQL does not take as a name."""

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
                raise OutboxError(f"{name!r} is no name of a schema or table: 1 to {_IDENTIFIER_BYTES_MAX} bytes")
        if len(self.outbox.encode()) > _IDENTIFIER_BYTES_MAX - _SUFFIX_BYTES:
            raise OutboxError(f"{self.outbox!r} leaves no room for the names of its partitions and constraints")
        if len(set(self.tables)) != len(self.tables):
            raise OutboxError("two of the outbox's tables have the same name")

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, without their schema."""
        return (self.outbox, self.inbox, self.heartbeat, self.event_store, self.snapshot, self.dead_letter)

    def qualified(self, table: str) -> str:
        """``"schema"."table"``, to stand in a statement."""
        return f"{quoted(self.schema)}.{quoted(table)}"


def quoted(identifier: str) -> str:
    """An identifier as it stands in a statement, whatever it holds."""
    return '"' + identifier.replace('"', '""') + '"'
