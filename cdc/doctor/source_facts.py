"""What the checks look at: the source as it is now, read once by `cdc.doctor.gather`. Values only."""

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
    """The role we connect as. `can_create`: CREATE on the database, which a new publication needs."""

    name: str
    superuser: bool
    replication: bool
    can_create: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRights:
    """What the role may do with a table, and facts of it that only the doctor wants.

    Attributes:
        owned: it is of the role, or of one the role is a member of.
        candidate_indexes: names of unique indexes that could be its replica identity.
        filtered: row level security hides rows from the role.
        toast_bytes: size of its out-of-line values, with all its partitions.
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
    """The outbox's table, and what the role may do with it; `owned` by it or a role that it is in."""

    table: SourceTable
    owner: str
    owned: bool
    can_select: bool
    can_delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """PostgreSQL, as one look found it.

    Attributes:
        settings: see `cdc.replication.catalog_queries.WAL_SETTINGS`.
        pooled: something answers between us and the server.
        replication_error: why a replication connection was refused; None when it was not.
        tables: what source.tables selects.
        rights: by table oid.
        blockers: what a new slot would wait for now.
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
        """All tables that are to be in the publication, the outbox among them."""
        tables = [table for table in self.tables if not table.problem]
        there = self.outbox is not None and not self.outbox.table.problem and self.outbox.table not in tables
        return [*tables, self.outbox.table] if there and self.outbox is not None else tables
