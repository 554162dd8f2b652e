"""Catalog facts about captured tables, from which DDL that changes existing rows without an event is detected.

They are records of ``<name>.__progress``, one per table (`cdc.progress.record_format` has their keys). DDL on one table
therefore writes one small record: with 2,000 tables in one record, each DDL would write 1 MB.
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
    "recreated",  # written by earlier versions; now `replaced`
    "replaced",
    "returned",
    "joined",
    "left",
]


class ColumnFacts(NamedTuple):
    """A published column.

    Attributes:
        number: attnum; never reused in a table.
        name: without quotes.
        type_oid: pg_type.oid.
        type_modifier: atttypmod, -1 for none.
        xmin: of its pg_attribute row; every change of the column changes it.
        default: oid of its pg_attrdef row, 0 for none; ALTER TYPE creates a new one.
        missing: rows older than ADD COLUMN show a stored default (atthasmissing), in any partition.
        settable: whether UPDATE may set it; generated columns and identities GENERATED ALWAYS cannot be set.
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
    """Generated columns of a table that the stream does not contain, for one reason.

    Attributes:
        why: a clause, such as "PostgreSQL 17 cannot publish generated columns".
        stored: whether their values are stored, so that a reader may miss them; False for virtual columns.
        sql: the statement that publishes them; empty if the server has none.
    """

    table: str
    columns: tuple[str, ...]
    why: str
    stored: bool = True
    sql: str = ""


class LeafFacts(NamedTuple):
    """A table with rows: the captured table itself, or one of its partitions.

    Attributes:
        oid: pg_class.oid.
        namespace: its schema.
        name: without the schema.
        file_node: relfilenode; changes with a rewrite, VACUUM FULL, CLUSTER or TRUNCATE. A new one alone means
            nothing, see `cdc.model.ddl_finding`.
        born: it was created as a partition of this table, so it has no earlier rows.
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
        name: without the schema.
        member: oid of its pg_publication_rel row; 0 if the publication has its schema or all tables.
        created_xid: transaction that created it, 32 bits.
        columns: the published ones, in table order.
        leaves: its partitions with rows, or the table itself.
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
    """A DDL change after which rows in the log may differ from the table.

    Attributes:
        kind: what happened.
        table: ``schema.table``.
        what: one sentence, without row values.
        hint: what the operator can do.
        command: a statement or command for that; may be empty.
        epoch: epoch of the log that the LSNs belong to.
        since_lsn: it happened after this LSN, that of the previous reading. For a repeated finding, of the first one.
        lsn: it happened before this LSN, the end of WAL when it was detected. For a repeated finding, of the last one.
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
    """Facts that concern all tables, at the moment when they were recorded.

    Attributes:
        lsn: the end of the server's WAL before the reading.
        xid: 64 bits; every transaction below it had ended.
        all_tables: whether the publication is FOR ALL TABLES.
        schemas: schemas that the publication has as a whole.
        selected: `source.tables`.
    """

    version: int = CATALOG_VERSION
    lsn: int
    xid: int
    all_tables: bool
    schemas: tuple[str, ...]
    selected: tuple[str, ...]


class TableRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Facts and findings of a table; `facts` is None if it is no longer captured and has open findings."""

    version: int = CATALOG_VERSION
    facts: TableFacts | None
    findings: tuple[DdlFinding, ...] = ()


class AcceptedFindings(msgspec.Struct, frozen=True, kw_only=True):
    """An operator accepted the findings of a table up to `lsn` of `epoch`, and those of earlier epochs."""

    version: int = CATALOG_VERSION
    epoch: int
    lsn: int

    def covers(self, finding: DdlFinding) -> bool:
        """Return whether this acceptance includes the finding."""
        return (finding.epoch, finding.lsn) <= (self.epoch, self.lsn)
