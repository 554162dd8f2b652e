"""Checks of the tables: keys, replica identities, large values, partitions, rights. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cdc.config.settings import Config
from cdc.doctor.finding import Finding, Group, Level
from cdc.doctor.source_facts import SourceFacts, TableRights
from cdc.doctor.sql_text import ident, name_of
from cdc.doctor.toml_text import table_pattern, toml_string
from cdc.model import units
from cdc.model.left_out import LeftOut
from cdc.model.relation import ReplicaIdentity
from cdc.patterns import chosen
from cdc.replication.eligibility import key_statement
from cdc.replication.generated_columns import left_out
from cdc.replication.table_shape import Leaf, SourceTable

RESERVED_SCHEMAS: Final = ("events", "views")
"""``<name>.events.*`` and ``<name>.views.*`` are the topics of the outbox and of views."""


def check_tables(facts: SourceFacts, config: Config) -> list[Finding]:
    """Return a summary, then the findings about each table, in their order."""
    return [
        *_summary(facts, config),
        *_rights(facts, config),
        *(
            finding
            for table in facts.tables
            for finding in check_table(table, facts.rights.get(table.oid), reselect=_reselected(table, config))
        ),
        *_generated(facts, config),
    ]


def check_table(table: SourceTable, rights: TableRights | None, *, reselect: bool = True) -> list[Finding]:
    """Return the findings about one table; empty without problems. `reselect`: large values are read again."""
    if table.unpublishable:
        return [_finding(Level.WARNING, "unpublishable", table, f"is left out: {table.unpublishable}")]
    found = [*_schema(table), *_key(table, rights), *_leaves(table)]
    return [*found, *_toast(table, rights, reselect=reselect)]


def check_topic_fit(left_out: Sequence[LeftOut]) -> list[Finding]:
    """Warn about the tables that a start leaves out because of their topics; `left_out` is its forecast."""
    return [
        Finding(
            group=Group.TABLES,
            level=Level.WARNING,
            check=one.reason,
            message=f"{one.table} is left out: {one.problem}",
            sql=one.statement if one.reason == "key_changed" else "",
            command=one.statement if one.reason == "no_topic" else "",
            table=one.table,
        )
        for one in left_out
        if one.reason in {"key_changed", "no_topic"}
    ]


def _summary(facts: SourceFacts, config: Config) -> Iterator[Finding]:
    captured = [table for table in facts.tables if not table.problem]
    if not facts.tables:
        patterns = ", ".join(map(toml_string, config.source.tables))
        text = f"no table of database {facts.database!r} matches source.tables = [{patterns}]"
        yield Finding(group=Group.TABLES, level=Level.ERROR, check="tables", message=text)
        return
    for name in sorted(config.source.keys.keys() - {table.table for table in facts.tables}):
        text = f"source.keys names {name!r}, which source.tables does not select"
        yield Finding(group=Group.TABLES, level=Level.ERROR, check="keys", message=text)
    keyless = sum(table.keyless for table in captured)
    partitioned = sum(table.partitioned for table in captured)
    parts = [f"{len(captured)} of {len(facts.tables)} tables can be captured"]
    if keyless:
        parts.append(f"{keyless} of them without a key")
    if partitioned:
        parts.append(f"{partitioned} partitioned, each published as one table")
    level = Level.OK if captured else Level.ERROR
    yield Finding(group=Group.TABLES, level=level, check="tables", message=", ".join(parts))


def _reselected(table: SourceTable, config: Config) -> bool:
    return chosen(table.table, config.toast.tables, config.toast.mode) == "reselect"


def _rights(facts: SourceFacts, config: Config) -> Iterator[Finding]:
    """Check the rights to read rows. Streaming needs none; copying rows and reading large values again do.

    One finding for all tables; an error if the next update may stop capture.
    """
    role = ident(facts.role.name)
    found = [(table, facts.rights[table.oid]) for table in facts.tables if table.oid in facts.rights]
    lacking = [table for table, may in found if not (may.can_select and may.can_use_schema) or may.filtered]
    if not lacking:
        return
    shown = ", ".join(table.table for table in lacking[:5]) + (" ..." if len(lacking) > 5 else "")
    schemas = sorted({table.namespace for table in lacking if not facts.rights[table.oid].can_use_schema})
    grants = [f"grant usage on schema {ident(schema)} to {role};" for schema in schemas]
    grants += [f"grant select on {name_of(t)} to {role};" for t in lacking if not facts.rights[t.oid].can_select]
    grants += [f"alter role {role} bypassrls;"] if any(may.filtered for _, may in found) else []
    read_again = [table for table in lacking if _reselected(table, config)]
    stops = any(table.key and _large(table, facts.rights[table.oid]) for table in read_again)
    needs = "snapshots and updates that do not change a large value need" if read_again else "snapshots need"
    text = (
        f"role {facts.role.name!r} may not read all rows of {units.count(len(lacking), 'table')}, as {needs}: {shown}"
    )
    level = Level.ERROR if stops else Level.WARNING
    yield Finding(group=Group.TABLES, level=level, check="select", message=text, sql="\n".join(grants))


def _schema(table: SourceTable) -> Iterator[Finding]:
    if table.namespace in RESERVED_SCHEMAS:
        text = f"is in schema {table.namespace!r}, whose topic names are reserved for Tailrace"
        command = f"in cdc.toml, source.tables: add {toml_string(f'!{table.namespace}.*')}"
        yield _finding(Level.ERROR, "reserved_schema", table, text, command=command)


def _key(table: SourceTable, rights: TableRights | None) -> Iterator[Finding]:
    name = name_of(table)
    if table.key:
        return
    candidates = rights.candidate_indexes if rights is not None else ()
    if not table.keyless:
        text = f"is left out: it has no usable key: {table.key_problem}"
        command = (
            f"in cdc.toml, source.tables: add {table_pattern(table, exclude=True)}, "
            f"or source.keyless: add {table_pattern(table)}"
        )
        yield _finding(Level.WARNING, "key", table, text, sql=key_statement(table, candidates), command=command)
        return
    if table.replica_identity is ReplicaIdentity.FULL:
        text = "has no key: its topic is not compacted, its records have no key, and `cdc verify` cannot compare it"
        yield _finding(Level.OK, "keyless", table, text)
        return
    text = "has no key: once it is published, PostgreSQL rejects every UPDATE and DELETE on it"
    sql = f"alter table {name} replica identity full;  -- not needed while rows are only inserted"
    yield _finding(Level.WARNING, "keyless", table, text, sql=sql)


def _leaves(table: SourceTable) -> Iterator[Finding]:
    """Check the partitions: each logs old rows by its own replica identity, which it does not inherit."""
    for leaf in table.leaves:
        if leaf.kind == "f" or leaf.persistence == "u":
            kind = "a foreign table" if leaf.kind == "f" else "unlogged"
            text = f"its partition {leaf.table} is {kind}: changes in it are not captured"
            yield _finding(Level.WARNING, "partition", table, text)
        elif leaf.replica_identity not in {table.replica_identity, ReplicaIdentity.FULL}:
            text = (
                f"its partition {leaf.table} has replica identity {leaf.replica_identity.name}, the table "
                f"{table.replica_identity.name}: its old rows would have other columns"
            )
            yield _finding(Level.ERROR, "partition", table, text, sql=_align(table, leaf))


def _align(table: SourceTable, leaf: Leaf) -> str:
    identity = {ReplicaIdentity.DEFAULT: "default", ReplicaIdentity.FULL: "full"}.get(table.replica_identity)
    if identity is None:
        return f"alter table {ident(leaf.namespace, leaf.name)} replica identity full;"
    return f"alter table {ident(leaf.namespace, leaf.name)} replica identity {identity};"


def _generated(facts: SourceFacts, config: Config) -> Iterator[Finding]:
    """Report generated columns that events lack, except those that `cdc run` will publish."""
    publication = facts.publication
    may_alter = config.source.create and (publication is None or publication.owned)
    for one in left_out([table for table in facts.tables if not table.problem], publication, facts.version_num):
        names, table = ", ".join(one.columns), next(table for table in facts.tables if table.table == one.table)
        if one.sql and may_alter:
            text = f"has generated columns that its events lack: {names}; `cdc run` publishes them"
            yield _finding(Level.OK, "generated", table, text)
        else:
            text = f"has generated columns that its events lack: {names}: {one.why}"
            yield _finding(Level.WARNING if one.stored else Level.OK, "generated", table, text, sql=one.sql)


def _large(table: SourceTable, rights: TableRights | None) -> bool:
    """Return whether the table now has values that an update may not include; nearly every table could have some."""
    return rights is not None and bool(rights.toast_bytes) and table.replica_identity is not ReplicaIdentity.FULL


def _toast(table: SourceTable, rights: TableRights | None, *, reselect: bool) -> Iterator[Finding]:
    if rights is None or not table.key or not _large(table, rights):
        return
    names = [column.name for column in table.columns if column.toastable and column.name not in table.key]
    then = "capture reads it from the table" if reselect else "events omit it and list it in source.unchanged"
    text = (
        f"has {rights.toast_bytes / (1 << 20):.1f} MB of large values ({', '.join(names)}): an update that does not "
        f"change one does not include it, so {then}"
    )
    sql = f"alter table {name_of(table)} replica identity full;  -- complete events, more WAL"
    yield _finding(Level.WARNING, "toast", table, text, sql=sql)


def _finding(level: Level, check: str, table: SourceTable, text: str, *, sql: str = "", command: str = "") -> Finding:
    return Finding(
        group=Group.TABLES,
        level=level,
        check=check,
        message=f"{table.table} {text}",
        sql=sql,
        command=command,
        table=table.table,
    )
