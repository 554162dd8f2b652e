"""Reads, creates and extends the publication, which decides what PostgreSQL puts into the stream.

The publication is never narrowed: a change of it takes effect in the middle of the stream.
`cdc.replication.generated_columns` decides about generated columns. Statements are built as text, so that a DBA can run
them.

https://www.postgresql.org/docs/18/sql-createpublication.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, LiteralString

import psycopg
from psycopg import sql

from cdc.errors import SourceRefused, SourceUnreachable
from cdc.replication.catalog_queries import one_snapshot
from cdc.replication.connect import Connection
from cdc.replication.error_mapping import translate
from cdc.replication.table_shape import SourceTable

_NAMED_MAX: Final = 5  # tables that a message names; doctor names all
_PUBLISHED: Final = "insert, update, delete, truncate"
GENERATED_SINCE: Final = 180000
"""The first server_version_num whose publications can include stored generated columns."""
_LOCKED_MAX: Final = 5  # locked tables that one attempt waits for
_LOCK_TIMEOUT: Final = "set local lock_timeout = '1s'"  # others queue behind a statement that waits for a lock
_NAME_TAKEN: Final = "the table was dropped, renamed or replaced meanwhile; retrying"

_FACTS: Final = """
select p.oid::int8, p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,
       pg_get_userbyid(p.pubowner)::text, pg_has_role(p.pubowner, 'usage'),
       coalesce(to_jsonb(p) ->> 'pubgencols' = 's', false)  -- since 18
from pg_publication p
where p.pubname = %(name)s
"""

# pg_get_publication_tables sees what commits after the snapshot of the query. A table whose membership is not in the
# snapshot is left out; without its member oid it would look as if the publication had it by schema.
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
  and (p.puballtables or r.oid is not null or exists (
      select from (select g.relid union all select a.relid from pg_partition_ancestors(g.relid) a) part
      join pg_class c on c.oid = part.relid
      where exists (select from pg_publication_rel m where m.prpubid = p.oid and m.prrelid = c.oid)
         or exists (select from pg_publication_namespace m where m.pnpubid = p.oid and m.pnnspid = c.relnamespace)
  ))
"""

_MEMBERS: Final = """
select count(*)::int8
from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
where p.pubname = %(name)s and r.prrelid = any(%(oids)s::oid[])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationFacts:
    """An existing publication.

    Attributes:
        tables: oids of what it publishes now (roots of partitions with `via_root`, leaves without), each with the oid
            of its pg_publication_rel row. That oid changes if a table is removed and added again; it is 0 for a table
            that is published by schema or FOR ALL TABLES.
        filtered: those with a WHERE clause.
        columns: the published columns of each.
        listed: those with a column list.
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
    """The result of `ensure_publication`. `altered` is the statement that `publish_generated` ran.

    The stream lacks rows that open transactions had already written to `added` tables. So those transactions must be
    waited for, and the tables need a snapshot. `refused` are tables, by oid, that the server refused to add, and why.
    """

    facts: PublicationFacts
    created: bool
    added: tuple[SourceTable, ...]
    altered: str = ""
    refused: Mapping[int, str] = field(default_factory=dict)


def publication_facts(connection: Connection, name: str) -> PublicationFacts | None:
    """Return the publication of that name in this database; None if it does not exist."""
    with one_snapshot(connection, f"read publication {name!r}"):
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
    """Make sure that the publication has all of `tables`, in one transaction.

    With `create` it is created, and missing tables are added. Otherwise, and for any other problem, raises
    SourceRefused with the statement for a DBA. Tables that PostgreSQL cannot publish are left out.
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
            with connection.transaction():
                connection.execute(statements[0].encode())
                if not _has(connection, name, wanted):
                    raise _changed(name)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise _changed(name) from error
        except psycopg.Error as error:
            raise translate(error, f"create publication {name!r}", publication=name) from error
    facts = publication_facts(connection, name)
    if facts is None:
        raise SourceRefused(f"publication {name!r} was dropped by another session meanwhile", publication=name)
    refuse_unfit(facts, wanted)
    refused |= {table.oid: _NAME_TAKEN for table in missing(facts, wanted) if table.oid not in refused}
    added = tuple(table for table in missing(before, wanted) if table.oid not in refused)
    return Ensured(facts, created=before is None, added=added, refused=refused)


def _changed(name: str) -> SourceUnreachable:
    return SourceUnreachable(f"cannot create publication {name!r}: {_NAME_TAKEN}", publication=name)


def add_tables(connection: Connection, name: str, tables: Sequence[SourceTable]) -> dict[int, str]:
    """Add tables to the publication: all at once, or one by one if that fails.

    Returns the tables that the server refused, by oid, and why; a table that was dropped or renamed meanwhile is one of
    them. Waits only a moment for locks. Raises SourceUnreachable if the connection broke.
    """
    refused: dict[int, str] = {}
    if not tables or _add(connection, name, tables) is None:
        return refused
    locked = 0
    for table in tables:
        if locked >= _LOCKED_MAX:
            refused[table.oid] = "other tables are locked; retrying"
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
            if not _has(connection, name, tables):
                raise psycopg.DatabaseError(_NAME_TAKEN)
    except psycopg.Error as error:
        if connection.closed:
            raise translate(error, f"add tables to publication {name!r}", publication=name) from error
        return error
    return None


def _has(connection: Connection, name: str, tables: Sequence[SourceTable]) -> bool:
    """Whether the statement of this transaction published all of these tables, which it locked until its end.

    Statements name tables. Another table may have the name by now.
    """
    found = connection.execute(_MEMBERS, {"name": name, "oids": [table.oid for table in tables]}).fetchone()
    return found == (len(tables),)


def publishable(tables: Sequence[SourceTable]) -> list[SourceTable]:
    """Return the tables that can be published. Raises SourceRefused if there is none, or one has no usable key."""
    wanted = [table for table in tables if not table.unpublishable]
    refused = [table for table in wanted if table.problem]
    if refused:
        first = refused[0]
        raise SourceRefused(
            f"{len(refused)} of {len(wanted)} tables have no usable key: "
            + "; ".join(f"{table.table}: {table.problem}" for table in refused[:_NAMED_MAX]),
            hint="add a primary key or a replica identity index, exclude the table in source.tables with !, or list it "
            "in source.keyless",
            command="cdc doctor",
            table=first.table,
        )
    if not wanted:
        raise SourceRefused(
            "no table of this database matches source.tables",
            hint='patterns have the form schema.table, e.g. "public.*"; check the database in source.dsn as well',
            command="cdc doctor",
        )
    return wanted


def missing(facts: PublicationFacts | None, tables: Sequence[SourceTable]) -> list[SourceTable]:
    """Return those of `tables` that are not published."""
    return [table for table in tables if facts is None or table.oid not in facts.tables]


def to_add(facts: PublicationFacts | None, name: str, tables: Sequence[SourceTable], version_num: int = 0) -> list[str]:
    """Return the statement that creates the publication or adds missing tables; empty if none is needed.

    `version_num` is that of the server, for the options of a new publication.
    """
    if facts is None:
        return [create_statement(name, tables, version_num)]
    if not facts.via_root:
        # A publication of leaves never lists a root; `refuse_unfit` reports it.
        tables = [table for table in tables if not table.partitioned]
    lacking = missing(facts, tables)
    return [add_statement(name, lacking)] if lacking else []


def refuse_uncreated(
    facts: PublicationFacts | None, name: str, tables: Sequence[SourceTable], version_num: int, *, create: bool
) -> None:
    """Raise SourceRefused for a publication that must be created or extended while source.create is false."""
    statements = to_add(facts, name, tables, version_num)
    if create or not statements:
        return
    what = f"lacks {_shown(missing(facts, tables))}" if facts else "does not exist"
    raise SourceRefused(
        f"publication {name!r} {what}, and source.create is false",
        hint="run the command as its owner, or let Tailrace do it with source.create = true",
        command=statements[0],
        publication=name,
    )


def refuse_unfit(facts: PublicationFacts, tables: Sequence[SourceTable]) -> None:
    """Raise SourceRefused for a publication that leaves out kinds of changes, or publishes partitions as leaves."""
    problem, statement = unfit(facts, tables)
    if problem:
        raise SourceRefused(
            f"publication {facts.name!r} {problem}",
            hint="run the command as its owner; changes that were not published are not in the log",
            command=statement,
            publication=facts.name,
        )


def unfit(facts: PublicationFacts, tables: Sequence[SourceTable]) -> tuple[str, str]:
    """Return what is wrong with its options, and the statement that fixes it; empty texts if nothing is."""
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
    """Return ``create publication``: partitions as one table, with generated columns where the server supports it."""
    generated: LiteralString = ", publish_generated_columns = stored" if version_num >= GENERATED_SINCE else ""
    query = sql.SQL(
        "create publication {} for table {}\n    with (publish = {}, publish_via_partition_root = true{});"
    ).format(sql.Identifier(name), table_list(tables), sql.Literal(_PUBLISHED), sql.SQL(generated))
    return query.as_string(None)


def add_statement(name: str, tables: Sequence[SourceTable]) -> str:
    """Return ``alter publication ... add table``."""
    query = sql.SQL("alter publication {} add table {};").format(sql.Identifier(name), table_list(tables))
    return query.as_string(None)


def table_list(tables: Sequence[SourceTable]) -> sql.Composed:
    """Return qualified, quoted names with commas. ONLY: children by inheritance must be selected themselves."""
    return sql.SQL(", ").join(sql.SQL("only {}").format(sql.Identifier(t.namespace, t.name)) for t in tables)


def _shown(tables: Sequence[SourceTable]) -> str:
    """Return the first few names, for a message."""
    shown = ", ".join(table.table for table in tables[:_NAMED_MAX])
    more = len(tables) - _NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
