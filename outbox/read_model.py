"""Rebuilds a read model from an event topic, or from the event store if the topic no longer has old events.

A new generation has its own consumer name and group. So its inbox is empty, it reads from the first record, and the
active generation is not affected. After the rebuild it continues as an ordinary consumer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from outbox.consumer import Consumer, Handler, Session
from outbox.dead_letters import DeadLetters
from outbox.delivery import Delivery, Source
from outbox.errors import EventMissing
from outbox.event_store import SEQUENCE
from outbox.table_names import Names

_ROWS_MAX = 1_000  # per query of a rebuild from the store


class LevelSource(Source, Protocol):
    """A source that knows when it has delivered every existing record."""

    def level(self) -> bool:
        """Whether every assigned partition was read to its end."""


def generation_name(name: str, generation: int) -> str:
    """Return the name of a generation's consumer and group."""
    return f"{name}.g{generation}"


def rebuild(
    name: str,
    generation: int,
    source: Callable[[str], LevelSource],
    connect: Callable[[], Session],
    handler: Handler,
    *,
    names: Names | None = None,
    wait_s: float = 0.5,
) -> int:
    """Read a topic from its beginning to its end into a generation; return the number of records.

    `source` returns a source for a given group. If the rebuild is killed, the same call continues it. Raises
    EventMissing if events became dead letters, because the model lacks them; the dead letters have the error.
    """
    of = generation_name(name, generation)
    letters = DeadLetters(of, names or Names())
    log = source(of)
    consumer = Consumer(of, log, connect, handler, letters=letters)
    count = 0
    try:
        while not log.level():
            count += consumer.step(wait_s)
        parked = _parked(connect, letters)
    finally:
        consumer.close()
    if parked:
        raise EventMissing(
            f"generation {generation} of {name} lacks events: they became dead letters",
            hint=f"see `cdc inbox show {of}`; fix the handler, and rebuild as the next generation",
        )
    return count


def rebuild_from_store(
    aggregate_type: str, connect: Callable[[], Session], handler: Handler, *, names: Names | None = None
) -> int:
    """Pass every stored event of an aggregate type to the handler; return the number of events.

    Events come aggregate by aggregate, in the order of each. The rebuild reads one snapshot of the store and commits
    all effects at the end, so a killed rebuild leaves nothing. Record offsets are positions in the store.
    """
    table = (names or Names()).qualified((names or Names()).event_store)
    connection = connect()
    try:
        cursor: Any = connection.cursor()
        cursor.execute("set transaction isolation level repeatable read", ())
        count, after = 0, ("", 0)
        while True:
            cursor.execute(
                "select position, aggregate_id, sequence, id, type, version, cast(payload as text), headers "  # noqa: S608
                f"from {table} where aggregate_type = %s and (aggregate_id, sequence) > (%s, %s) "
                "order by aggregate_id, sequence limit %s",
                (aggregate_type, *after, _ROWS_MAX),
            )
            rows = cursor.fetchall()
            for row in rows:
                handler(cursor, _delivery(aggregate_type, row))
            count += len(rows)
            if len(rows) < _ROWS_MAX:
                connection.commit()
                return count
            after = (rows[-1][1], int(rows[-1][2]))
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.close()


def _delivery(aggregate_type: str, row: Any) -> Delivery:
    position, aggregate_id, sequence, id_, type_, version, payload, headers = row
    given = json.loads(headers) if isinstance(headers, str | bytes) else headers
    texts = {**given, "id": str(id_), "type": type_, "version": str(version), SEQUENCE: str(sequence)}
    return Delivery(aggregate_type, 0, int(position), aggregate_id.encode(), payload.encode(), texts)


def _parked(connect: Callable[[], Session], letters: DeadLetters) -> bool:
    connection = connect()
    try:
        return bool(letters.letters(connection.cursor(), 1))
    finally:
        connection.close()
