"""The inbox: what a consumer has dealt with, noted in the transaction of what it did.

A record may be delivered again at any time: after a crash, a rebalance, an event that was written twice. Whoever notes
its id in the same transaction as its effect has the effect once. Imports neither the service nor a driver.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Protocol

from outbox.table_names import Names


class ReadingCursor(Protocol):
    """What is needed of a DB-API cursor."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement wrote."""

    def execute(self, operation: Any, parameters: Any, /) -> Any:
        """Run a statement with parameters by position."""


@dataclass(frozen=True, slots=True)
class Inbox:
    """The inbox of one consumer. Thread-safe: it has no state.

    Attributes:
        consumer: its name; consumers of different names each deal with an event once.
        names: schema and table.
        placeholder: of the driver: ``%s`` (psycopg, psycopg2, pg8000) or ``?``.
    """

    consumer: str
    names: Names = field(default_factory=Names)
    placeholder: str = "%s"

    def accept(self, cursor: ReadingCursor, event_id: uuid.UUID | str) -> bool:
        """Note the event; False: it was dealt with before, so leave it.

        Call it first in the transaction that has the effect. Who holds the same id in an open transaction is waited
        for: if that one is rolled back, this one may go on.
        """
        place = self.placeholder
        cursor.execute(
            f"insert into {self.names.qualified(self.names.inbox)} (consumer, event_id) "  # noqa: S608 - quoted
            f"values (cast({place} as text), cast({place} as uuid)) on conflict do nothing",
            (self.consumer, str(event_id)),
        )
        return cursor.rowcount == 1

    def forget(self, cursor: ReadingCursor, *, older_than_days: float, rows_max: int = 10_000) -> int:
        """Delete what was noted that long ago, up to `rows_max`; returns how many.

        Keep longer than anything can be delivered again: the retention of the event topics.
        """
        place, table = self.placeholder, self.names.qualified(self.names.inbox)
        cursor.execute(
            f"delete from {table} where ctid = any(array(select ctid from {table} "  # noqa: S608 - quoted
            f"where consumer = cast({place} as text) "
            f"and received_at < clock_timestamp() - cast({place} as float8) * interval '1 day' "
            f"limit cast({place} as int)))",
            (self.consumer, older_than_days, rows_max),
        )
        return cursor.rowcount
