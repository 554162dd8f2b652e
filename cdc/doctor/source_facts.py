"""The facts that the checks judge: the source as `cdc.doctor.gather` read it. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.errors import TailraceError
from cdc.model.failover import NO_FAILOVER, FailoverFacts
from cdc.replication.blockers import Blocker
from cdc.replication.publication import PublicationFacts
from cdc.replication.slot import SlotFacts
from cdc.replication.table_shape import SourceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFacts:
    """The role in source.dsn. `can_create`: it has CREATE on the database, which a new publication needs."""

    name: str
    superuser: bool
    replication: bool
    can_create: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRights:
    """The role's rights on a table, and facts that only the doctor needs.

    Attributes:
        owned: the role, or a role it is a member of, owns the table.
        candidate_indexes: names of unique indexes that could be its replica identity.
        filtered: row level security hides rows from the role.
        toast_bytes: size of its out-of-line values, including all partitions.
    """

    owner: str
    owned: bool
    can_select: bool
    can_use_schema: bool
    filtered: bool = False
    candidate_indexes: tuple[str, ...] = ()
    toast_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxFacts:
    """The outbox table and the role's rights on it; `owned` as in `TableRights`."""

    table: SourceTable
    owner: str
    owned: bool
    can_select: bool
    can_delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """PostgreSQL at one moment.

    Attributes:
        settings: see `cdc.replication.catalog_queries.WAL_SETTINGS`.
        pooled: a pooler is between us and the server.
        replication_error: why a replication connection was refused; None if it was accepted.
        tables: the tables that source.tables selects.
        rights: by table oid.
        blockers: transactions that a new slot would wait for now.
    """

    version_num: int
    database: str
    in_recovery: bool
    settings: Mapping[str, str]
    slots_used: int
    senders_used: int
    role: RoleFacts
    pooled: bool
    replication_error: TailraceError | None
    slot: SlotFacts
    publication: PublicationFacts | None
    tables: tuple[SourceTable, ...]
    rights: Mapping[int, TableRights] = field(default_factory=dict)
    blockers: tuple[Blocker, ...] = ()
    failover: FailoverFacts = NO_FAILOVER
    outbox: OutboxFacts | None = None

    @property
    def published(self) -> list[SourceTable]:
        """All tables that belong in the publication, including the outbox."""
        tables = [table for table in self.tables if not table.problem]
        there = self.outbox is not None and not self.outbox.table.problem and self.outbox.table not in tables
        return [*tables, self.outbox.table] if there and self.outbox is not None else tables
