"""PostgreSQL refuses each text of the table; `tests/unit/sinks/test_view_refused_texts.py` shows that views do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from tests.fixtures.servers.running_servers import fresh_database
from tests.spark.meaning.refused_texts import DDL, TEXTS

if TYPE_CHECKING:
    from tests.fixtures.servers.running_servers import PostgresServer

_ROWS = (
    "insert into t select i, 1, 2, 'a', 'b', 'c', true, '2024-01-01', '{}' from generate_series(1, 2) as i;"
    " insert into u select i, 1, 2, 'a' from generate_series(1, 2) as i"
)


def test_postgresql_refuses_each_text(postgres: PostgresServer) -> None:
    accepted = []
    with fresh_database(postgres) as database, psycopg.connect(database.dsn, autocommit=True) as session:
        for part in (*DDL.split(";"), *_ROWS.split(";")):
            session.execute(part.encode())
        for text, _ in TEXTS:
            try:
                with session.transaction(force_rollback=True):
                    session.execute(sql.SQL("create view v as " + text))
                    session.execute("select * from v").fetchall()
                accepted.append(text)
            except psycopg.Error:
                pass

    assert not accepted
