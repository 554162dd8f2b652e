"""The tables and the answers of a real PostgreSQL, as the texts that it prints."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg.pq import ExecStatus

from tests.sqlfuzz.tables import COLUMNS, TABLES, values

# As capture prints values, so that what the lake stores as text is comparable.
_SESSION: Final = (
    "set datestyle = 'ISO, MDY'",
    "set intervalstyle = 'iso_8601'",
    "set timezone = 'UTC'",
    "set statement_timeout = '10s'",
    "set client_min_messages = error",
)

_METHODS: Final = (
    *("enable_hashjoin = off", "enable_mergejoin = off", "enable_nestloop = off", "enable_hashagg = off"),
    *("enable_material = off", "enable_memoize = off", "join_collapse_limit = 1", "from_collapse_limit = 1"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows as texts, and the type of each column."""

    types: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """An error: an SQLSTATE of PostgreSQL or a condition of Spark, and the message."""

    state: str
    message: str

    @property
    def invalid(self) -> bool:
        """Whether PostgreSQL does not accept the text, whatever the rows are."""
        of_value = self.state == "0A000" and self.message.startswith("cannot convert ")
        return self.state.startswith(("42", "0A", "57")) and not of_value


class Postgres:
    """A session in a database of its own, with the fuzzer's tables. Its collation is C."""

    def __init__(self, dsn: str) -> None:
        self._database = f"sqlfuzz_{secrets.token_hex(4)}"
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(
                f"create database {self._database} template template0 locale 'C' locale_provider libc".encode()
            )
        self._dsn = dsn
        self._session = psycopg.connect(dsn, dbname=self._database, autocommit=True)
        for statement in _SESSION:
            self._session.execute(statement.encode())
        self._names: dict[int, str] = dict(self._session.execute("select oid, typname from pg_type").fetchall())
        for table, columns in TABLES.items():
            made = ", ".join(f"{name} {COLUMNS[name]}" for name in columns)
            self._session.execute(f"create table {table} ({made}, primary key (id))".encode())
            for row in values(table):
                marks = ", ".join(f"%s::{COLUMNS[name]}" for name in columns)
                self._session.execute(f"insert into {table} values ({marks})".encode(), [row[name] for name in columns])

    def close(self) -> None:
        self._session.close()
        with psycopg.connect(self._dsn, autocommit=True) as admin:
            admin.execute(f"drop database {self._database}".encode())

    def modifiers(self, table: str) -> Sequence[tuple[str, int, int]]:
        """Return name, oid of the type and modifier of the columns of a table."""
        return self._session.execute(
            "select attname, atttypid::int8, atttypmod from pg_attribute"
            " where attrelid = %s::regclass and attnum > 0 order by attnum",
            (table,),
        ).fetchall()

    def answer(self, sql: str) -> Answer | Raised:
        """Run a query."""
        result = self._session.pgconn.exec_(sql.encode())
        if result.status != ExecStatus.TUPLES_OK:
            state = (result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) or b"").decode()
            message = (result.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode()
            return Raised(state, message)
        columns = range(result.nfields)
        types = tuple(self._names[result.ftype(column)] for column in columns)
        rows = tuple(
            tuple(None if (one := result.get_value(row, column)) is None else one.decode() for column in columns)
            for row in range(result.ntuples)
        )
        return Answer(types, rows)

    def raises_with_another_plan(self, sql: str) -> bool:
        """Whether the query raises if the planner must do without some of its methods."""
        for setting in _METHODS:
            self._session.execute(f"set {setting}".encode())
            answer = self.answer(sql)
            self._session.execute(f"reset {setting.partition(' ')[0]}".encode())
            if isinstance(answer, Raised) and not answer.invalid:
                return True
        return False

    def limit(self, rows: Mapping[str, Sequence[int]]) -> None:
        """Show only these rows of some tables, by id; no tables end the limit."""
        for table in TABLES:
            self._session.execute(f"drop table if exists pg_temp.{table}".encode())
        for table, ids in rows.items():
            chosen = ", ".join(map(str, ids)) or "null"
            self._session.execute(
                f"create temp table {table} as select * from public.{table} where id in ({chosen})".encode()
            )
