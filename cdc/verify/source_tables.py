"""Reads the captured columns and rows of tables, with the values in the form that the log must have.

The server computes the expected form of each value, never our encoders: with `to_jsonb`, with a cast for values that
the log has as text, and with `cdc.verify.server_forms` for the options of `[encode]`. `open_source` uses one REPEATABLE
READ transaction, so that all tables are read at one moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from cdc.config.settings import Config
from cdc.errors import UsageError
from cdc.replication import catalog_queries
from cdc.replication.connect import Connection, connect
from cdc.replication.error_mapping import translate
from cdc.replication.table_shape import SourceTable
from cdc.verify.published_columns import EXTENSION, PUBLISHED, published_columns
from cdc.verify.row_json import Row, row_of
from cdc.verify.server_forms import chosen_form, reshaped

BATCH_ROWS: Final = 500  # rows in one list; also the keys of one `in (…)` in the store
_FETCH_ROWS: Final = 5000

# The published columns; for each the base type below domains and arrays, whether the log has its text, and its
# extension. The log has the text of composites and of types that are not built in (FirstNormalObjectId is 16384):
# to_jsonb would use their cast to json if there is one.
_COLUMNS: Final = f"""
with recursive {PUBLISHED}, types as (
    select p.name, p.rowfilter, p.attnum, t.oid, t.typtype, t.typcategory, t.typbasetype, t.typelem, false as is_array
    from published p
    join pg_catalog.pg_type t on t.oid = p.atttypid
    union all
    select c.name, c.rowfilter, c.attnum, t.oid, t.typtype, t.typcategory, t.typbasetype, t.typelem,
           c.is_array or c.typtype <> 'd'
    from types c
    join pg_catalog.pg_type t
      on t.oid = case when c.typtype = 'd' then c.typbasetype when c.typcategory = 'A' then c.typelem end
)
select t.name, t.oid::regtype::text, t.typtype = 'c' or t.oid >= 16384, t.is_array, t.rowfilter,
       {EXTENSION}
from types t
where t.typtype <> 'd' and t.typcategory <> 'A'
order by t.attnum
"""  # noqa: S608 - of constants


def rows_of(table: SourceTable) -> sql.Composed:
    """Return the table for a FROM clause: with partitions, without inheriting tables, which have their own topics."""
    only = sql.SQL("" if table.partitioned else "only ")
    return sql.SQL("{}{}").format(only, sql.Identifier(table.namespace, table.name))


class SourceRows:
    """The source at one moment. Created by `open_source`."""

    def __init__(self, config: Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self.tables = catalog_queries.tables_matching(
            connection, config.source.tables, config.source.keyless, config.source.keys
        )

    def rows(self, table: SourceTable) -> Iterator[list[Row]]:
        """Yield all captured rows in lists of at most BATCH_ROWS; nothing when the table is not published."""
        query = self._query(table)
        if query is None:
            return
        with catalog_queries.reading(f"read {table.table}"), self._connection.cursor("cdc_verify") as cursor:
            cursor.itersize = _FETCH_ROWS
            cursor.execute(query.text)
            while found := cursor.fetchmany(_FETCH_ROWS):
                for at in range(0, len(found), BATCH_ROWS):
                    yield [query.row(text) for (text,) in found[at : at + BATCH_ROWS]]

    def published(self, table: SourceTable) -> bool:
        """Return whether the publication has the table."""
        return self._query(table) is not None

    def shape(self, table: SourceTable) -> Shape | None:
        """Return how rows of a table are queried; None when it is not published."""
        columns = published_columns(self._connection, self._config, table, _COLUMNS)
        if not columns:
            return None
        chosen = [chosen_form(self._config.encode, kind, extension or "") for _, kind, *_, extension in columns]
        shown = [
            self._shown(name, kind, foreign, is_array) if form is None else form.shown(name, is_array=is_array)
            for (name, kind, foreign, is_array, *_), form in zip(columns, chosen, strict=True)
        ]
        # to_jsonb would refuse values that only json can hold, such as an escaped zero byte.
        whole = sql.SQL("json" if self._config.encode.json == "value" else "jsonb")
        arrays = [column[0] for column, form in zip(columns, chosen, strict=True) if form is not None and column[3]]
        formed = {column[0] for column, form in zip(columns, chosen, strict=True) if form is not None}
        return Shape(whole, sql.SQL(", ").join(shown), columns[0][4] or "", tuple(arrays), frozenset(formed))

    def _query(self, table: SourceTable) -> _Query | None:
        shape = self.shape(table)
        if shape is None:
            return None
        # `r.*` is the row; `r` alone would be a column of that name if the table has one.
        query = sql.SQL("select pg_catalog.to_{}(r.*)::text from (select {} from {}{}) r")
        where = sql.SQL(f" where {shape.where}") if shape.where else sql.SQL("")
        text = query.format(shape.whole, shape.shown, rows_of(table), where)
        return _Query(text, shape.arrays)

    def _shown(self, name: str, kind: str, foreign: bool, is_array: bool) -> sql.Composed:  # noqa: FBT001 - a row of the catalog
        """Return a column, cast to text where to_jsonb would not show the text in the log."""
        encode = self._config.encode
        as_text = (
            (kind in {"json", "jsonb"} and encode.json == "string")
            or foreign
            or (kind == "numeric" and encode.numeric == "string")
            or (kind == "bigint" and encode.int64 == "string")
        )
        cast = sql.SQL("" if not as_text else "::text[]" if is_array else "::text")
        return sql.SQL("{}{}").format(sql.Identifier(name), cast)


@dataclass(frozen=True, slots=True)
class Shape:
    """The SQL that returns a row as the log must have it.

    Attributes:
        whole: ``json`` or ``jsonb``.
        shown: the columns, each in the form of the log.
        where: the row filter of the publication as the catalog prints it, with qualified names (connect.SESSION has no
            search_path); empty for none.
        arrays: columns that arrive as pairs, see `cdc.verify.server_forms.Form.shown`.
        formed: columns with a form chosen in `[encode]`, whose text in the log is not PostgreSQL's.
    """

    whole: sql.SQL
    shown: sql.Composed
    where: str
    arrays: tuple[str, ...]
    formed: frozenset[str]

    def row(self, text: str) -> Row:
        """Read a row as the log must have it."""
        return _Query(self.shown, self.arrays).row(text)


@dataclass(frozen=True, slots=True)
class _Query:
    """A query for the rows of a table; `arrays` are columns that arrive as pairs (`Form.shown`)."""

    text: sql.Composed
    arrays: tuple[str, ...]

    def row(self, text: str) -> Row:
        """Read a row as the log must have it."""
        row = row_of(text)
        for name in self.arrays:
            row[name] = reshaped(row[name])
        return row


def refuse_compatibility(config: Config) -> None:
    """Raise UsageError when values have forms that PostgreSQL cannot compute."""
    if config.encode.compatibility != "none":
        raise UsageError(
            f'cdc verify cannot compare topics with encode.compatibility = "{config.encode.compatibility}": PostgreSQL '
            "computes the expected values and cannot write this form",
            hint="check the counts and hashes of these topics with `cdc audit`; or capture the same tables under "
            "another `name` without encode.compatibility, and verify those",
            command="cdc audit",
        )


@contextlib.contextmanager
def open_source(config: Config) -> Iterator[SourceRows]:
    """Open the source at this moment: everything that was committed before the call is visible."""
    refuse_compatibility(config)
    connection = connect(config.source.dsn, application_name="cdc verify")
    try:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction():
            yield SourceRows(config, connection)
    except psycopg.Error as error:
        raise translate(error, "read the tables") from error
    finally:
        connection.close()
