"""What DDL has done to rows without an event, told from two looks at the catalog. Pure.

pgoutput sends no DDL, and VACUUM FULL, CLUSTER and TRUNCATE change file nodes as a rewrite of values does. So a new
file node counts only together with a change of a column. Where a look cannot tell (both happened between two looks) it
is told as a finding: one too many costs a glance, one too few a wrong row.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from cdc.lsn import Lsn
from cdc.model.table_facts import CatalogScope, ColumnFacts, DdlFinding, FindingKind, LeafFacts, TableFacts
from cdc.patterns import matches

OPEN_MAX: Final = 20  # findings of a table: somebody drops a partition every day and looks at none of them
_OTHERS: Final = "; and others before that"
_NAMED_MAX: Final = 5  # partitions and columns that a message names
_XID_BITS: Final = 32
# Types that PostgreSQL takes for each other without a rewrite, and prints otherwise: timestamp and timestamptz (while
# the session's zone is UTC), int4 and oid.
_OTHER_TEXT: Final = ({1114, 1184}, {23, 26})
_ANEW: Final = "have every row written once more with the statement, or accept that the log keeps the old ones"
_STAYS: Final = "their keys stay in the topic until somebody deletes them there"


@dataclass(frozen=True, slots=True)
class CatalogReading:
    """The catalog at one moment.

    Attributes:
        scope: see there.
        tables: what is captured, by ``schema.table``.
        strays: of tables that the look before had and this one has not: oid -> the name it has now.
        others: names of captured tables that belong to a table now that is not published.
        end_lsn: where the server's WAL was after the look.
    """

    scope: CatalogScope
    tables: Mapping[str, TableFacts]
    strays: Mapping[int, str]
    end_lsn: Lsn
    others: Collection[str] = ()


def findings(
    scope: CatalogScope, tables: Mapping[str, TableFacts], now: CatalogReading, *, epoch: int
) -> list[DdlFinding]:
    """What happened between the recorded facts (`scope`, `tables`) and `now`, table by table."""
    former = {facts.oid: name for name, facts in tables.items()}
    kept = {facts.oid for facts in now.tables.values()}
    found = _Findings(epoch, scope.lsn, now.end_lsn)
    for name, facts in sorted(now.tables.items()):
        before = tables.get(name)
        if before is not None and before.oid == facts.oid:
            _compare(found, name, before, facts, now.strays)
        elif before is not None:
            _replaced(found, name, former.get(facts.oid, ""), "it")
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
                _replaced(found, name, "", "the new table is not published, so it")
            else:
                _left(found, name, now.strays.get(facts.oid, ""))
    return found.found


def missed(table: str, *, epoch: int, since_lsn: int, lsn: int) -> DdlFinding:
    """A table was left out and is captured again, and is not read for it."""
    return DdlFinding(
        kind="joined",
        table=table,
        what=f"{table} is captured again: changes that were made while it was left out are not in the log",
        hint="read it with the command if it has a key; else accept that they are missing",
        command=f"cdc snapshot start {shlex.quote(table)}",
        epoch=epoch,
        since_lsn=since_lsn,
        lsn=lsn,
    )


def merged(old: Sequence[DdlFinding], new: Sequence[DdlFinding]) -> tuple[DdlFinding, ...]:
    """Open findings of one table, oldest first; what is found again is one, and so are the oldest of too many."""
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
    """The same table, by its oid."""
    nodes = {leaf.oid: leaf.file_node for leaf in before.leaves}
    rewritten = any(nodes.get(leaf.oid, leaf.file_node) != leaf.file_node for leaf in now.leaves)
    columns = {column.number: column for column in before.columns}
    filled, published, retyped, changed = [], [], [], []
    for column in now.columns:
        old = columns.get(column.number)
        if old is None:
            if column.missing or rewritten:
                filled.append(column.name)
            elif not column.settable:  # adding such a column rewrites the table, so it was there before
                published.append(column.name)
        elif (old.type_oid, old.type_modifier) != (column.type_oid, column.type_modifier):
            if rewritten or {old.type_oid, column.type_oid} in _OTHER_TEXT:
                retyped.append(column.name)
        elif rewritten and _touched(old, column):
            changed.append(column.name)
    statement = rewrite_statement(now, now.columns)
    if filled:
        what = f"{_listed(filled)} of {name} came with a default: rows from before have it in the table, not in the log"
        found.add("column_filled", name, what, _ANEW, statement)
    if published:
        what = f"{_listed(published)} of {name} is published now: rows from before have it in the table, not in the log"
        found.add("column_filled", name, what, _ANEW, statement)
    if retyped:
        what = f"the type of {_listed(retyped)} of {name} was changed: the log has rows in their former form"
        found.add("type_changed", name, what, _ANEW, statement)
    if changed:
        what = f"{name} was written anew and {_listed(changed)} changed: its values may be others than those in the log"
        found.add("values_rewritten", name, what, _ANEW, statement)
    _partitions(found, name, before.leaves, now, strays)


def _touched(old: ColumnFacts, now: ColumnFacts) -> bool:
    """Whether more was done to a column than a rewrite does by itself: that takes away the stored default."""
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
        what = f"{names} became part of {name}: rows that were there by then are not in the log"
        written = attached if len(attached) <= _NAMED_MAX else [now]
        statements = " ".join(rewrite_statement(one, now.columns) for one in written)
        found.add("partition_attached", name, what, _ANEW, statements)
    left = [leaf for leaf in before if leaf.oid not in kept]
    if left:
        gone = all(leaf.oid not in strays for leaf in left)
        names = _listed([leaf.table for leaf in left])
        what = f"{names} {'was dropped from' if gone else 'is no part any more of'} {name}: the log has its rows"
        found.add("partition_left", name, what, f"delete rows before the partition goes; now {_STAYS}")


def _renamed(found: _Findings, former: str, name: str, facts: TableFacts) -> None:
    what = f"{former} is {name} now: rows from before are in the topic of {former}, not in its own"
    found.add("renamed", name, what, f"{_ANEW}; consumers read the new topic", rewrite_statement(facts, facts.columns))


def _replaced(found: _Findings, name: str, former: str, subject: str) -> None:
    by = f"{former}, which was renamed" if former else "a new or renamed table"
    what = f"{name} is another table now ({by}): its topic has rows of the former one"
    hint = (
        f'with ddl.policy = "resnapshot" {subject} is read from scratch, and keys that it does not have are deleted '
        f"from the topic; otherwise {_STAYS}"
    )
    found.add("replaced", name, what, hint, "cdc snapshot status")


def _joined(found: _Findings, name: str, facts: TableFacts) -> None:
    what = (
        f"{name} joined the captured tables: rows from before, and those of transactions open then, are not in the log"
    )
    found.add("joined", name, what, _ANEW, rewrite_statement(facts, facts.columns))


def _left(found: _Findings, name: str, now: str) -> None:
    if now == name:
        what = f"{name} is not published any more: its changes are not captured"
        found.add("left", name, what, "take it back into the publication, or out of source.tables", "cdc doctor")
    elif now:
        what = f"{name} is {now} now, which source.tables does not have: its changes are not captured any more"
        found.add("left", name, what, f"add {now} to source.tables; rows from before stay in the former topic")
    else:
        what = f"{name} was dropped: the log has its rows"
        found.add("left", name, what, f"{_STAYS}; delete the topic when nobody reads it")


def _whole(before: CatalogScope, now: CatalogScope, facts: TableFacts) -> bool:
    """Whether the stream has had every row of a table since it was made: it was born into the publication."""
    if before.selected != now.selected:
        return False
    published = all(scope.all_tables or facts.namespace in scope.schemas for scope in (before, now))
    return published and widened(facts.created_xid, now.xid) >= before.xid


def widened(xid: int, near: int) -> int:
    """The 64 bits of a transaction id that is not more than 2^31 from `near`."""
    epoch = (near - xid + (1 << (_XID_BITS - 1))) >> _XID_BITS
    return xid + (max(epoch, 0) << _XID_BITS)


def rewrite_statement(relation: TableFacts | LeafFacts, columns: Sequence[ColumnFacts]) -> str:
    """SQL that changes no value and has the stream show every row; empty when there is no column to name in it."""
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
