"""A table as a Relation message of the stream describes it: its schema at that time, not the current one.

https://www.postgresql.org/docs/18/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ReplicaIdentity(Enum):
    """Which columns of the old row an UPDATE or DELETE contains; the values are PostgreSQL's letters."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a Relation.

    Attributes:
        name: as in the catalog, without quotes.
        type_oid: pg_type.oid.
        type_modifier: atttypmod, -1 for none.
        identity: part of the replica identity (with FULL, every column is).
    """

    name: str
    type_oid: int
    type_modifier: int
    identity: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A Relation message. `namespace` is ``pg_catalog`` where the message has an empty one."""

    oid: int
    namespace: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[Column, ...]

    @property
    def table(self) -> str:
        """``schema.table``, for messages and labels."""
        return f"{self.namespace}.{self.name}"
