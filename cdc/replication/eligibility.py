"""Decides which selected tables can be captured and which are left out, and why. Pure: facts in, judgement out.

Start-up, the catalog watch and `cdc doctor` call the same function, so they always agree. A table that cannot be
captured never blocks the others: it is left out, with a reason and the statement that fixes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from psycopg import sql

from cdc.errors import SourceRefused
from cdc.model.left_out import LeftOut
from cdc.model.relation import ReplicaIdentity
from cdc.replication.publication import PublicationFacts, add_statement
from cdc.replication.table_shape import SourceTable


@dataclass(frozen=True, slots=True)
class Judgement:
    """The selected tables: captured or left out.

    Attributes:
        captured: tables to capture, including `to_add`.
        to_add: captured tables that the publication does not have yet, and that Tailrace may add.
        left_out: the others.
    """

    captured: tuple[SourceTable, ...] = ()
    to_add: tuple[SourceTable, ...] = ()
    left_out: tuple[LeftOut, ...] = field(default=())


def judge(
    tables: Sequence[SourceTable],
    publication: PublicationFacts | None,
    *,
    name: str,
    create: bool,
    topic_keys: Mapping[str, Collection[str]] | None = None,
) -> Judgement:
    """Judge the tables that source.tables selects.

    Args:
        tables: their facts from the catalog, with owners.
        publication: the current publication; None if it does not exist and would be created.
        name: of the publication.
        create: `source.create`.
        topic_keys: by table, the key columns of the records in its topic.
    """
    captured, added, left_out = [], [], []
    for table in tables:
        found = _unfit(table, (topic_keys or {}).get(table.table)) or _unpublished(table, publication, name, create)
        if found is not None:
            left_out.append(found)
            continue
        captured.append(table)
        if publication is None or table.oid not in publication.tables:
            added.append(table)
    return Judgement(tuple(captured), tuple(added), tuple(left_out))


def left_out_at_start(
    tables: Sequence[SourceTable],
    publication: PublicationFacts | None,
    *,
    name: str,
    create: bool,
) -> tuple[LeftOut, ...]:
    """Return those of `tables` that a start leaves out, judged by the catalog. Arguments as for `judge`.

    If the publication does not exist and may not be created, the start is refused, with the statement that creates it.
    So no table is then left out because it is not published.
    """
    found = judge(tables, publication, name=name, create=create).left_out
    if publication is None and not create:
        return tuple(one for one in found if one.reason != "not_published")
    return found


def not_addable(table: SourceTable, publication: str, why: str) -> LeftOut:
    """Return the entry for a table that the server refused to add to the publication."""
    problem = f"it is not in publication {publication!r} and cannot be added: {why}"
    return LeftOut(table.table, table.oid, "not_published", problem, add_statement(publication, [table]), "a superuser")


def not_readable(table: SourceTable, error: SourceRefused) -> LeftOut:
    """Return the entry for a table without a key that must be copied first, and that the role may not read."""
    by = f"the owner of the table{f' ({table.owner})' if table.owner else ''}, or a superuser"
    return LeftOut(table.table, table.oid, "not_readable", error.message, error.command, by)


def without_key(table: SourceTable) -> LeftOut:
    """Return the entry for a table whose rows cannot be distinguished."""
    return LeftOut(
        table.table,
        table.oid,
        "no_key",
        f"it has no usable key: {table.key_problem}",
        key_statement(table),
        f"the owner of the table{f' ({table.owner})' if table.owner else ''}",
    )


def key_statement(table: SourceTable, candidates: Sequence[str] = ()) -> str:
    """Return SQL that gives a table a usable key: one of the indexes `candidates`, or a new column."""
    name = _quoted(table.namespace, table.name)
    if table.wanted_key and table.replica_identity is not ReplicaIdentity.FULL:
        return f"alter table {name} replica identity full;  -- updates and deletes must show the key"
    if table.wanted_key:
        columns = ", ".join(map(_quoted, table.wanted_key))
        return f"create unique index on {name} ({columns});  -- all columns NOT NULL"
    if candidates:
        return f"alter table {name} replica identity using index {_quoted(candidates[0])};"
    if "deferrable" in table.key_problem:
        return f"-- create the primary key of {name} again, without deferrable"
    if table.replica_identity in {ReplicaIdentity.NOTHING, ReplicaIdentity.INDEX}:
        return f"alter table {name} replica identity default;  -- with a primary key"
    used = {column.name for column in table.columns}
    column = next(f"cdc_id{n or ''}" for n in range(1000) if f"cdc_id{n or ''}" not in used)
    return f"alter table {name} add column {column} bigint generated always as identity primary key;  -- rewrites it"


def _unfit(table: SourceTable, topic_key: Collection[str] | None) -> LeftOut | None:
    """Return what prevents the table itself from being captured, whatever the publication is."""
    name = _quoted(table.namespace, table.name)
    owner = f"the owner of the table{f' ({table.owner})' if table.owner else ''}"
    if table.kind == "f":
        return LeftOut(table.table, table.oid, "foreign", table.unpublishable, "-- capture it at its own server")
    if table.unpublishable:
        statement = f"alter table {name} set logged;"
        return LeftOut(table.table, table.oid, "unlogged", table.unpublishable, statement, owner)
    if table.problem:
        return without_key(table)
    if topic_key is not None and set(topic_key) != set(table.key):
        problem = f"its key is ({', '.join(table.key)}) now, and its topic has rows under ({', '.join(topic_key)})"
        statement = f"-- restore the former key of {name}, or leave it out of source.tables"
        return LeftOut(table.table, table.oid, "key_changed", problem, statement, owner)
    return None


def _unpublished(
    table: SourceTable,
    publication: PublicationFacts | None,
    name: str,
    create: bool,  # noqa: FBT001 - `source.create`
) -> LeftOut | None:
    """Return what keeps the table out of the publication; None if it is published or may be added."""
    quoted = sql.Identifier(name).as_string(None)
    if publication is not None and table.partitioned and not publication.via_root:
        statement = f"alter publication {quoted} set (publish_via_partition_root = true);"
        problem = f"publication {name!r} publishes its partitions under their own names, not as their table"
        return LeftOut(table.table, table.oid, "partitions_apart", problem, statement, _owner_of(publication))
    if publication is not None and table.oid in publication.tables:
        return _without_key_column(table, publication)
    if not create:
        why = "source.create is false"
    elif publication is not None and not publication.owned:
        why = f"the publication is owned by {publication.owner!r}"
    elif not table.owned:
        why = f"the table is owned by {table.owner!r}"
    else:
        return None
    problem = f"it is not in publication {name!r}, and {why}"
    by = "a superuser, or a role that has the rights of both owners"
    if publication is not None and not create and publication.owned and table.owned:
        by = _owner_of(publication)
    return LeftOut(table.table, table.oid, "not_published", problem, add_statement(name, [table]), by)


def _without_key_column(table: SourceTable, publication: PublicationFacts) -> LeftOut | None:
    """Return the entry for a published table whose column list leaves out a key column."""
    hidden = [column for column in table.key if column not in publication.columns.get(table.oid, ())]
    if not hidden:
        return None
    name, relation = _quoted(publication.name), _quoted(table.namespace, table.name)
    return LeftOut(
        table.table,
        table.oid,
        "not_published",
        f"publication {publication.name!r} does not publish its key column {hidden[0]!r}",
        f"alter publication {name} drop table {relation}; alter publication {name} add table {relation};",
        _owner_of(publication),
    )


def _owner_of(publication: PublicationFacts) -> str:
    return f"the owner of the publication ({publication.owner})"


def _quoted(*parts: str) -> str:
    return sql.Identifier(*parts).as_string(None)
