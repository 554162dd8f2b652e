"""A snapshot of PostgreSQL in which the queries of views run, for `cdc views check --source`. Changes nothing.

The snapshot holds no lock while the check waits for the lake: a lock would block DDL, and a waiting DDL would block
every other session. So it compares file nodes instead. A rewrite or TRUNCATE is not covered by a snapshot: the table
would read as empty or as it is later. The file nodes are read before the snapshot and again behind the queries, when
the queries' own locks still hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql

from cdc.config.settings import Config, Encode
from cdc.errors import SourceRefused, TailraceError
from cdc.lsn import Lsn
from cdc.model.visibility import PgSnapshot, widened
from cdc.replication import catalog_queries
from cdc.replication.collations import Collations, collations
from cdc.replication.connect import Connection, connect
from cdc.replication.error_mapping import translate
from cdc.replication.table_shape import SourceTable
from cdc.verify.published_columns import EXTENSION, PUBLISHED, published_columns
from cdc.verify.view_delta import Undecided

LOCKED: Final = "another session holds a lock on one of the tables"
_FETCH_ROWS: Final = 2000
_LOCK_MS: Final = 500  # less than deadlock_timeout: DDL that holds one table and waits for another must not suffer
# age() of a normal id counts from the next id to be assigned. It assigns no id itself and needs no right.
_NEXT: Final = "select pg_catalog.pg_current_snapshot()::text, pg_catalog.age('3'::pg_catalog.xid) + 3::int8"
# These functions read the newest catalog, not the snapshot's.
_FILES: Final = """
select o.oid::int8, o.oid::int8, pg_catalog.pg_relation_filenode(o.oid::regclass)::int8
from pg_catalog.unnest($1::oid[]) o (oid)
union all
select o.oid::int8, t.relid::oid::int8, pg_catalog.pg_relation_filenode(t.relid)::int8
from pg_catalog.unnest($1::oid[]) o (oid), pg_catalog.pg_partition_tree(o.oid::regclass) t
"""
_Files: TypeAlias = dict[int, frozenset[tuple[int, int | None]]]
"""Table -> its relations with their file nodes."""
# The columns and the filter that the stream has.
_PUBLISHED: Final = f"""
with {PUBLISHED}
select p.name, pg_catalog.format_type(t.oid, null), t.typcategory::text, p.rowfilter,
       (select count(*) from pg_catalog.pg_attribute x where x.attrelid = %(oid)s::oid and x.attnum > 0
          and not x.attisdropped),
       {EXTENSION}
from published p
join pg_catalog.pg_type t on t.oid = p.atttypid
order by p.attnum
"""  # noqa: S608 - of constants
_KINDS: Final = """
select o.place, pg_catalog.format_type(o.oid, null), x.extname::text
from pg_catalog.unnest($1::oid[]) with ordinality o (oid, place)
left join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_type'::regclass and d.objid = o.oid and d.deptype = 'e'
  and d.refclassid = 'pg_catalog.pg_extension'::regclass
left join pg_catalog.pg_extension x on x.oid = d.refobjid
order by o.place
"""
_EXTENSIONS: Final = """
select distinct n.nspname::text from pg_catalog.pg_extension x join pg_catalog.pg_namespace n on n.oid = x.extnamespace
where n.nspname <> 'pg_catalog' order by 1
"""


@dataclass(frozen=True, slots=True)
class PublishedColumn:
    """A column that the stream has: its type without a modifier, its category (``A``: array), its extension."""

    name: str
    kind: str
    category: str
    extension: str


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """The part of a table that the stream has.

    Attributes:
        table: as the catalog describes it.
        columns: the published ones, in table order.
        where: the row filter of the publication; empty for none.
        whole: every column is published.
    """

    table: SourceTable
    columns: tuple[PublishedColumn, ...]
    where: str
    whole: bool

    def plain(self) -> sql.Composed | None:
        """Return what stands for the table in a FROM clause; None if the stream has only a part of it."""
        return _rows_of(self.table) if self.whole and not self.where else None

    def query(self, parameter: int | None, encode: Encode) -> sql.Composed:
        """Return the query for its rows; `parameter` is the number of the one that has its delta, if it has any.

        Raises Undecided if the log has values of a column in a form that PostgreSQL cannot read back.
        """
        columns = sql.SQL(", ").join(sql.Identifier("r", column.name) for column in self.columns)
        where = sql.SQL(self.where or "true")
        own = sql.SQL("select {} from {} as r where ({})").format(columns, _rows_of(self.table), where)
        if parameter is None:
            return own
        place = sql.SQL(f"${parameter}::pg_catalog.json")
        kind = sql.SQL("null::{}").format(sql.Identifier(self.table.namespace, self.table.name))
        key = sql.SQL(", ").join(sql.Identifier("r", name) for name in self.table.key)
        key_of = sql.SQL(", ").join(sql.Identifier("k", name) for name in self.table.key)
        values = sql.SQL(", ").join(_logged(column, encode, self.table.table) for column in self.columns)
        # Materialized: a subquery that is computed for each row would read the document again each time.
        return sql.SQL(
            "with tailrace_logged as materialized (select {values} from pg_catalog.json_array_elements({place}) e"
            " cross join lateral pg_catalog.json_populate_record({kind}, e -> 'row') r"
            " where pg_catalog.json_typeof(e -> 'row') = 'object')"
            " {own} and ({key}) not in (select {key_of} from pg_catalog.json_array_elements({place}) e"
            " cross join lateral pg_catalog.json_populate_record({kind}, e -> 'key') k)"
            " union all select * from tailrace_logged"
        ).format(own=own, key=key, key_of=key_of, place=place, kind=kind, values=values)


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result: PostgreSQL's type without a modifier, and the extension that it is from."""

    name: str
    kind: str
    extension: str


class SourceSnapshot:
    """PostgreSQL at one moment. Created by `open_snapshot`; its connection has no other user.

    Attributes:
        tables: every captured table.
        snapshot: what it sees.
        lsn: everything that it sees lies below.
        settled: every transaction that had begun before the reader's position was taken has ended in it.
    """

    def __init__(self, config: Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._published: dict[int, PublishedTable | None] = {}
        self._files: _Files = {}
        self.snapshot = PgSnapshot(0, frozenset())
        self.lsn = Lsn(0)
        self.settled = False
        with catalog_queries.reading("read the tables"):
            if connection.execute("select pg_catalog.pg_is_in_recovery()").fetchone() == (True,):
                raise SourceRefused(
                    "source.dsn leads to a standby; views are compared with the primary",
                    hint="name the primary, or all hosts and target_session_attrs=read-write; a standby's snapshot does"
                    " not tell which transactions it sees",
                )
            self._schemas = [row[0] for row in connection.execute(_EXTENSIONS).fetchall()]
        source = config.source
        self.tables = catalog_queries.tables_matching(connection, source.tables, source.keyless, source.keys)

    def collations(self) -> Collations:
        """Return how PostgreSQL orders text. Call it outside of a snapshot."""
        return collations(self._connection)

    def next_xid(self) -> int:
        """Return the next transaction id to be assigned; 64 bits. Call it after the log's ends are read."""
        with catalog_queries.reading("read the next transaction id"):
            row = self._connection.execute(_NEXT).fetchone()
        assert row is not None
        return widened(row[1], PgSnapshot.parse(row[0]).xmax)

    def published(self, table: SourceTable) -> PublishedTable | None:
        """Return the part of a table that the stream has; None if it is not published. Call it before `begin`.

        Raises Undecided if another session holds a lock on a published table, this one or another one.
        """
        if table.oid not in self._published:
            with _reading("read the published columns"):
                rows = published_columns(self._connection, self._config, table, _PUBLISHED)
            columns = tuple(PublishedColumn(row[0], row[1], row[2], row[5] or "") for row in rows)
            whole = bool(rows) and len(rows) == rows[0][4]
            self._published[table.oid] = PublishedTable(table, columns, rows[0][3] or "", whole) if rows else None
        return self._published[table.oid]

    def begin(self, tables: Sequence[SourceTable], *, statement_s: float, since_xid: int) -> bool:
        """Take a snapshot for queries over these tables. Returns whether all transactions below `since_xid` ended.

        Raises Undecided if another session holds a lock on one of them.
        """
        self.end()
        with _reading("read file nodes"):
            self._files = self._file_nodes(tables)
        schemas = dict.fromkeys([*(table.namespace for table in tables), *self._schemas])
        path = ", ".join(sql.Identifier(name).as_string(self._connection) for name in schemas) or "''"
        begin = (
            "begin isolation level repeatable read, read only; set local row_security = off;"
            f" set local statement_timeout = {int(statement_s * 1000)};"
            " set local idle_in_transaction_session_timeout = 0; set local cursor_tuple_fraction = 1;"
            f" set local search_path = {path}"
        )
        with catalog_queries.reading("take a snapshot"):
            self._connection.execute(begin.encode())
            row = self._connection.execute(_NEXT).fetchone()
            # After the snapshot, so that everything it sees is below. The insert position, because a commit may not be
            # flushed yet.
            at = self._connection.execute("select pg_catalog.pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        assert at is not None
        self.snapshot, self.lsn = PgSnapshot.parse(row[0]), Lsn.parse(at[0])
        self.settled = self.snapshot.ended_below(since_xid)
        return self.settled

    def end(self) -> None:
        """End the snapshot, if there is one."""
        if not self._connection.closed:
            with contextlib.suppress(psycopg.Error):
                self._connection.rollback()

    @contextlib.contextmanager
    def statement(self, name: str) -> Iterator[None]:
        """Run a view's query in a savepoint, so that an error leaves the snapshot usable. Raises TailraceError."""
        try:
            self._connection.execute("savepoint tailrace_view")
            yield
        except psycopg.Error as error:
            raise translate(error, f"run the view {name} on PostgreSQL") from error
        finally:
            if not self._connection.closed:
                with contextlib.suppress(psycopg.Error):
                    self._connection.execute("rollback to savepoint tailrace_view")

    def columns(self, query: str, parameters: Sequence[str]) -> list[ResultColumn]:
        """Return the columns of a query's result without running it. Inside `statement`."""
        with psycopg.RawCursor(self._connection) as cursor:
            cursor.execute(f"select * from (\n{query}\n) as v limit 0".encode(), list(parameters))  # noqa: S608 - a view
            described = [(column.name, column.type_code) for column in cursor.description or ()]
            rows = cursor.execute(_KINDS.encode(), [[oid for _, oid in described]]).fetchall()
        kinds = {place: (kind, extension) for place, kind, extension in rows}
        return [ResultColumn(name, *_known(kinds.get(at))) for at, (name, _) in enumerate(described, 1)]

    def rows(
        self,
        query: str,
        parameters: Sequence[str],
        columns: Sequence[ResultColumn],
        forms: Sequence[Callable[[str], str]],
    ) -> Iterator[tuple[str | None, ...]]:
        """Run a query and yield its rows in the common form. Inside `statement`; arrays are read as JSON."""
        names = ", ".join(f"c{at}" for at in range(len(columns)))
        shown = ", ".join(
            f"pg_catalog.to_json(c{at})::text" if column.kind.endswith("[]") else f"c{at}"
            for at, column in enumerate(columns)
        )
        whole = f"declare tailrace_view no scroll cursor for select {shown} from (\n{query}\n) as v ({names})"  # noqa: S608
        with psycopg.RawCursor(self._connection) as cursor:
            cursor.execute(whole.encode(), list(parameters))
            while True:
                cursor.execute(f"fetch forward {_FETCH_ROWS} from tailrace_view".encode())
                result = cursor.pgresult
                assert result is not None
                for at in range(result.ntuples):
                    yield tuple(_cell(result.get_value(at, place), form) for place, form in enumerate(forms))
                if result.ntuples < _FETCH_ROWS:
                    break
            cursor.execute(b"close tailrace_view")

    def check_files(self, tables: Sequence[SourceTable]) -> None:
        """Raise Undecided if a table was rewritten or truncated, or got or lost a partition, since `begin`.

        Call it behind the rows of a query over these tables, inside the same `statement`.
        """
        found = self._file_nodes(tables)
        for table in tables:
            if found.get(table.oid) != self._files.get(table.oid):
                raise Undecided(f"{table.table} was rewritten or truncated, or its partitions changed, meanwhile")

    def _file_nodes(self, tables: Sequence[SourceTable]) -> _Files:
        found: _Files = {}
        with psycopg.RawCursor(self._connection) as cursor:
            for oid, leaf, node in cursor.execute(_FILES.encode(), [[one.oid for one in tables]]):
                found[oid] = found.get(oid, frozenset()) | {(leaf, node)}
        return found


@contextlib.contextmanager
def open_snapshot(config: Config) -> Iterator[SourceSnapshot]:
    """Connect to the source. Raises SourceUnreachable, SourceRefused."""
    connection = connect(config.source.dsn, application_name="cdc views check")
    try:
        connection.execute(f"set lock_timeout = {_LOCK_MS}".encode())
        yield SourceSnapshot(config, connection)
    finally:
        connection.close()


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    """Translate errors of a query that locks tables for a moment. A migration can hold them for hours."""
    try:
        with catalog_queries.reading(what):
            yield
    except TailraceError as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            raise Undecided(LOCKED) from error
        raise


def _known(kind: tuple[Any, ...] | None) -> tuple[str, str]:
    return ("text", "") if kind is None else (str(kind[0]), str(kind[1] or ""))


def _cell(value: bytes | None, form: Callable[[str], str]) -> str | None:
    return None if value is None else form(value.decode(errors="surrogateescape"))


def _rows_of(table: SourceTable) -> sql.Composed:
    """Return the table for a FROM clause: with partitions, without inheriting tables, which have their own topics."""
    only = sql.SQL("" if table.partitioned else "only ")
    return sql.SQL("{}{}").format(only, sql.Identifier(table.namespace, table.name))


def _logged(column: PublishedColumn, encode: Encode, table: str) -> sql.Composed:
    """Return a column's value in a row of the log, `e -> 'row'`, of which `r` is the record."""
    chosen = {
        "time": {"date", "time without time zone", "timestamp without time zone"} if encode.time != "iso" else set(),
        "bytea": {"bytea"} if encode.bytea != "hex" else set(),
        "interval": {"interval"} if encode.interval != "iso" else set(),
    }
    base = column.kind.removesuffix("[]")
    option = next((name for name, kinds in chosen.items() if base in kinds), "")
    option = "hstore" if column.extension == "hstore" and encode.hstore == "json" else option
    option = "json" if base in {"json", "jsonb"} and column.category == "A" else option
    if option:
        raise Undecided(f"rows of {table} changed meanwhile, and the log has {column.name} as encode.{option} says")
    if base in {"json", "jsonb"}:
        text = "e -> 'row' ->> {name}" if encode.json == "string" else "nullif((e -> 'row' -> {name})::text, 'null')"
        return sql.SQL(f"({text})::{base}").format(name=sql.Literal(column.name))
    return sql.SQL("{}").format(sql.Identifier("r", column.name))
