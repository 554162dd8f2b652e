"""The inbox of a consumer: records the ids of processed events in the transaction of their effect.

A record may be delivered again at any time: after a crash, after a rebalance, or because an event was written twice. A
consumer that records the id in the same transaction as the effect applies it once. This module imports neither the
service nor a driver.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from outbox.db_api import CountingCursor
from outbox.table_names import Names


@dataclass(frozen=True, slots=True)
class Inbox:
    """The inbox of one consumer. Thread-safe: it has no state.

    Attributes:
        consumer: its name. Consumers with different names each process an event once.
        names: names of the schema and tables.
        placeholder: parameter placeholder of the driver: ``%s`` (psycopg, psycopg2, pg8000) or ``?``.
    """

    consumer: str
    names: Names = field(default_factory=Names)
    placeholder: str = "%s"

    def accept(self, cursor: CountingCursor, event_id: uuid.UUID | str) -> bool:
        """Record the event; return False if it was processed before and must be skipped.

        Call this first in the transaction of the effect. If another open transaction has recorded the same id, this
        call waits for it, and returns True if it is rolled back.
        """
        place = self.placeholder
        cursor.execute(
            f"insert into {self.names.qualified(self.names.inbox)} (consumer, event_id) "  # noqa: S608 - quoted
            f"values (cast({place} as text), cast({place} as uuid)) on conflict do nothing",
            (self.consumer, str(event_id)),
        )
        return cursor.rowcount == 1

    def forget(self, cursor: CountingCursor, *, older_than_days: float, rows_max: int = 10_000) -> int:
        """Delete up to `rows_max` ids older than `older_than_days`; return how many.

        Keep ids longer than a record can be delivered again, which is the retention of the event topics.
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
