"""COPY, which snapshots read, gives the same texts as the stream for every type; test_decoding agrees (B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
import pytest
from psycopg import sql

from cdc.wire.copy_text import texts
from cdc.wire.pgoutput import Insert, decode
from tests.fixtures.capture.referee import Oracle
from tests.fixtures.capture.type_tables import MAKE_OWN, OWN, Columns, arrays, create, fill, scalars, set_up

if TYPE_CHECKING:
    from tests.fixtures.servers.running_servers import Database

Texts: TypeAlias = list[bytes | None]
_SLOT: Final = "copy_text"
_STREAM: Final = """
select data from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1', 'publication_names', 'p')
"""


@pytest.mark.parametrize(
    ("made", "columns"), [((), scalars()), ((), arrays()), (MAKE_OWN, OWN)], ids=["scalars", "arrays", "own"]
)
def test_copy_stream_and_referee_give_the_same_texts(
    database: Database, made: tuple[str, ...], columns: Columns
) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as session:
        for statement in made:
            session.execute(statement.encode())
        there = create(session, columns)
        session.execute("create publication p for table t")
        session.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (_SLOT,))
        referee = Oracle.create(database.dsn, f"{_SLOT}_referee")
        row_count = fill(session, there)
        set_up(session)

        copied, streamed = by_copy(session, len(there)), by_stream(session)

    assert len(copied) == row_count
    assert differences(there, copied, streamed) == []
    assert differences(there, copied, by_referee(referee, there)) == []


def by_copy(session: psycopg.Connection[Any], column_count: int) -> list[Texts]:
    """Rows as a snapshot reads them."""
    query = sql.SQL("copy (select * from public.t order by id) to stdout")
    with session.cursor() as cursor, cursor.copy(query) as copy:
        return [texts(bytes(line), column_count + 1) for line in copy]


def by_stream(session: psycopg.Connection[Any]) -> list[Texts]:
    """Rows as the stream has them; pgoutput prints in the settings of the session that reads."""
    messages = [decode(data) for (data,) in session.execute(_STREAM, (_SLOT,)).fetchall()]
    rows = [message.new for message in messages if isinstance(message, Insert)]
    assert all(isinstance(text, bytes | None) for row in rows for text in row)
    return [[text if isinstance(text, bytes) else None for text in row] for row in rows]


def by_referee(referee: Oracle, columns: Columns) -> list[Texts]:
    """Rows as test_decoding has them; it alone writes booleans as SQL does."""
    words = {name: {"true": "t", "false": "f"} for name, (kind, _, _) in columns.items() if kind == "bool"}
    rows = [change.new for change in referee.changes() if change.op == "INSERT"]
    return [
        [
            None if (text := row[name]) is None else words.get(name, {}).get(text, text).encode()
            for name in ("id", *columns)
        ]
        for row in rows
    ]


def differences(columns: Columns, copied: list[Texts], others: list[Texts]) -> list[str]:
    """Every value that is another text."""
    found = [] if len(copied) == len(others) else [f"{len(copied)} rows by COPY, {len(others)} others"]
    for row, other in zip(copied, others, strict=False):
        found += [
            f"{name}: {text!r} by COPY, {theirs!r}"
            for name, text, theirs in zip(("id", *columns), row, other, strict=True)
            if text != theirs
        ]
    return found
