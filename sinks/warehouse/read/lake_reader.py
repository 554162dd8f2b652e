"""Reads a lake without Spark: cuts, versions of tables, and rows as Arrow.

`Lake` resolves what people name (a cut, an LSN, a table, a view) by the manifests; every reader of a lake starts there.
deltalake reads the rows, so a read takes a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from cdc.errors import LakeDamaged, SinkBehind, TailraceError, UsageError
from cdc.lsn import Lsn
from sinks.warehouse.delta.pinned_version import pinned, row_count
from sinks.warehouse.lake import layout
from sinks.warehouse.lake.location import Location, Where
from sinks.warehouse.lake.manifest import Manifest, ManifestStore, ViewState
from sinks.warehouse.lake.table_naming import known_names_hint, matching_tables, sql_name

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from sqlglot import exp

At: TypeAlias = int | Lsn | None
"""A cut by its number, an `Lsn`, or None for the newest cut."""

_ORDER_COLUMNS_MAX: Final = 4


def parse_at(text: str) -> int | Lsn:
    """Parse ``0/1B014F8`` as an LSN, ``17`` as a cut. Raises UsageError."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return Lsn.parse(text)
    except ValueError as error:
        raise UsageError(f"invalid LSN or cut {text!r}", hint="expected e.g. LSN 0/1B014F8, or cut 17") from error


class Lake:
    """A lake, for reading. Keeps no state; every call reads the current files.

    Args:
        where: a folder, or a URL as the deltalake package takes it.
        storage: options of the object store, named as in that package; without them the environment is used.
    """

    def __init__(self, where: Where, *, storage: Mapping[str, str] | None = None) -> None:
        self.location = Location.of(where, storage)
        self.store = ManifestStore(self.location)

    def manifest(self, at: At = None) -> Manifest:
        """Return a cut: by number, the newest one that ends at an LSN or before it, or the newest.

        Raises SinkBehind if the lake does not reach that LSN, UsageError if the cut does not exist.
        """
        newest = self.store.current()
        if newest is None:
            folder = self.location.folder
            if folder is not None and not folder.is_dir():
                raise UsageError(f"there is no lake at {folder}", hint="the sink creates it with its first cut")
            raise SinkBehind(f"the lake at {self.location} has no cut yet", hint="run the sink", command="cdc sink run")
        if at is None:
            return newest
        if not isinstance(at, Lsn):
            return self.store.at(at)
        if at > newest.end_lsn:
            raise SinkBehind(
                f"the lake does not reach {at}: its newest cut {newest.cut} ends at {Lsn(newest.end_lsn)}",
                hint="later cuts will, if sink and capture run",
                command="cdc status",
                lsn=at,
                newest_lsn=Lsn(newest.end_lsn),
            )
        found = self.store.at_lsn(at)
        if found is None:
            first = self.store.at(self.store.cuts()[0])
            raise UsageError(
                f"the lake keeps no cut from {at} or before",
                hint=f"the oldest is cut {first.cut} at {Lsn(first.end_lsn)}",
            )
        return found

    def tables(self, at: At = None) -> dict[str, int]:
        """Return each table of the lake, including views -> its version at that cut."""
        manifest = self.manifest(at)
        found = {name: state.version for name, state in manifest.tables.items()}
        views = {layout.view(name, state.generation): state.version for name, state in manifest.views.items()}
        return found | views

    def table(self, name: str, manifest: Manifest, kinds: Collection[str] = ("mirror",)) -> str:
        """Return the lake table that a name means: ``orders``, ``history.orders``, ``mirror/public.orders`` ...

        Args:
            name: as a person writes it.
            manifest: of the cut.
            kinds: kinds to search if the name gives none; without ``mirror`` they come first.

        Raises UsageError with the known names.
        """
        if name in manifest.tables:
            return name
        parts = tuple(name.split("."))
        found = matching_tables(parts, manifest.tables)
        if "mirror" not in kinds:
            found = [one for kind in kinds for one in matching_tables((kind, *parts), manifest.tables)] or found
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"{name} is ambiguous: {', '.join(map(sql_name, found))}", hint="name the schema, too")
        wanted = [one for one in manifest.tables if not kinds or one.partition("/")[0] in kinds]
        shown = _mirrors_of(wanted, manifest) or [sql_name(one) for one in wanted]
        raise _unknown(f"table {name} does not exist in the lake at {Lsn(manifest.end_lsn)}", name, shown)

    def view(self, name: str, manifest: Manifest) -> tuple[str, ViewState]:
        """Return a view's lake table and its state at a cut. Raises UsageError with the known names."""
        state = manifest.views.get(name)
        unbuilt = manifest.unbuilt.get(name)
        if state is None and unbuilt is not None:
            raise UsageError(
                f"the view {name} has no rows yet: {unbuilt.reason}",
                hint="the sink tries to compute it in each cut",
                command="cdc views list",
            )
        if state is None:
            where = f"cut {manifest.cut} at {Lsn(manifest.end_lsn)}"
            raise _unknown(f"view {name} does not exist at {where}", name, list(manifest.views))
        return layout.view(name, state.generation), state

    def lsn_of(self, cut: int, manifest: Manifest) -> tuple[Lsn | None, int | None]:
        """Return where a cut ends and when it was published (microseconds); None for both if it is not kept."""
        if cut == manifest.cut:
            return Lsn(manifest.end_lsn), manifest.committed_at_us
        if cut not in self.store.cuts():
            return None, None
        found = self.store.at(cut)
        return Lsn(found.end_lsn), found.committed_at_us


@dataclass(frozen=True, slots=True)
class ViewSummary:
    """A view's entry in `cdc views list`.

    Attributes:
        cut: the cut that its rows are as of.
        lsn: where that cut ends; None if its manifest is not kept.
        committed_at_us: when that cut was published; None as `lsn`.
        rows: number of rows.
        reason: why it is not as of the newest cut; "" if it is.
    """

    name: str
    cut: int
    lsn: Lsn | None
    committed_at_us: int | None
    rows: int
    reason: str


def _mirrors_of(archives: Sequence[str], manifest: Manifest) -> list[str]:
    """Return the names of the tables of these archives, as a person writes them: an archive has that of a topic."""
    folders = {one.partition(".")[2] for one in archives if one.startswith("archive/")}
    return [sql_name(one) for one in manifest.tables if one.startswith("mirror/") and one.partition("/")[2] in folders]


def views(lake: Lake, manifest: Manifest) -> list[ViewSummary]:
    """Return every view of a cut, by name."""
    return [view_summary(lake, manifest, name) for name in sorted(manifest.views)]


def view_summary(lake: Lake, manifest: Manifest, name: str) -> ViewSummary:
    """Return what a cut says about a view. Raises UsageError with the known names."""
    table, state = lake.view(name, manifest)
    # A view that stayed because its inputs did not change is as of this cut as well.
    cut = state.cut if state.reason else manifest.cut
    lsn, at_us = lake.lsn_of(cut, manifest)
    return ViewSummary(name, cut, lsn, at_us, row_count(pinned(lake.location, table, state.version)), state.reason)


def read(
    lake: Lake,
    table: str,
    version: int,
    *,
    where: str = "",
    limit: int | None = None,
    order: Sequence[str] = (),
) -> pa.Table:
    """Return rows of a version.

    Args:
        lake: the lake of the table.
        table: path below the lake.
        version: of the Delta table.
        where: an SQL condition over its columns, as in PostgreSQL; column names are case-insensitive.
        limit: the maximum number of rows.
        order: columns to sort by; the first few by default, so that the result is repeatable.

    Raises UsageError for a condition that cannot be run.
    """
    found = pinned(lake.location, table, version)
    columns = columns_of(found)
    sql = f"select {', '.join(map(_quoted, columns))} from t"  # noqa: S608 - names are quoted, the condition is parsed
    if where:
        sql += f" where {condition(where, columns)}"
    by = list(order) or [name for name, kind in columns.items() if _sortable(kind)][:_ORDER_COLUMNS_MAX]
    if by:
        sql += f" order by {', '.join(map(_quoted, by))}"
    if limit is not None:
        sql += f" limit {limit:d}"
    rows = run_query(found, sql)
    if rows is None:
        # The engine's message may contain a value of a row.
        raise UsageError(f"cannot run the condition {where!r}", hint=_typed(columns))
    return rows


def run_query(table: DeltaTable, sql: str) -> pa.Table | None:
    """Return the rows of an SQL query over `t`, this version; None if a value in it does not fit its column."""
    import pyarrow as pa
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    try:
        return pa.table(QueryBuilder().register("t", table).execute(sql))
    except (DeltaError, pa.ArrowException, OSError) as error:
        damage = _damage(table, error)
        if damage is None:
            return None
        raise damage from error


def stream_query(table: DeltaTable, sql: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the columns and the rows of an SQL query over `t`, this version, without holding all rows in memory.

    The iterator raises LakeDamaged, and the query itself does.
    """
    import pyarrow as pa
    from deltalake import QueryBuilder
    from deltalake.exceptions import DeltaError

    @contextmanager
    def translated() -> Iterator[None]:
        try:
            yield
        except (DeltaError, pa.ArrowException, OSError) as error:
            raise _damage(table, error) or LakeDamaged(
                f"version {table.version()} of {table.table_uri} cannot be read", hint="rebuild the sink"
            ) from error

    def batches() -> Iterator[pa.RecordBatch]:
        with translated():
            yield from reader

    with translated():
        reader = pa.RecordBatchReader.from_stream(QueryBuilder().register("t", table).execute(sql))
    return reader.schema, batches()


def _damage(table: DeltaTable, error: Exception) -> TailraceError | None:
    """Return the error if files cannot be read; None if it is about a value."""
    from sinks.warehouse.lake.store_errors import is_storage_error, store_unreachable

    if is_storage_error(error):
        return store_unreachable(table.table_uri, error)
    text = str(error)
    if "Object at location" in text or "(os error" in text:
        return LakeDamaged(
            f"files of {table.table_uri} are lost", hint="restore the lake from a copy, or rebuild the sink"
        )
    return None


def columns_of(table: DeltaTable) -> dict[str, str]:
    """Return column -> type, as Delta names it; for a nested type only its kind."""
    fields = [(field.name, getattr(field.type, "type", "")) for field in table.schema().fields]
    return {name: kind if isinstance(kind, str) else "array" for name, kind in fields}


def condition(text: str, columns: Mapping[str, str]) -> str:
    """Return a condition for the engine: one expression with quoted columns. Raises UsageError."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        found: exp.Expr = sqlglot.parse_one(f"select 1 where ({text}\n)", read="postgres")
    except SqlglotError as error:
        raise UsageError(
            f"invalid condition {text!r}: {str(error).splitlines()[0]}", hint="as in: status = 'new' and total > 10"
        ) from error
    where = found.args.get("where")
    if not isinstance(found, exp.Select) or where is None or found.find(exp.Table, exp.Subquery) or _more(found):
        raise UsageError(f"invalid condition {text!r}", hint="use one expression: status = 'new' and total > 10")
    by_case = {name.lower(): name for name in columns}
    for column in where.find_all(exp.Column):
        name = column.name if column.name in columns else by_case.get(column.name.lower(), "")
        if not name or column.table:
            raise _unknown(f"column {column.sql('postgres')} does not exist", column.name, list(columns))
        column.set("this", exp.to_identifier(name, quoted=True))
    return str(where.this.unnest().sql("postgres", comments=False))


def _more(select: exp.Select) -> bool:
    return any(value for key, value in select.args.items() if key not in {"expressions", "where", "kind"})


def _sortable(kind: str) -> bool:
    return kind not in {"struct", "array", "map", "binary", ""}


def _typed(columns: Mapping[str, str]) -> str:
    return "its columns are " + ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _unknown(message: str, name: str, names: Sequence[str]) -> UsageError:
    return UsageError(message, hint=known_names_hint(name, names) or "there are none")
