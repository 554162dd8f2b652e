"""Decides what a signal does to the snapshots of tables: start, pause, resume, stop or refuse.

Queries to PostgreSQL, which take time, run before the lock of the hand-over is taken. What PostgreSQL would refuse
during a read is refused here, because a failed read would stop capture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from cdc.errors import SourceRefused
from cdc.lsn import Lsn
from cdc.model.signal_record import NO_MATCH
from cdc.replication.connect import Connection
from cdc.replication.table_shape import SourceTable
from snapshot import table_reader
from snapshot.condition import Condition, ConditionError, parse
from snapshot.merger import Merger
from snapshot.reader_threads import Tables
from snapshot.signal_parsing import Signal, SignalError, in_order
from snapshot.table_state import RowSelection

_REFUSED_MAX: Final = 100  # per answer, because the progress topic keeps it
_NAME_MAX: Final = 200
_LIVE: Final = frozenset({"begun", "suspected", "planned"})


@dataclass(slots=True)
class Outcome:
    """The result of a signal, by table. Under an empty name: why nothing was done at all."""

    done: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> dict[str, str]:
        """A bounded number of the refusals."""
        found = {name[:_NAME_MAX]: why for name, why in list(self.refused.items())[:_REFUSED_MAX]}
        more = len(self.refused) - _REFUSED_MAX
        return found | ({"": f"{more} more were refused"} if more > 0 else {})


Act = Callable[[Merger], Outcome]
"""Carries out a signal, under the lock of the hand-over."""


class Catalog(Protocol):
    """The PostgreSQL queries that a signal needs."""

    def tables(self) -> Mapping[str, SourceTable]:
        """Return the captured tables by name."""

    def problem(self, table: SourceTable, condition: Condition | None) -> str:
        """Return why a table, or the selected rows, cannot be read; empty if they can."""


class SourceCatalog:
    """Implements `Catalog` on a connection."""

    def __init__(self, connection: Connection, publication: str, tables: Tables) -> None:
        self._connection = connection
        self._publication = publication
        self._tables = tables

    def tables(self) -> Mapping[str, SourceTable]:
        """See `Catalog`."""
        return {table.table: table for table in self._tables(self._connection)}

    def problem(self, table: SourceTable, condition: Condition | None) -> str:
        """See `Catalog`."""
        try:
            layouts = table_reader.table_layouts(self._connection, self._publication, [table])
            if table.table not in layouts:
                return "it is not published"
            if condition is None:
                return ""
            return table_reader.condition_problem(self._connection, layouts[table.table].form, condition)
        except SourceRefused as error:
            return error.message
        except table_reader.ReadLater:
            return ""  # it is checked again before the table is read


def start(signal: Signal, catalog: Catalog, boundary: Callable[[], Lsn], *, avro: bool) -> Act:
    """Return the act that starts the snapshots of a signal. Raises SignalError.

    `boundary` returns the position of the stream. `avro`: keys are in Avro.
    """
    wanted: dict[str, RowSelection] = {}
    refused: dict[str, str] = {}
    tables = catalog.tables()
    signal.check(tables)
    for pattern in signal.tables:
        try:
            names = signal.matching(pattern, tables)
        except SignalError as error:
            refused[pattern] = str(error)
            continue
        if not names:
            refused[pattern] = NO_MATCH
        if signal.keys and len({*names, *wanted}) > 1:
            raise SignalError("keys select rows of one table only; the patterns match several")
        for name in names:
            if name in wanted or name in refused:
                continue
            try:
                wanted[name] = _wanted(signal, tables[name], catalog, avro=avro)
            except SignalError as error:
                refused[name] = str(error)

    def act(merger: Merger) -> Outcome:
        outcome = Outcome(refused=refused)
        states = {one.table: one for one in merger.progress()}
        for name, rows in wanted.items():
            now = states.get(name)
            some = rows.where or rows.keys
            if now is not None and now.state in _LIVE:
                outcome.refused[name] = "it is already being read"
            elif some and (now is None or now.state != "complete"):
                outcome.refused[name] = "single rows can be read only after the table's first snapshot is complete"
            else:
                merger.requests.order(name, tables[name].oid, boundary(), rows)
                outcome.done.append(name)
        return outcome

    return act


def _wanted(signal: Signal, table: SourceTable, catalog: Catalog, *, avro: bool) -> RowSelection:
    """Return which rows of a table the signal selects. Raises SignalError."""
    if not table.key:
        raise SignalError("it has no key, so rows that are read again could not replace earlier ones")
    if signal.keys and avro:
        raise SignalError("its keys are in Avro, but a signal gives keys in JSON; use a condition instead")
    columns = [column.name for column in table.columns if column.name in table.key]
    keys = tuple(in_order(key, columns) for key in signal.keys)
    text = "" if keys else signal.where_of(table.table)
    try:
        condition = parse(text) if text else None
    except ConditionError as error:
        raise SignalError(f"the condition cannot be read: {error}") from None
    problem = catalog.problem(table, condition)
    if problem:
        raise SignalError(problem)
    return RowSelection(text, keys)


def control_acts(signal: Signal, known: Collection[str]) -> Act:
    """Return the act that pauses, resumes or stops snapshots, of all tables or of some. Raises SignalError.

    `known` are the tables with a snapshot. They are matched here, before the lock is taken: a thousand patterns take
    seconds, and capture waits for the lock.
    """
    signal.check(known)
    names: dict[str, None] = {}
    refused: dict[str, str] = {}
    for pattern in signal.tables:
        try:
            found = signal.matching(pattern, known)
        except SignalError as error:
            refused[pattern] = str(error)
            continue
        names |= dict.fromkeys(found)
        if not found:
            refused[pattern] = "no table with a snapshot matches"
    return lambda merger: _control(signal, merger, list(names), Outcome(refused=refused))


def _control(signal: Signal, merger: Merger, names: Sequence[str], outcome: Outcome) -> Outcome:
    tables = {one.table: one for one in merger.progress()}
    if not signal.tables:
        names = [name for name, one in tables.items() if one.state in _LIVE]
    for name in names:
        if name not in tables:
            continue  # it was dropped meanwhile
        now = tables[name]
        if now.state not in _LIVE:
            outcome.refused[name] = f"no snapshot is active: it is {now.shown}"
        elif signal.action == "stop":
            merger.requests.stop(name)
            outcome.done.append(name)
        elif now.paused == (signal.action == "pause"):
            outcome.refused[name] = "it is already paused" if now.paused else "it is not paused"
        else:
            merger.requests.pause(name, paused=not now.paused)
            outcome.done.append(name)
    if signal.tables == () and not outcome.done:
        outcome.refused.setdefault("", "nothing to do: no snapshot is in a suitable state")
    return outcome
