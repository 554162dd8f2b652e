"""Compares two readings of the catalog and reports DDL that changed rows without an event. Pure.

pgoutput sends no DDL. VACUUM FULL, CLUSTER and TRUNCATE change file nodes just as a rewrite of values does, so a new
file node counts only together with a changed pg_attribute row. If both happened between two readings, it is reported:
a superfluous finding costs an operator a moment, a missing one leaves a wrong row.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from cdc.lsn import Lsn
from cdc.model.table_facts import CatalogScope, ColumnFacts, DdlFinding, FindingKind, LeafFacts, TableFacts
from cdc.model.visibility import widened
from cdc.patterns import matches, pattern_for

OPEN_MAX: Final = 20  # findings of a table: a daily job may drop partitions without accepting the findings
_OTHERS: Final = "; and earlier ones"
_NAMED_MAX: Final = 5  # partitions and columns that a message names
# Types that PostgreSQL converts into each other without a rewrite but prints differently: timestamp and timestamptz
# (while the time zone of the session is UTC), int4 and oid.
_OTHER_TEXT: Final = ({1114, 1184}, {23, 26})
_REWRITE: Final = "run the statement, which writes every row again, or accept that the log keeps the old rows"
_STAYS: Final = "their keys stay in the topic until they are deleted there"


@dataclass(frozen=True, slots=True)
class CatalogReading:
    """The catalog at one moment.

    Attributes:
        scope: see there.
        tables: the captured tables, by ``schema.table``.
        strays: tables of the previous reading that are missing in this one: oid -> current name.
        others: names of captured tables that now belong to a table that is not published.
        end_lsn: the end of the server's WAL after the reading.
    """

    scope: CatalogScope
    tables: Mapping[str, TableFacts]
    strays: Mapping[int, str]
    end_lsn: Lsn
    others: Collection[str] = ()


def compare_catalog(
    scope: CatalogScope,
    tables: Mapping[str, TableFacts],
    now: CatalogReading,
    *,
    epoch: int,
    returned: Collection[str] = (),
) -> list[DdlFinding]:
    """Return what happened between the recorded facts (`scope`, `tables`) and `now`, table by table.

    `returned`: names that belonged to another table in between, or whose table had another name, as the stream showed.
    """
    former = {facts.oid: name for name, facts in tables.items()}
    kept = {facts.oid for facts in now.tables.values()}
    found = _Findings(epoch, scope.lsn, now.end_lsn)
    for name, facts in sorted(now.tables.items()):
        before = tables.get(name)
        if before is not None and before.oid == facts.oid:
            if name in returned:
                found.found.append(away_for_a_time(name, epoch=epoch, since_lsn=scope.lsn, lsn=now.end_lsn))
            _compare(found, name, before, facts, now.strays)
        elif before is not None:
            _replaced(found, name, former.get(facts.oid, ""), "the table")
            if facts.oid in former:
                _compare(found, name, tables[former[facts.oid]], facts, now.strays)
        elif facts.oid in former:
            _renamed(found, former[facts.oid], name, facts)
            _compare(found, name, tables[former[facts.oid]], facts, now.strays)
        elif not _whole(scope, now.scope, facts):
            _joined(found, name, facts)
    for name, facts in sorted(tables.items()):
        if facts.oid not in kept and name not in now.tables and matches(name, now.scope.selected):
            if name in now.others:
                _replaced(found, name, "", "the new table, once it is published,")
            else:
                _left(found, name, now.strays.get(facts.oid, ""))
    return found.found


def missed_while_left_out(table: str, *, epoch: int, since_lsn: int, lsn: int) -> DdlFinding:
    """Return the finding for a table that is captured again after it was left out, and is not read again."""
    return DdlFinding(
        kind="joined",
        table=table,
        what=f"{table} is captured again: changes that were made while it was left out are not in the log",
        hint="read the table with the command if it has a key; otherwise accept that they are missing",
        command=f"cdc snapshot start {shlex.quote(table)}",
        epoch=epoch,
        since_lsn=since_lsn,
        lsn=lsn,
    )


def away_for_a_time(table: str, *, epoch: int, since_lsn: int, lsn: int) -> DdlFinding:
    """Return the finding for a name that left its table and came back between two readings of the catalog."""
    return DdlFinding(
        kind="returned",
        table=table,
        what=f"the name {table} belonged to another table for a time, or its table had another name: its topic may "
        "lack changes of the table, or have rows of the other one",
        hint='with ddl.policy = "resnapshot" the table is read from scratch and other keys are deleted from the topic; '
        "otherwise the command lists the differences",
        command=f"cdc verify --topics --table {shlex.quote(pattern_for(table))}",
        epoch=epoch,
        since_lsn=since_lsn,
        lsn=lsn,
    )


def merge_findings(old: Sequence[DdlFinding], new: Sequence[DdlFinding]) -> tuple[DdlFinding, ...]:
    """Merge the open findings of one table, oldest first: repeated ones, and the oldest above OPEN_MAX, become one."""
    kept = {(one.kind, one.what): one for one in old}
    for one in new:
        before = kept.pop((one.kind, one.what), one)
        kept[one.kind, one.what] = msgspec.structs.replace(one, since_lsn=min(before.since_lsn, one.since_lsn))
    found = list(kept.values())
    while len(found) > OPEN_MAX:
        first, second = found[:2]
        what = second.what if second.what.endswith(_OTHERS) else second.what + _OTHERS
        found[:2] = [msgspec.structs.replace(second, what=what, since_lsn=min(first.since_lsn, second.since_lsn))]
    return tuple(found)


class _Findings:
    def __init__(self, epoch: int, since_lsn: int, lsn: int) -> None:
        self.found: list[DdlFinding] = []
        self._epoch = epoch
        self._since_lsn = since_lsn
        self._lsn = lsn

    def add(self, kind: FindingKind, table: str, what: str, hint: str, command: str = "") -> None:
        self.found.append(
            DdlFinding(
                kind=kind,
                table=table,
                what=what,
                hint=hint,
                command=command,
                epoch=self._epoch,
                since_lsn=self._since_lsn,
                lsn=self._lsn,
            )
        )


def _compare(found: _Findings, name: str, before: TableFacts, now: TableFacts, strays: Mapping[int, str]) -> None:
    """Compare two readings of the same table, by its oid."""
    nodes = {leaf.oid: leaf.file_node for leaf in before.leaves}
    rewritten = any(nodes.get(leaf.oid, leaf.file_node) != leaf.file_node for leaf in now.leaves)
    former = {column.number: column for column in before.columns}
    names = {column.name: column.number for column in before.columns}
    filled, published, retyped, changed, reused = [], [], [], [], []
    for column in now.columns:
        old = former.get(column.number)
        if names.get(column.name, column.number) != column.number:
            reused.append(column.name)
        elif old is None:
            if column.missing or rewritten:
                filled.append(column.name)
            elif not column.settable:  # adding such a column rewrites the table, so it was there before
                published.append(column.name)
        elif (old.type_oid, old.type_modifier) != (column.type_oid, column.type_modifier):
            if rewritten or {old.type_oid, column.type_oid} in _OTHER_TEXT:
                retyped.append(column.name)
        elif rewritten and _column_changed(old, column):
            changed.append(column.name)
    statement = rewrite_statement(now, now.columns)
    if filled:
        columns = _listed(filled)
        what = f"{columns} of {name} was added with a default: earlier rows have it in the table, not in the log"
        found.add("column_filled", name, what, _REWRITE, statement)
    if published:
        what = f"{_listed(published)} of {name} is now published: earlier rows have it in the table, not in the log"
        found.add("column_filled", name, what, _REWRITE, statement)
    if retyped:
        what = f"the type of {_listed(retyped)} of {name} was changed: the log has earlier rows in their former form"
        found.add("type_changed", name, what, _REWRITE, statement)
    if reused:
        what = (
            f"{_listed(reused)} of {name} is another column now: earlier rows have values of the former one in the log"
        )
        found.add("values_rewritten", name, what, _REWRITE, statement)
    if changed:
        what = f"{name} was rewritten and {_listed(changed)} changed: its values may differ from those in the log"
        found.add("values_rewritten", name, what, _REWRITE, statement)
    _partitions(found, name, before.leaves, now, strays)


def _column_changed(old: ColumnFacts, now: ColumnFacts) -> bool:
    """Return whether a column changed more than by a rewrite itself, which only removes the stored default."""
    if old.missing and not now.missing:
        return old.default != now.default
    return old.xmin != now.xmin


def _partitions(
    found: _Findings, name: str, before: Sequence[LeafFacts], now: TableFacts, strays: Mapping[int, str]
) -> None:
    known, kept = {leaf.oid for leaf in before}, {leaf.oid for leaf in now.leaves}
    attached = [leaf for leaf in now.leaves if leaf.oid not in known and not leaf.born]
    if attached:
        names = _listed([leaf.table for leaf in attached])
        what = f"{names} was attached to {name}: its earlier rows are not in the log"
        written = attached if len(attached) <= _NAMED_MAX else [now]
        statements = " ".join(rewrite_statement(one, now.columns) for one in written)
        found.add("partition_attached", name, what, _REWRITE, statements)
    left = [leaf for leaf in before if leaf.oid not in kept]
    if left:
        gone = all(leaf.oid not in strays for leaf in left)
        names = _listed([leaf.table for leaf in left])
        what = f"{names} was {'dropped' if gone else 'detached'} from {name}: the log still has its rows"
        hint = f"next time, delete the rows before you drop or detach a partition; {_STAYS}"
        found.add("partition_left", name, what, hint)


def _renamed(found: _Findings, former: str, name: str, facts: TableFacts) -> None:
    what = f"{former} was renamed to {name}: earlier rows are in the topic of {former}, not in its own"
    hint = f"{_REWRITE}; let consumers read the new topic"
    found.add("renamed", name, what, hint, rewrite_statement(facts, facts.columns))


def _replaced(found: _Findings, name: str, former: str, subject: str) -> None:
    by = f"{former}, which was renamed" if former else "a new or renamed table"
    what = f"{name} is now another table ({by}): its topic has rows of the former one"
    hint = (
        f'with ddl.policy = "resnapshot" {subject} is read from scratch, and keys that it does not have are deleted '
        f"from the topic; otherwise {_STAYS}"
    )
    found.add("replaced", name, what, hint, "cdc snapshot status")


def _joined(found: _Findings, name: str, facts: TableFacts) -> None:
    what = (
        f"{name} joined the captured tables: its earlier rows, and those of transactions open then, are not in the log"
    )
    found.add("joined", name, what, _REWRITE, rewrite_statement(facts, facts.columns))


def _left(found: _Findings, name: str, now: str) -> None:
    if now == name:
        what = f"{name} is no longer published: its changes are not captured"
        found.add("left", name, what, "add it to the publication again, or remove it from source.tables", "cdc doctor")
    elif now:
        what = f"{name} was renamed to {now}, which is not in source.tables: its changes are no longer captured"
        found.add("left", name, what, f"add {now} to source.tables; earlier rows stay in the former topic")
    else:
        what = f"{name} was dropped: the log still has its rows"
        found.add("left", name, what, f"{_STAYS}; delete the topic when no consumer reads it")


def _whole(before: CatalogScope, now: CatalogScope, facts: TableFacts) -> bool:
    """Return whether the stream has every row of a table: it was created while its publication already covered it."""
    if before.selected != now.selected:
        return False
    published = all(scope.all_tables or facts.namespace in scope.schemas for scope in (before, now))
    return published and widened(facts.created_xid, now.xid) >= before.xid


def rewrite_statement(relation: TableFacts | LeafFacts, columns: Sequence[ColumnFacts]) -> str:
    """Return SQL that changes no value but makes the stream send every row; empty if no column can be set."""
    column = next((_quoted(column.name) for column in columns if column.settable), "")
    if not column:
        return ""
    table = f"{_quoted(relation.namespace)}.{_quoted(relation.name)}"
    return f"update {table} set {column} = {column};"  # noqa: S608 - quoted, and shown only


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
