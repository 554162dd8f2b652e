"""The tables as PostgreSQL has them: which columns are captured, and every row with the server's own view of it.

What a value must look like in the log is asked of the server, never of our encoders: `to_jsonb`, the text of what the
log has as text, and what `cdc.verify.server_forms` has for an operator's choices. One REPEATABLE READ transaction, so
that all tables are of one moment.
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
from cdc.verify.row_json import Row, row_of
from cdc.verify.server_forms import chosen_form, reshaped

BATCH_ROWS: Final = 500  # rows handed on at a time; one `in (…)` of the fold
_FETCH_ROWS: Final = 5000

# Columns as the publication shows them; of each the type at the end of domains and arrays, and whether it is one that
# the log has as its text: a composite, or none of the server's own (FirstNormalObjectId is 16384), which to_jsonb would
# send through a cast to json if it has one. And the extension that brought it. The view of PostgreSQL 15 has generated
# columns, which are not published before 18.
_COLUMNS: Final = """
with recursive published as (
    select unnest(attnames)::text as name, rowfilter
    from pg_catalog.pg_publication_tables
    where pubname = %(publication)s and schemaname = %(namespace)s and tablename = %(table)s
), types as (
    select p.name, p.rowfilter, a.attnum, t.oid, t.typtype, t.typcategory, t.typbasetype, t.typelem, false as is_array
    from published p
    join pg_catalog.pg_attribute a on a.attrelid = %(oid)s::oid and a.attname = p.name
      and (a.attgenerated = '' or current_setting('server_version_num')::int4 >= 180000)
    join pg_catalog.pg_type t on t.oid = a.atttypid
    union all
    select c.name, c.rowfilter, c.attnum, t.oid, t.typtype, t.typcategory, t.typbasetype, t.typelem,
           c.is_array or c.typtype <> 'd'
    from types c
    join pg_catalog.pg_type t
      on t.oid = case when c.typtype = 'd' then c.typbasetype when c.typcategory = 'A' then c.typelem end
)
select name, oid::regtype::text, typtype = 'c' or oid >= 16384, is_array, rowfilter,
       (select x.extname from pg_catalog.pg_depend d join pg_catalog.pg_extension x on x.oid = d.refobjid
        where d.classid = 'pg_catalog.pg_type'::regclass and d.objid = types.oid and d.deptype = 'e'
          and d.refclassid = 'pg_catalog.pg_extension'::regclass)
from types
where typtype <> 'd' and typcategory <> 'A'
order by attnum
"""


def rows_of(table: SourceTable) -> sql.Composed:
    """The table in a FROM: with its partitions, without tables that inherit from it, which have topics of their own."""
    only = sql.SQL("" if table.partitioned else "only ")
    return sql.SQL("{}{}").format(only, sql.Identifier(table.namespace, table.name))


class SourceRows:
    """One moment of the source. Made by `open_source`."""

    def __init__(self, config: Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self.tables = catalog_queries.tables_matching(
            connection, config.source.tables, config.source.keyless, config.source.keys
        )

    def rows(self, table: SourceTable) -> Iterator[list[Row]]:
        """All rows that are captured, in lists of at most BATCH_ROWS. Empty when the table is not published."""
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
        """Whether the publication has the table."""
        return self._query(table) is not None

    def shape(self, table: SourceTable) -> Shape | None:
        """How rows of a table are asked for; None when it is not published."""
        about = {
            "publication": self._config.publication,
            "namespace": table.namespace,
            "table": table.name,
            "oid": table.oid,
        }
        with catalog_queries.reading("read the published columns"):
            columns = self._connection.execute(_COLUMNS, about).fetchall()
        if not columns:
            return None
        chosen = [chosen_form(self._config.encode, kind, extension or "") for _, kind, *_, extension in columns]
        shown = [
            self._shown(name, kind, foreign, is_array) if form is None else form.shown(name, is_array=is_array)
            for (name, kind, foreign, is_array, *_), form in zip(columns, chosen, strict=True)
        ]
        # to_jsonb would refuse what only json can hold, as an escaped zero byte.
        whole = sql.SQL("json" if self._config.encode.json == "value" else "jsonb")
        arrays = [column[0] for column, form in zip(columns, chosen, strict=True) if form is not None and column[3]]
        formed = {column[0] for column, form in zip(columns, chosen, strict=True) if form is not None}
        return Shape(whole, sql.SQL(", ").join(shown), columns[0][4] or "", tuple(arrays), frozenset(formed))

    def _query(self, table: SourceTable) -> _Query | None:
        shape = self.shape(table)
        if shape is None:
            return None
        # `r.*` is the row; `r` alone would be a column of that name where the table has one.
        query = sql.SQL("select pg_catalog.to_{}(r.*)::text from (select {} from {}{}) r")
        where = sql.SQL(f" where {shape.where}") if shape.where else sql.SQL("")
        text = query.format(shape.whole, shape.shown, rows_of(table), where)
        return _Query(text, shape.arrays)

    def _shown(self, name: str, kind: str, foreign: bool, is_array: bool) -> sql.Composed:  # noqa: FBT001 - a row of the catalog
        """A column, cast to text where the log has text that to_jsonb would not show so."""
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
    """A row as the log must have it, in SQL.

    Attributes:
        whole: ``json`` or ``jsonb``.
        shown: the columns, each in the form of the log.
        where: the publication's row filter as the catalog prints it, with every name qualified (connect.SESSION has no
            search_path); empty for none.
        arrays: columns that come as `cdc.verify.server_forms.Form.shown` says.
        formed: columns with a form an operator chose, whose text in the log is not PostgreSQL's.
    """

    whole: sql.SQL
    shown: sql.Composed
    where: str
    arrays: tuple[str, ...]
    formed: frozenset[str]

    def row(self, text: str) -> Row:
        """A row as the log must have it."""
        return _Query(self.shown, self.arrays).row(text)


@dataclass(frozen=True, slots=True)
class _Query:
    """Asks for the rows of a table; `arrays` are columns that come as `cdc.verify.server_forms.Form.shown` says."""

    text: sql.Composed
    arrays: tuple[str, ...]

    def row(self, text: str) -> Row:
        """A row as the log must have it."""
        row = row_of(text)
        for name in self.arrays:
            row[name] = reshaped(row[name])
        return row


def refuse_compatibility(config: Config) -> None:
    """Raises UsageError when values have forms that PostgreSQL cannot show."""
    if config.encode.compatibility != "none":
        raise UsageError(
            f'cdc verify cannot compare topics with encode.compatibility = "{config.encode.compatibility}": it asks '
            "PostgreSQL for every value, and PostgreSQL does not write this form",
            hint="capture the same tables under another `name` without encode.compatibility, and verify that; "
            "`cdc audit` checks the counts and hashes of these topics as they are",
            command="cdc audit",
        )


@contextlib.contextmanager
def open_source(config: Config) -> Iterator[SourceRows]:
    """Open the moment: everything committed before the call is in it."""
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
