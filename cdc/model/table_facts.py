"""What the catalog says of captured tables, as far as rows that are there already may change by it without an event.

Records of ``<name>.__progress`` beside progress and identity (`cdc.progress.record_format` has their keys): one a
table, so that DDL of one table writes one small record, however many tables there are.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

CATALOG_VERSION = 1

FindingKind = Literal[
    "column_filled",
    "type_changed",
    "values_rewritten",
    "partition_attached",
    "partition_left",
    "renamed",
    "recreated",  # of versions that called it so; `replaced` since
    "replaced",
    "joined",
    "left",
]


class ColumnFacts(NamedTuple):
    """A published column.

    Attributes:
        number: attnum; never used twice in a table.
        name: without quotes.
        type_oid: pg_type.oid.
        type_modifier: atttypmod, -1 for none.
        xmin: of its pg_attribute row: any change of the column gives another one.
        default: oid of its pg_attrdef row, 0 for none; ALTER TYPE makes it anew.
        missing: rows from before ADD COLUMN show a stored default (atthasmissing), in any partition.
        settable: UPDATE may set it; generated ones, and identities GENERATED ALWAYS, it may not.
    """

    number: int
    name: str
    type_oid: int
    type_modifier: int
    xmin: int
    default: int
    missing: bool
    settable: bool


class ColumnsLeftOut(NamedTuple):
    """Generated columns of a table that the stream does not have, for one reason.

    Attributes:
        why: a clause, as "PostgreSQL 17 cannot publish generated columns".
        stored: their values are stored, so a reader may miss them; False: they are virtual.
        sql: the statement that publishes them; empty where the server has none.
    """

    table: str
    columns: tuple[str, ...]
    why: str
    stored: bool = True
    sql: str = ""


class LeafFacts(NamedTuple):
    """What holds rows: the table itself, or a partition.

    Attributes:
        oid: pg_class.oid.
        namespace: its schema.
        name: without it.
        file_node: relfilenode; another one after a rewrite, VACUUM FULL, CLUSTER or TRUNCATE.
        born: it was made as a partition of this table, so no row of it is from before.
    """

    oid: int
    namespace: str
    name: str
    file_node: int
    born: bool

    @property
    def table(self) -> str:
        """``schema.table``."""
        return f"{self.namespace}.{self.name}"


class TableFacts(msgspec.Struct, frozen=True, array_like=True):
    """A captured table.

    Attributes:
        oid: pg_class.oid.
        namespace: its schema.
        name: without it.
        member: oid of its pg_publication_rel row; 0 when the publication has it by schema, or has all tables.
        created_xid: of the transaction that made it, 32 bits.
        columns: those that are published, in table order.
        leaves: the table itself unless it is partitioned.
    """

    oid: int
    namespace: str
    name: str
    member: int
    created_xid: int
    columns: tuple[ColumnFacts, ...]
    leaves: tuple[LeafFacts, ...]

    @property
    def table(self) -> str:
        """``schema.table``."""
        return f"{self.namespace}.{self.name}"


class DdlFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a table may not be in the log as they are in the table now.

    Attributes:
        kind: what happened.
        table: ``schema.table``.
        what: one sentence, without row values.
        hint: what can be done.
        command: a statement or command for that; may be empty.
        epoch: of the source's history that the LSNs are of.
        since_lsn: it happened after this: the look before saw nothing of it. Found again: the first time.
        lsn: it happened before this, where the server's WAL was when it was noticed. Found again: the last time.
    """

    kind: FindingKind
    table: str
    what: str
    hint: str
    command: str = ""
    epoch: int
    since_lsn: int
    lsn: int


class CatalogScope(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of all tables at the moment the facts were recorded.

    Attributes:
        lsn: where the server's WAL was before the look.
        xid: 64 bits; every transaction below it had ended.
        all_tables: the publication is FOR ALL TABLES.
        schemas: those that the publication has as a whole.
        selected: `source.tables`.
    """

    version: int = CATALOG_VERSION
    lsn: int
    xid: int
    all_tables: bool
    schemas: tuple[str, ...]
    selected: tuple[str, ...]


class TableRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a table; `facts` is None for one that is not captured any more and has open findings."""

    version: int = CATALOG_VERSION
    facts: TableFacts | None
    findings: tuple[DdlFinding, ...] = ()


class AcceptedFindings(msgspec.Struct, frozen=True, kw_only=True):
    """An operator has seen to the findings of a table up to `lsn` of `epoch`, and to those of earlier epochs."""

    version: int = CATALOG_VERSION
    epoch: int
    lsn: int

    def covers(self, finding: DdlFinding) -> bool:
        """Whether the finding is settled by it."""
        return (finding.epoch, finding.lsn) <= (self.epoch, self.lsn)
