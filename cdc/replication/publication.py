"""The publication: which tables PostgreSQL puts into the stream, and as what.

Made and extended here when the configuration allows it, never narrowed: a change of a publication takes effect in the
middle of the stream. `cdc.replication.generated_columns` decides about generated columns. The statements are pure text,
so that a DBA can run them.

https://www.postgresql.org/docs/18/sql-createpublication.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, LiteralString

import psycopg
from psycopg import sql

from cdc.errors import SourceRefused
from cdc.replication.catalog_queries import reading
from cdc.replication.connect import Connection
from cdc.replication.error_mapping import translate
from cdc.replication.table_shape import SourceTable

_NAMED_MAX: Final = 5  # tables a message names; doctor names all
_PUBLISHED: Final = "insert, update, delete, truncate"
GENERATED_SINCE: Final = 180000
"""server_version_num from which on a publication may have stored generated columns."""
_LOCKED_MAX: Final = 5  # tables that are waited for in one go
_LOCK_TIMEOUT: Final = "set local lock_timeout = '1s'"  # others queue behind a statement that waits for a lock

_FACTS: Final = """
select p.oid::int8, p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,
       pg_get_userbyid(p.pubowner)::text, pg_has_role(p.pubowner, 'usage'),
       coalesce(to_jsonb(p) ->> 'pubgencols' = 's', false)  -- since 18
from pg_publication p
where p.pubname = %(name)s
"""

# PostgreSQL 15 names columns only where there is a column list; without one it publishes all that are not generated.
_TABLES: Final = """
select g.relid::int8, g.qual is not null, coalesce(r.oid::int8, 0),
       (select array_agg(a.attname::text) from pg_attribute a
        where a.attrelid = g.relid and a.attnum > 0 and not a.attisdropped
          and case when g.attrs is null then a.attgenerated = '' else a.attnum = any(g.attrs::int2[]) end),
       r.prattrs is not null
from pg_publication p
cross join lateral pg_get_publication_tables(p.pubname) g
left join pg_publication_rel r on r.prpubid = p.oid and r.prrelid = g.relid
where p.pubname = %(name)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationFacts:
    """A publication that exists.

    Attributes:
        tables: oids of what it publishes now, roots of partitions with `via_root`, leaves without; with the oid of
            their pg_publication_rel row, which is another one after a table was taken out and put back (0: in it by
            schema or FOR ALL TABLES).
        filtered: those of them with a WHERE clause.
        columns: of each the columns it publishes.
        listed: those of them with a column list.
        generated: it publishes stored generated columns where there is no column list (PostgreSQL 18).
    """

    name: str
    oid: int
    all_tables: bool
    via_root: bool
    insert: bool
    update: bool
    delete: bool
    truncate: bool
    owner: str
    owned: bool
    tables: Mapping[int, int]
    filtered: frozenset[int]
    columns: Mapping[int, frozenset[str]]
    listed: frozenset[int] = frozenset()
    generated: bool = False

    @property
    def complete(self) -> bool:
        """Whether it publishes every kind of row change."""
        return self.insert and self.update and self.delete


@dataclass(frozen=True, slots=True)
class Ensured:
    """What `ensure_publication` found and did; `altered` is the statement that `publish_generated` ran.

    Rows that transactions already open had written to `added` tables are not in the stream (RELIABILITY, "server
    traps"), so they need those waited out and a snapshot. `refused` are tables, by oid, that the server did not let
    us add, and why.
    """

    facts: PublicationFacts
    created: bool
    added: tuple[SourceTable, ...]
    altered: str = ""
    refused: Mapping[int, str] = field(default_factory=dict)


def publication_facts(connection: Connection, name: str) -> PublicationFacts | None:
    """The publication of that name in this database, None when there is none."""
    with reading(f"look at publication {name!r}"):
        row = connection.execute(_FACTS, {"name": name}).fetchone()
        if row is None:
            return None
        published = connection.execute(_TABLES, {"name": name}).fetchall()
    oid, all_tables, via_root, insert, update, delete, truncate, owner, owned, generated = row
    return PublicationFacts(
        name=name,
        oid=oid,
        all_tables=all_tables,
        via_root=via_root,
        insert=insert,
        update=update,
        delete=delete,
        truncate=truncate,
        owner=owner,
        owned=bool(owned),
        tables={relid: member for relid, _, member, _, _ in published},
        filtered=frozenset(relid for relid, has_filter, _, _, _ in published if has_filter),
        columns={relid: frozenset(names or ()) for relid, _, _, names, _ in published},
        listed=frozenset(relid for relid, _, _, _, has_list in published if has_list),
        generated=generated,
    )


def ensure_publication(connection: Connection, name: str, tables: Sequence[SourceTable], create: bool) -> Ensured:  # noqa: FBT001
    """Make sure the publication has all of `tables`, as one transaction.

    With `create` it is made, and tables it lacks are added; otherwise, and for anything else that is wrong with it,
    SourceRefused carries the statement a DBA would run. Tables that PostgreSQL cannot publish are left out.
    """
    wanted = publishable(tables)
    before = publication_facts(connection, name)
    version_num = connection.info.server_version
    statements = to_add(before, name, wanted, version_num)
    refuse_uncreated(before, name, wanted, version_num, create=create)
    if before is not None:
        refuse_unfit(before, wanted)
    if not statements:
        assert before is not None
        return Ensured(before, created=False, added=())
    refused: dict[int, str] = {}
    if before is not None:
        refused = add_tables(connection, name, missing(before, wanted))
    else:
        try:
            connection.execute(statements[0].encode())
        except psycopg.Error as error:
            raise translate(error, f"create publication {name!r}", publication=name) from error
    facts = publication_facts(connection, name)
    if facts is None:
        raise SourceRefused(f"publication {name!r} was dropped by another session just now", publication=name)
    refuse_unfit(facts, wanted)
    added = tuple(table for table in missing(before, wanted) if table.oid not in refused)
    return Ensured(facts, created=before is None, added=added, refused=refused)


def add_tables(connection: Connection, name: str, tables: Sequence[SourceTable]) -> dict[int, str]:
    """Add tables to the publication: all at once, or one by one when that fails.

    Returns those that the server refused, by oid, and why; a table that was dropped meanwhile is refused, too. Waits
    for locks no longer than a moment. Raises SourceUnreachable when the connection broke.
    """
    refused: dict[int, str] = {}
    if not tables or _add(connection, name, tables) is None:
        return refused
    locked = 0
    for table in tables:
        if locked >= _LOCKED_MAX:
            refused[table.oid] = "other tables are locked; it is tried again"
            continue
        error = _add(connection, name, [table])
        locked += isinstance(error, psycopg.errors.LockNotAvailable)
        if error is not None and not isinstance(error, psycopg.errors.DuplicateObject):
            refused[table.oid] = str(error.diag.message_primary or error)
    return refused


def _add(connection: Connection, name: str, tables: Sequence[SourceTable]) -> psycopg.Error | None:
    try:
        with connection.transaction():
            connection.execute(_LOCK_TIMEOUT)
            connection.execute(add_statement(name, tables).encode())
    except psycopg.Error as error:
        if connection.closed:
            raise translate(error, f"add tables to publication {name!r}", publication=name) from error
        return error
    return None


def publishable(tables: Sequence[SourceTable]) -> list[SourceTable]:
    """Those that can be published. Raises SourceRefused when there is none, or one has no usable key."""
    wanted = [table for table in tables if not table.unpublishable]
    refused = [table for table in wanted if table.problem]
    if refused:
        first = refused[0]
        raise SourceRefused(
            f"{len(refused)} of {len(wanted)} tables have no usable key: "
            + "; ".join(f"{table.table}: {table.problem}" for table in refused[:_NAMED_MAX]),
            hint="give each a primary key or a replica identity index, exclude it in source.tables with !, or list it "
            "in source.keyless",
            command="cdc doctor",
            table=first.table,
        )
    if not wanted:
        raise SourceRefused(
            "no table of this database matches source.tables",
            hint='patterns are schema.table, as "public.*"; is it the right database?',
            command="cdc doctor",
        )
    return wanted


def missing(facts: PublicationFacts | None, tables: Sequence[SourceTable]) -> list[SourceTable]:
    """Those of `tables` that are not published."""
    return [table for table in tables if facts is None or table.oid not in facts.tables]


def to_add(facts: PublicationFacts | None, name: str, tables: Sequence[SourceTable], version_num: int = 0) -> list[str]:
    """The statement, if one is needed, that makes the publication or adds what it lacks.

    `version_num` is the server's, for the options of a new publication.
    """
    if facts is None:
        return [create_statement(name, tables, version_num)]
    if not facts.via_root:
        # A root is never listed by a publication of leaves; `refuse_unfit` speaks of it.
        tables = [table for table in tables if not table.partitioned]
    lacking = missing(facts, tables)
    return [add_statement(name, lacking)] if lacking else []


def refuse_uncreated(
    facts: PublicationFacts | None, name: str, tables: Sequence[SourceTable], version_num: int, *, create: bool
) -> None:
    """Raise SourceRefused for a publication that must be made or extended while source.create is false."""
    statements = to_add(facts, name, tables, version_num)
    if create or not statements:
        return
    what = f"lacks {names_of(missing(facts, tables))}" if facts else "does not exist"
    raise SourceRefused(
        f"publication {name!r} {what}, and source.create is false",
        hint="run this as its owner, or let Tailrace do it with source.create = true",
        command=statements[0],
        publication=name,
    )


def refuse_unfit(facts: PublicationFacts, tables: Sequence[SourceTable]) -> None:
    """Raise SourceRefused for a publication that leaves out kinds of changes, or shows partitions as leaves."""
    problem, statement = unfit(facts, tables)
    if problem:
        raise SourceRefused(
            f"publication {facts.name!r} {problem}",
            hint="run this as its owner; what was not published before is not in the log",
            command=statement,
            publication=facts.name,
        )


def unfit(facts: PublicationFacts, tables: Sequence[SourceTable]) -> tuple[str, str]:
    """What is wrong with its options, and the statement that mends it; two empty texts when nothing is."""
    name = sql.Identifier(facts.name).as_string(None)
    if not facts.complete:
        kinds = (("insert", facts.insert), ("update", facts.update), ("delete", facts.delete))
        left_out = " and ".join(kind for kind, published in kinds if not published)
        return f"does not publish {left_out}", f"alter publication {name} set (publish = '{_PUBLISHED}');"
    if not facts.via_root and any(table.partitioned for table in tables):
        statement = f"alter publication {name} set (publish_via_partition_root = true);"
        return "publishes partitions under their own names, not as their table", statement
    return "", ""


def create_statement(name: str, tables: Sequence[SourceTable], version_num: int = 0) -> str:
    """``create publication``; partitions are published as one table, and generated columns where the server can."""
    generated: LiteralString = ", publish_generated_columns = stored" if version_num >= GENERATED_SINCE else ""
    query = sql.SQL(
        "create publication {} for table {}\n    with (publish = {}, publish_via_partition_root = true{});"
    ).format(sql.Identifier(name), table_list(tables), sql.Literal(_PUBLISHED), sql.SQL(generated))
    return query.as_string(None)


def add_statement(name: str, tables: Sequence[SourceTable]) -> str:
    """``alter publication ... add table``."""
    query = sql.SQL("alter publication {} add table {};").format(sql.Identifier(name), table_list(tables))
    return query.as_string(None)


def table_list(tables: Sequence[SourceTable]) -> sql.Composed:
    """Qualified, quoted names with commas. ONLY, so that children by inheritance are their own choice."""
    return sql.SQL(", ").join(sql.SQL("only {}").format(sql.Identifier(t.namespace, t.name)) for t in tables)


def names_of(tables: Sequence[SourceTable]) -> str:
    """The first few names, for a message."""
    shown = ", ".join(table.table for table in tables[:_NAMED_MAX])
    more = len(tables) - _NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
