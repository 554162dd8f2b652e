"""A table as one Relation message of the stream describes it: the schema of its time, not of now.

https://www.postgresql.org/docs/18/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ReplicaIdentity(Enum):
    """What an UPDATE or DELETE shows of the old row; the value is PostgreSQL's own letter."""

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
        identity: part of the replica identity (with FULL every column is).
    """

    name: str
    type_oid: int
    type_modifier: int
    identity: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A Relation message. `namespace` is already ``pg_catalog`` where the wire has it empty."""

    oid: int
    namespace: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[Column, ...]

    @property
    def table(self) -> str:
        """``schema.table``, for people and labels."""
        return f"{self.namespace}.{self.name}"
