"""Builds a read model anew: from an event topic, or from the event store where the topic does not go back far enough.

A generation has a consumer name and a group of its own, so its inbox is empty and it reads from the first record;
the generation that serves is not touched. When it returns, the new one goes on as an ordinary consumer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from outbox.consumer import Connection, Consumer, Handler
from outbox.dead_letters import DeadLetters
from outbox.delivery import Delivery, Source
from outbox.errors import EventMissing
from outbox.event_store import SEQUENCE
from outbox.table_names import Names

_ROWS_MAX = 1_000  # in one transaction of a rebuild from the store


class LevelSource(Source, Protocol):
    """A source that knows when it has given everything there was."""

    def level(self) -> bool:
        """Whether every partition that is ours was read to its end."""


def generation_name(name: str, generation: int) -> str:
    """Consumer and group of a generation."""
    return f"{name}.g{generation}"


def rebuild(
    name: str,
    generation: int,
    source: Callable[[str], LevelSource],
    connect: Callable[[], Connection],
    handler: Handler,
    *,
    names: Names | None = None,
    wait_s: float = 0.5,
) -> int:
    """Read a topic from its beginning to its end into generation `generation`; returns how many records that were.

    `source` makes a source for the group it is given. Killed in between, the same call goes on. Raises EventMissing
    when events were parked: a model that lacks some is not finished; the handler's error is in the dead letters.
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
            f"generation {generation} of {name} has dead letters, so it lacks events",
            hint=f"cdc inbox show {of}; mend the handler, and rebuild as the next generation",
        )
    return count


def rebuild_from_store(
    aggregate_type: str, connect: Callable[[], Connection], handler: Handler, *, names: Names | None = None
) -> int:
    """Give every event of a type in the store to the handler, in the order of its aggregate; returns how many.

    One snapshot of the store is read, and effects are committed with the last of it: killed in between, nothing is
    there. Aggregates come one after the other. Record offsets are positions in the store.
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
    told = {**given, "id": str(id_), "type": type_, "version": str(version), SEQUENCE: str(sequence)}
    return Delivery(aggregate_type, 0, int(position), aggregate_id.encode(), payload.encode(), told)


def _parked(connect: Callable[[], Connection], letters: DeadLetters) -> bool:
    connection = connect()
    try:
        return bool(letters.letters(connection.cursor(), 1))
    finally:
        connection.close()
