"""Every type as a key, and every TOASTable type as a value that an update does not change (B2, B4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from tests.fixtures.capture.type_samples import SAMPLES
from tests.fixtures.capture.type_tables import MAKE_OWN, OWN, available, create, exact, said_by_server, scalars, set_up

if TYPE_CHECKING:
    from tests.fixtures.capture.type_tables import Columns, Session
    from tests.fixtures.servers.daemon import CaptureSite

_ONE_PARTITION: Final[dict[str, Any]] = {"kafka": {"partitions": 1}}
_KEY_LENGTH_MAX: Final = 200  # a page of an index takes 2.7 KB
# Values that are kept out of line: 4 KB at least, and not compressed because the column is told so.
_LARGE: Final = {
    "text": "repeat('x', 9000)",
    "varchar": "repeat('x', 9000)",
    "bpchar": "repeat('x', 9000)",
    "bytea": "decode(repeat('00ff', 5000), 'hex')",
    "json": "to_json(repeat('x', 9000))",
    "jsonb": "to_jsonb(repeat('x', 9000))",
    "numeric": "repeat('9', 12000)::numeric",
    "varbit": "repeat('10', 20000)::varbit",
    "bit(40000)": "repeat('10', 20000)::bit(40000)",
    "path": "(select ('[' || string_agg(format('(%s,1)', n), ',') || ']')::path from generate_series(1, 500) n)",
    "polygon": "(select ('(' || string_agg(format('(%s,1)', n), ',') || ')')::polygon from generate_series(1, 500) n)",
    "tsvector": "(select string_agg('w' || n, ' ')::tsvector from generate_series(1, 2000) n)",
    "jsonpath": "format('$.\"%s\"', repeat('x', 9000))::jsonpath",
    "numrange": "numrange(0, repeat('9', 12000)::numeric)",
    "txid_snapshot": "(select ('1:9999:' || string_agg(n::text, ','))::txid_snapshot from generate_series(1, 2000) n)",
    "pg_snapshot": "(select ('1:9999:' || string_agg(n::text, ','))::pg_snapshot from generate_series(1, 2000) n)",
    "citext": "repeat('x', 9000)",
    "hstore": "hstore('k', repeat('x', 9000))",
    "ltree": "(select string_agg('label' || n, '.')::ltree from generate_series(1, 900) n)",
    "vector": "array_fill(1.5, array[2000])::vector",
    "cube": "cube(array_fill(1.5::float8, array[90]), array_fill(2.5::float8, array[90]))",
    "pair": "row(1, repeat('x', 9000))::pair",
    "text_range": "text_range('a', repeat('x', 9000))",
    **{
        f"{kind}multirange": f"(select range_agg({kind}range({low}, {high})) from generate_series(1, 500) n)"
        for kind, low, high in (
            ("int4", "n * 10", "n * 10 + 5"),
            ("int8", "n * 10", "n * 10 + 5"),
            ("num", "n * 10", "n * 10 + 5"),
            ("date", "date '2000-01-01' + n * 10", "date '2000-01-01' + n * 10 + 5"),
            (
                "ts",
                "timestamp '2000-01-01' + n * interval '10 d'",
                "timestamp '2000-01-01' + n * interval '10 d' + interval '5 d'",
            ),
            (
                "tstz",
                "timestamptz '2000-01-01+00' + n * interval '10 d'",
                "timestamptz '2000-01-01+00' + n * interval '10 d' + interval '5 d'",
            ),
        )
    },
}


def test_key_of_every_type_folds_to_the_table(capture: CaptureSite) -> None:
    columns = {**scalars(), **OWN}
    capture.sql(*MAKE_OWN)
    with capture.connect() as session:
        tables = keyed_tables(session, available(session, columns))
    daemon = capture.running(_ONE_PARTITION)

    with capture.connect() as session:
        for table, (column, values) in tables.items():
            work(session, table, columns[column][0], values)
        set_up(session)
        rows = {table: rows_of(session, table, columns[column][2]) for table, (column, _) in tables.items()}
    log = capture.settled(daemon)

    assert len(tables) > 100
    assert log.faults() == []
    for table, (_, values) in tables.items():
        assert len(rows[table]) == max(len(values) - 1, 1)
    for table, (column, _) in tables.items():
        live = [(after["v"], exact(key)["k"]) for key, after in log.fold(capture.topic(table)).items()]
        assert sorted(live, key=lambda row: row[0]) == rows[table], column


def test_unchanged_value_of_every_type_that_is_kept_out_of_line_is_named(capture: CaptureSite) -> None:
    capture.sql(*MAKE_OWN)
    with capture.connect() as session:
        large = out_of_line(session)
        columns: Columns = {kind: (kind, (), "::text") for kind in large}
        create(session, columns)
        session.execute("alter table t add column n int")
        for kind in large:
            session.execute(sql.SQL("alter table t alter column {} set storage external").format(sql.Identifier(kind)))
    daemon = capture.running({"toast": {"mode": "omit"}})
    names = sql.SQL(", ").join(map(sql.Identifier, large))
    with capture.connect() as session:
        values = sql.SQL(", ").join(map(sql.SQL, large.values()))
        session.execute(sql.SQL("insert into t (id, n, {}) values (1, 1, {})").format(names, values))
        session.execute("update t set n = 2")
        said = said_by_server(session, columns)
    created, updated = capture.settled(daemon).events

    assert updated.source["unchanged"] == list(large)
    assert updated.after == {"id": 1, "n": 2}
    assert "unchanged" not in created.source
    assert [kind for kind in large if created.after[kind] is None] == []
    assert created.value is not None
    after = exact(created.value)["after"]
    as_text = {"bytea", "citext", "hstore", "json", "jsonb", "numeric", *(kind for kind in _LARGE if kind in SAMPLES)}
    assert [kind for kind in as_text if after[kind] != said[1][kind]] == []


def out_of_line(session: Session) -> dict[str, str]:
    """Type -> expression of a large value, for every type that PostgreSQL keeps out of line, arrays among them."""
    samples = available(session, scalars())
    arrays = {
        f"{kind}[]": f"array_fill({literal(values[-1])}::{kind}, array[4, 1500])"
        for kind, (_, values, _) in samples.items()
    }
    large = available(session, {kind: (kind, (value,), "") for kind, value in _LARGE.items()})
    kept = "select typstorage <> 'p' from pg_type where oid = %s::regtype"
    return {
        kind: value
        for kind, value in {**{kind: _LARGE[kind] for kind in large}, **arrays}.items()
        if session.execute(kept, (kind,)).fetchone() == (True,)
    }


def keyed_tables(session: Session, columns: Columns) -> dict[str, tuple[str, list[str]]]:
    """A table for each type that a btree orders; returns its name, the column, and texts of different values."""
    tables: dict[str, tuple[str, list[str]]] = {}
    for number, (name, (kind, samples, _)) in enumerate(columns.items()):
        if kind == "xml" or not ordered(session, kind):
            continue
        table = f"k{number}"
        session.execute(
            sql.SQL("create table {} (k {} primary key, v int)").format(sql.Identifier(table), sql.SQL(kind))
        )
        short = [value for value in samples if len(value) < _KEY_LENGTH_MAX]
        tables[table] = name, different(session, kind, short)
    return tables


def ordered(session: Session, kind: str) -> bool:
    """Whether the type has an order of its own."""
    try:
        session.execute(sql.SQL("create temp table probe (k {} primary key)").format(sql.SQL(kind)))
    except psycopg.errors.UndefinedObject:
        return False
    session.execute("drop table probe")
    return True


def different(session: Session, kind: str, values: list[str]) -> list[str]:
    """Those of `values` that are not equal for the type."""
    rows = sql.SQL(", ").join(
        sql.SQL("({}::{}, {})").format(value, sql.SQL(kind), number) for number, value in enumerate(values)
    )
    query = sql.SQL("select min(o) from (values {}) u (x, o) group by x order by 1").format(rows)
    return [values[number] for (number,) in session.execute(query).fetchall()]


def work(session: Session, table: str, kind: str, values: list[str]) -> None:
    """Insert, update, delete the last row, and move the first to its key, so that one key is gone."""
    keys = [f"{literal(value)}::{kind}" for value in values]
    for number, key in enumerate(keys):
        session.execute(f"insert into {table} values ({key}, {number})".encode())
    session.execute(f"update {table} set v = v + 100".encode())
    first, *rest = keys
    for last in rest[-1:]:
        session.execute(f"delete from {table} where k = {last}".encode())
        session.execute(f"update {table} set k = {last} where k = {first}".encode())


def rows_of(session: Session, table: str, cast: str) -> list[tuple[int, Any]]:
    """v, which no two rows share, and the key as the server shows it."""
    query = f"select v, to_jsonb(k{cast})::text from public.{table} order by v"
    return [(v, exact(key)) for v, key in session.execute(query.encode(), prepare=False).fetchall()]


def literal(text: str) -> str:
    return sql.Literal(text).as_string(None)
