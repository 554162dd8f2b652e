"""The tables of TPC-H load into PostgreSQL, and its changes are the same as SQL and as rows to merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from sinks.warehouse.lake.committer import DELETED
from tests.fixtures.servers.running_servers import fresh_database
from tests.tpch.merges import Merges
from tests.tpch.refresh import Refresh, Sizes, Transaction
from tests.tpch.statements import statements
from tests.tpch.tables import KEYS, create, tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tests.fixtures.servers.running_servers import PostgresServer

SCALE: Final = 0.001
PAIRS: Final = 40


def changes(refresh: Refresh, pair: int) -> Iterator[Transaction]:
    yield from refresh.inserts(pair)
    yield from refresh.deletes(pair)
    yield from refresh.updates(pair, 60)


def rows_of(table: str, base: pa.Table, merged: dict[tuple[object, ...], dict[str, Any] | None]) -> set[Any]:
    rows = {tuple(row[name] for name in KEYS[table]): row for row in base.to_pylist()}
    return {tuple(row.values()) for row in (rows | merged).values() if row is not None}


@pytest.mark.timeout(300)
def test_changes_are_the_same_as_sql_and_as_rows(postgres: PostgresServer) -> None:
    base = tables(SCALE)
    sizes = Sizes.of_scale(SCALE)
    refresh, merges = Refresh(sizes, seed=5), Merges(base)
    merged: dict[str, dict[tuple[object, ...], dict[str, Any] | None]] = {table: {} for table in KEYS}
    with fresh_database(postgres) as database, psycopg.connect(database.dsn, autocommit=True) as session:
        count = create(session, base)
        for pair in range(PAIRS):
            for transaction in changes(refresh, pair):
                with session.transaction():
                    for sql, values in statements(transaction):
                        session.execute(sql, values)
            for name, found in merges.merge(changes(refresh, pair)).items():
                table = name.removeprefix("mirror/public.")
                for row in found.to_pylist():
                    deleted = row.pop(DELETED)
                    merged[table][tuple(row[key] for key in KEYS[table])] = None if deleted else row
        for table in KEYS:
            stored = set(session.execute(f"select * from {table}".encode()).fetchall())
            assert stored == rows_of(table, base[table], merged[table]), table

    assert (base["orders"].num_rows, base["customer"].num_rows) == (sizes.orders, sizes.customers)
    assert (base["part"].num_rows, base["supplier"].num_rows) == (sizes.parts, sizes.suppliers)
    assert count == sum(table.num_rows for table in base.values())
