"""Reads the whole history of one row from the archive of its table, without Spark.

An event in the archive has the row after it. The previous event gives the row before it. So old values are known
although the source does not send them. Only the first event of an archive that began late has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from cdc.errors import UsageError
from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.table_naming import captured_table, unescaped
from sinks.warehouse.read.lake_reader import Lake, columns_of, run_query

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from sinks.warehouse.lake.manifest import Manifest

_ROW: Final = "row"
_POSITION: Final = ("_epoch", "_commit_lsn", "_ordinal")
_OWN: Final = frozenset({*_POSITION, "_op", "_unchanged", "_committed_at", "_partition", "_offset"})


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a row.

    Attributes:
        op: c, u, d, r.
        committed_at: when, in UTC.
        before: the row before it; None if there was none, or it is unknown.
        after: the row after it; None for a delete. Columns with unknown values are left out.
        unknown: those columns.
    """

    op: str
    epoch: int
    commit_lsn: int
    ordinal: int
    committed_at: datetime
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    unknown: tuple[str, ...]

    @property
    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Column -> (old, new) where they differ; every column for a row that came or went."""
        old, new = self.before or {}, self.after or {}
        names = dict.fromkeys([*new, *old]) if self.op != "u" or self.before is not None else dict.fromkeys(new)
        return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


@dataclass(frozen=True, slots=True)
class RowHistory:
    """The events of a row, in order.

    Attributes:
        table: ``schema.table``.
        key: column -> value, as requested.
        guessed: whether the first columns were used, because neither the caller nor the lake named the key.
    """

    table: str
    key: Mapping[str, Any]
    guessed: bool
    changes: tuple[Change, ...]


def history_of(lake: Lake, manifest: Manifest, table: str, key: Mapping[str, Any] | Sequence[str]) -> RowHistory:
    """Return the history of a row as of a cut.

    Args:
        lake: the lake.
        manifest: of the cut.
        table: ``orders``, ``public.orders`` or a topic.
        key: column -> value, or the values of the key columns in key order. If the lake does not know the key, these
            are values of the first columns.

    Raises UsageError: the table or column does not exist, a part of the key is missing, or a value does not fit.
    """
    name = lake.table(table, manifest, kinds=("archive",))
    state = manifest.tables[name]
    found = pinned(lake.location, name, state.version)
    if not {"_op", *_POSITION} <= columns_of(found).keys():
        raise UsageError(f"{name} has outbox events, not rows", hint="read_cut reads it")
    columns = row_columns(found)
    # A renamed column is in the archive only from its first row on.
    known = state.key if state.key and set(state.key) <= set(columns) else None
    named = _by_name(key, columns) if isinstance(key, Mapping) else _by_place(key, columns, known)
    changes = _changes(found, columns, named)
    topic = name.partition("/")[2]
    shown = captured_table(name, manifest.position.complete) or unescaped(topic.partition(".")[2])
    guessed = not isinstance(key, Mapping) and known is None
    if guessed:
        _check_guess(lake, manifest, shown, layout.mirror(*layout.split_table(shown, topic)), named)
    return RowHistory(shown, named, guessed, changes)


def row_columns(table: DeltaTable) -> list[str]:
    """Return the captured columns of an archive: fields of `row`, or all but ours if they are top-level columns."""
    fields = {field.name: field.type for field in table.schema().fields}
    nested = getattr(fields.get(_ROW), "fields", None)
    return [field.name for field in nested] if nested else [name for name in fields if name not in _OWN]


def _by_place(values: Sequence[str], columns: Sequence[str], key: Sequence[str] | None) -> dict[str, Any]:
    if key is None:
        if len(values) > len(columns):
            raise UsageError(f"the key has {len(values)} values, but the table has {len(columns)} columns")
        return dict(zip(columns, values, strict=False))
    if len(values) != len(key):
        raise UsageError(
            f"the key has {len(values)} values, but it needs {len(key)}", hint=f"its columns are {', '.join(key)}"
        )
    return dict(zip(key, values, strict=True))


def _by_name(key: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    by_case = {name.lower(): name for name in columns}
    found = {}
    for name, value in key.items():
        column = name if name in columns else by_case.get(name.lower())
        if column is None or value is None or isinstance(value, dict | list):
            what = "cannot be in a key" if column else "is not a column of the table"
            raise UsageError(f"{name!r} {what}", hint=f"columns are {', '.join(columns)}")
        found[column] = value
    return found


def _changes(table: DeltaTable, columns: Sequence[str], key: Mapping[str, Any]) -> tuple[Change, ...]:
    kinds = columns_of(table)
    nested = kinds.get(_ROW) == "struct"
    where = " and ".join(f"{_place(name, nested=nested)} = {_literal(value)}" for name, value in key.items())
    order = ", ".join(f'"{name}"' for name in _POSITION)
    rows = run_query(table, f"select * from t where {where} order by {order}")  # noqa: S608 - everything is quoted
    if rows is None:
        raise UsageError(f"{', '.join(key)} cannot have such a value", hint="check the table's column types")
    state: dict[str, Any] | None = None
    changes = []
    for event in rows.to_pylist():
        row = event[_ROW] if nested else {name: event[name] for name in columns}
        change = _change(event, row or {}, state)
        state = None if change.after is None else dict(change.after)
        changes.append(change)
    return tuple(changes)


def _change(event: Mapping[str, Any], row: Mapping[str, Any], before: Mapping[str, Any] | None) -> Change:
    after: dict[str, Any] | None = None
    unknown: list[str] = []
    if event["_op"] != "d":
        after = dict(row)
        for name in event.get("_unchanged") or ():
            if before is not None and name in before:
                after[name] = before[name]
            else:
                after.pop(name, None)  # a value that was read later is not the value at that time
                unknown.append(name)
    return Change(
        op=event["_op"],
        epoch=event["_epoch"],
        commit_lsn=event["_commit_lsn"],
        ordinal=event["_ordinal"],
        committed_at=event["_committed_at"],
        before=None if before is None else dict(before),
        after=after,
        unknown=tuple(unknown),
    )


def _check_guess(lake: Lake, manifest: Manifest, table: str, mirror: str, key: Mapping[str, Any]) -> None:
    """Check that values without names, used for the first columns, identify a single row."""
    if mirror not in manifest.tables:
        return
    where = " and ".join(f"{_place(name, nested=False)} = {_literal(value)}" for name, value in key.items())
    found = pinned(lake.location, mirror, manifest.tables[mirror].version)
    rows = run_query(found, f"select 1 as one from t where {where} limit 2")  # noqa: S608 - everything is quoted
    if rows is not None and rows.num_rows > 1:
        raise UsageError(
            f"{', '.join(key)} does not identify one row of {table}",
            hint="""name the key: cdc history TABLE '{"column": value}'""",
        )


def _place(column: str, *, nested: bool) -> str:
    if nested:
        return f'"{_ROW}"[{_literal(column)}]'
    return '"' + column.replace('"', '""') + '"'


def _literal(value: object) -> str:
    """Return a value as text: the engine parses it by the column's type."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "'" + text.replace("'", "''") + "'"
