"""Commits one cut, from `pending` to the manifest, in an order that no crash can break.

1. `pending` becomes durable: it fixes the range and the plans of the cut.
2. The tables are written. Each statement is committed at most once, whatever was done before a crash.
3. The manifest is published: readers see all tables move together.

Every input of a cut must be read at `version(table)`, never at the newest version: after a crash some tables hold the
cut already. A driver does::

    commit = CutCommit(store, committer, pending)
    commit.archive(layout.archive(topic), raw, schema_id=...)
    commit.mirror(layout.mirror("public", "orders"), rows, ["id"], schema_id=...)
    commit.view("revenue", result, sql_sha=...)
    commit.publish(name="shop", committed_at_us=...)

After an error or a crash it makes a new one for `store.pending()` and repeats the same calls.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cdc.errors import InvariantError, LakeDamaged
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.committer import Txn
from sinks.warehouse.lake.manifest import Manifest, PlanRecord, TableState, Unbuilt, ViewState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sinks.warehouse.lake.committer import Changes, Committer, Frame, Rows, TableReads
    from sinks.warehouse.lake.manifest import ManifestStore, Pending, Repair

# App ids in the Delta logs. They are permanent: a renamed one would apply an interrupted cut twice.
_ARCHIVE: Final = "tailrace.archive"
_MIRROR: Final = "tailrace.mirror"
_HISTORY: Final = "tailrace.history"
_RESHAPE: Final = "tailrace.reshape"
_LOAD: Final = "tailrace.load"
_COMPACT: Final = "tailrace.compact"
_VIEW: Final = "tailrace.view"
_IN_PIECES: Final = frozenset({_ARCHIVE, _MIRROR, _HISTORY, _RESHAPE})


@dataclass(frozen=True, slots=True)
class Written:
    """What a table took in a cut.

    Attributes:
        rows: as `TableWrites.merge` takes them, or as they were appended if `key` is empty. Rows in the executors are
            there until the views of the cut are done.
        key: key columns of a mirror.
    """

    rows: Changes
    key: tuple[str, ...] = ()


class CutCommit:
    """The commits of one cut. The constructor makes `pending` durable, so nothing can be written before that.

    Each method may be called once per table. `reshape`, the statement of the table's kind, and `compact` of one table
    come in that order. Returned versions are those of this cut; later steps of the cut read them.

    Args:
        pending: a new one, or the one that `store.pending()` returns after a crash.
    """

    def __init__(self, store: ManifestStore, committer: Committer, pending: Pending) -> None:
        self._is_first = store.begin(pending)
        self._store = store
        self._committer = committer
        self._pending = pending
        self._previous = store.current()
        self._tables: dict[str, TableState] = {} if self._previous is None else dict(self._previous.tables)
        self._tables |= pending.states
        self._views: dict[str, ViewState] = {} if self._previous is None else dict(self._previous.views)
        self._checked: set[str] = set()
        self._texts: Mapping[str, str] = {}
        self._written: dict[str, Written] = {}
        self._reshaped: set[str] = set()
        self._unbuilt: dict[str, Unbuilt] = {}
        self._steps: Counter[str] = Counter()
        self._piece = 0

    def begin_views(self, states: Mapping[str, ViewState], texts: Mapping[str, str]) -> None:
        """Set the view states that the cut begins with, and the texts it computes views by (name -> hash)."""
        self._views = dict(states)
        self._texts = dict(texts)

    def begin_piece(self, number: int) -> None:
        """Begin a piece of the cut (`sinks.warehouse.log.cut_pieces`). Each piece may write every table once."""
        self._piece = number

    def end_piece(self, number: int) -> None:
        """Make it durable that every table has the pieces up to this one. No later attempt applies them again.

        Failures before it count less: the division works.
        """
        before = {} if self._previous is None else self._previous.tables
        changed = {table: state for table, state in self._tables.items() if before.get(table) != state}
        failures = max(self._pending.failures - 1, 0)
        self._pending = structs.replace(
            self._pending, written=number + 1, states=changed, failures=failures, attempts=0
        )
        self._store.revise(self._pending)

    @property
    def written(self) -> dict[str, Written]:
        """Lake table -> the rows that it took in this cut.

        Rewritten tables are left out. Empty if the cut is applied in pieces, because the rows of all pieces together
        may not fit into memory.
        """
        return dict(self._written)

    def version(self, table: str) -> int | None:
        """Return the version to read a table at: this cut's if written, else the manifest's; None if there is none."""
        state = self._tables.get(table)
        return None if state is None else state.version

    @property
    def pending(self) -> Pending:
        """What was decided before the cut began."""
        return self._pending

    @property
    def tables(self) -> dict[str, TableState]:
        """Every table as of this cut, so far."""
        return dict(self._tables)

    def archive(self, table: str, rows: Changes, *, schema_id: str, partition_by: Sequence[str] = ()) -> int:
        """Add the raw changes of a topic."""

        def write(base: int | None, txn: Txn) -> int:
            return self._committer.append(table, rows, base=base, txn=txn, partition_by=partition_by)

        self._note(table, rows, (), schema_id)
        return self._write(table, _ARCHIVE, schema_id, write)

    def mirror(self, table: str, rows: Changes, key: Sequence[str], *, schema_id: str) -> int:
        """Upsert and delete (`TableWrites.merge`)."""

        def write(base: int | None, txn: Txn) -> int:
            return self._committer.merge(table, rows, key, base=base, txn=txn)

        self._note(table, rows, key, schema_id)
        return self._write(table, _MIRROR, schema_id, write)

    def history(self, table: str, closes: Changes, rows: Changes, key: Sequence[str], *, schema_id: str) -> int:
        """Close open rows and add new ones (`TableWrites.close_and_append`)."""

        def write(base: int | None, txn: Txn) -> int:
            return self._committer.close_and_append(table, closes, rows, key, base=base, txn=txn)

        return self._write(table, _HISTORY, schema_id, write)

    def load(self, table: str, write: Callable[[int | None, Txn], int], *, schema_id: str) -> int:
        """Write all rows of a table that is new in this cut, by a function that makes one commit."""
        return self._write(table, _LOAD, schema_id, write)

    def reshape(self, table: str, rows: Rows | Frame, *, schema_id: str) -> int:
        """Rewrite a table with other columns, from its rows at `version(table)`. Must be its first statement."""

        def write(base: int | None, txn: Txn) -> int:
            return self._committer.overwrite(table, rows, base=base, txn=txn)

        self._reshaped.add(table)
        return self._write(table, _RESHAPE, schema_id, write)

    def compact(self, table: str, *, sort_by: Sequence[str] = ()) -> int:
        """Rewrite many files as few. Must be the last statement on a table in a cut."""
        state = self._tables.get(table)
        if state is None:
            raise InvariantError(f"{table} is compacted but was never written")

        def write(base: int | None, txn: Txn) -> int:
            if base is None:
                raise InvariantError(f"{table} is compacted but was never written")
            return self._committer.compact(table, base=base, txn=txn, sort_by=sort_by)

        return self._write(table, _COMPACT, state.schema_id, write)

    def view(self, name: str, rows: Changes, *, sql_sha: str, generation: int = 1, sort_by: Sequence[str] = ()) -> int:
        """Replace a view's rows."""
        table = layout.view(name, generation)
        base = self._view_base(name, generation)
        version = self._committer.overwrite(table, rows, base=base, txn=self._txn(_VIEW), sort_by=sort_by)
        self._views[name] = self._view_state(version, generation, sql_sha)
        return version

    def view_keys(self, name: str, keys: Changes, rows: Changes, *, sql_sha: str, generation: int = 1) -> int:
        """Replace a view's rows of these keys (`TableWrites.replace_keys`); the view must have been computed before."""
        table = layout.view(name, generation)
        base = self._view_base(name, generation)
        version = self._committer.replace_keys(table, keys, rows, base=base, txn=self._txn(_VIEW))
        self._views[name] = self._view_state(version, generation, sql_sha)
        return version

    def planned(self, name: str, record: PlanRecord) -> None:
        """Record for readers how a view was kept in this cut."""
        self._views[name] = structs.replace(self._views[name], plan=record)

    def keep_view(self, name: str, reason: str) -> None:
        """Leave a view as of the cut it was computed at, and record why ("" if its inputs did not change).

        If an interrupted attempt at this cut already computed the view, its result is used: the inputs were the same.
        """
        state = self._views.get(name)
        if state is None:
            if reason:
                self._unbuilt[name] = Unbuilt(reason=reason, text=self._texts.get(name, ""))
            return
        table = layout.view(name, state.generation)
        # The first attempt asks no table: with many views that do not change, this would be most of a cut.
        held = None if self._is_first else self._committer.held(table, base=state.version, txn=self._txn(_VIEW))
        if held is not None:
            self._views[name] = structs.replace(
                self._view_state(held, state.generation, state.sql_sha), plan=state.plan
            )
            return
        self._views[name] = structs.replace(state, reason=reason)

    def describe(
        self, table: str, *, key: Sequence[str], event_time: str = "", columns: Mapping[str, str] | None = None
    ) -> None:
        """Record properties of a table that its columns do not show (`TableState`); a missing table is ignored."""
        state = self._tables.get(table)
        if state is not None:
            self._tables[table] = structs.replace(
                state, key=tuple(key), event_time=event_time, columns=dict(columns or {})
            )

    def forget(self, tables: Collection[str], views: Collection[str]) -> None:
        """Leave tables and views out of the manifest from this cut on."""
        for table in tables:
            self._tables.pop(table, None)
        for view in views:
            self._views.pop(view, None)

    @property
    def views(self) -> dict[str, ViewState]:
        """Every view as of this cut, so far."""
        return dict(self._views)

    def publish(self, *, name: str, committed_at_us: int, repairs: Sequence[Repair] = ()) -> Manifest:
        """Make the cut visible. Tables and views that were not written keep their version.

        `repairs` are all of the log so far; those of the previous cut if there are no new ones.
        """
        pending, numbers = self._pending, self._numbers()
        manifest = Manifest(
            cut=pending.cut,
            name=name,
            position=pending.position,
            tables=self._tables,
            views={name: self._recorded(name, state, numbers) for name, state in self._views.items()},
            unbuilt=self._unbuilt,
            repairs=tuple(repairs) or (self._previous.repairs if self._previous else ()),
            committed_at_us=committed_at_us,
        )
        self._store.publish(manifest)
        return manifest

    def _write(self, table: str, app: str, schema_id: str, write: Callable[[int | None, Txn], int]) -> int:
        before = self._tables.get(table)
        if before is not None:
            self._check_rows(table, before)
        self._steps[table] += 1
        version = write(None if before is None else before.version, self._txn(app, self._steps[table]))
        if before is None or version != before.version or schema_id != before.schema_id:
            rows = self._committer.rows(table, version)
            fresh = TableState(version=version, schema_id=schema_id) if before is None else before
            self._tables[table] = structs.replace(fresh, version=version, schema_id=schema_id, rows=rows)
        self._checked.add(table)
        return version

    def _note(self, table: str, rows: Changes, key: Sequence[str], schema_id: str) -> None:
        """Note the rows that a table takes, unless its schema changed: then all its rows may have changed."""
        before = self._tables.get(table)
        if self._pending.pieces:
            return
        if before is not None and before.schema_id == schema_id and table not in self._reshaped:
            self._written[table] = Written(rows, tuple(key))

    def _check_rows(self, table: str, state: TableState) -> None:
        """Compare with the manifest's count: a truncated log file may read as a commit without rows."""
        if table in self._checked or state.rows is None:
            return
        rows = self._committer.rows(table, state.version)
        if rows != state.rows:
            raise LakeDamaged(
                f"version {state.version} of {table} has {rows} rows, the manifest says {state.rows}",
                hint="files of its log are damaged; restore the lake from a copy, or rebuild the sink",
                table=table,
            )

    def _view_base(self, name: str, generation: int) -> int | None:
        state = self._views.get(name)
        return state.version if state is not None and state.generation == generation else None

    def _view_state(self, version: int, generation: int, sql_sha: str) -> ViewState:
        return ViewState(version=version, generation=generation, reason="", cut=self._pending.cut, sql_sha=sql_sha)

    def _numbers(self) -> dict[str, int]:
        """Return view -> the highest number that a generation of it has in this cut, or had in the previous one."""
        found = {} if self._previous is None else {name: state.newest for name, state in self._previous.views.items()}
        for other in {*self._views, *self._texts}:
            view, number = layout.split_beside(other)
            found[view] = max(found.get(view, 0), number)
        return found

    def _recorded(self, name: str, state: ViewState, numbers: Mapping[str, int]) -> ViewState:
        """Add the text that made the state, and the highest generation number: no number is ever used twice."""
        newest = max(state.newest, state.generation)
        if not layout.is_beside(name):
            newest = max(newest, numbers.get(name, 0))
        text = state.text if state.reason else self._texts.get(name, state.text)
        return structs.replace(state, text=text, newest=newest)

    def _txn(self, app: str, step: int = 0) -> Txn:
        named = _of_piece(app, self._piece) if app in _IN_PIECES else app
        return Txn(named, self._pending.cut, self._pending.end_lsn, step)


def holds(tables: TableReads, table: str, piece: int, cut: int) -> bool:
    """Whether an attempt at `cut` wrote this piece to an archive, or reshaped a table for it."""
    applied = (tables.applied(table, _of_piece(app, piece)) for app in (_ARCHIVE, _RESHAPE))
    return any(found is not None and found >= cut for found in applied)


def _of_piece(app: str, number: int) -> str:
    """Return the app id of a statement in a piece; the first piece has the id of an undivided cut."""
    return f"{app}.{number}" if number else app
