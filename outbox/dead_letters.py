"""Dead letters of a consumer, in its own database: stored in the order of their key, retried or skipped on request.

While a key has a dead letter, every later event of the key is stored behind it, so events of a key keep their order.
Other keys are not affected. This module only runs statements; the caller owns the transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from outbox.db_api import RowsCursor
from outbox.delivery import Delivery, TopicPartition
from outbox.table_names import Names

LetterAction = Literal["retry", "skip"]

BEHIND: Final = "blocked"
"""The error of a dead letter that was never tried, because an earlier event of its key is a dead letter."""
_KEYS_MAX: Final = 100  # keys settled in one step, so that new records are read in between


class Letter(NamedTuple):
    """A dead letter: its number, the record, its error, how often it was tried, and the requested action."""

    id: int
    delivery: Delivery
    error: str
    attempt_count: int
    wish: LetterAction | None


class Count(NamedTuple):
    """Number of keys and dead letters of a consumer, by topic and error of each key's first dead letter."""

    consumer: str
    topic: str
    error: str
    key_count: int
    letter_count: int


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The dead letters of one consumer, or of all if `consumer` is empty. Thread-safe: it has no state."""

    consumer: str
    names: Names = field(default_factory=Names)

    def accept(self, cursor: RowsCursor, delivery: Delivery) -> Literal["new", "repeated", "blocked"]:
        """Record the event in the inbox, unless it was processed or its key has dead letters. Runs one statement."""
        cursor.execute(
            f"with waiting as (select 1 from {self._table} where consumer = %s and md5(key) = md5(%s) "  # noqa: S608
            f"and key = %s limit 1), noted as (insert into {self.names.qualified(self.names.inbox)} "
            "(consumer, event_id) select %s, cast(%s as uuid) where not exists (select 1 from waiting) "
            "on conflict do nothing returning 1) "
            "select exists (select 1 from waiting), exists (select 1 from noted)",
            (self.consumer, delivery.key, delivery.key, self.consumer, str(delivery.id)),
        )
        ((waits, noted),) = cursor.fetchall()
        return "blocked" if waits else "new" if noted else "repeated"

    def park(self, cursor: RowsCursor, delivery: Delivery, error: str, attempt_count: int) -> bool:
        """Store a record as a dead letter; return False if it already is one."""
        cursor.execute(
            f"insert into {self._table} (consumer, topic, partition, record_offset, key, value, headers, "  # noqa: S608
            "error, attempt_count) values (%s, %s, %s, %s, %s, %s, cast(%s as jsonb), %s, %s) on conflict do nothing",
            (
                self.consumer, delivery.topic, delivery.partition, delivery.offset, delivery.key, delivery.value,
                json.dumps(dict(delivery.headers)), error, attempt_count,
            ),
        )  # fmt: skip
        return cursor.rowcount == 1

    def requested_keys(self, cursor: RowsCursor, places: Iterable[TopicPartition]) -> list[bytes]:
        """Return keys in these partitions with a requested retry or skip."""
        topics, partitions = zip(*places, strict=True) if places else ((), ())
        cursor.execute(
            f"select distinct key from {self._table} where consumer = %s and wish is not null "  # noqa: S608
            "and (topic, partition) in (select * from unnest(cast(%s as text[]), cast(%s as int[]))) limit %s",
            (self.consumer, list(topics), list(partitions), _KEYS_MAX),
        )
        return [bytes(row[0]) for row in cursor.fetchall()]

    def first(self, cursor: RowsCursor, key: bytes) -> Letter | None:
        """Return the first dead letter of a key."""
        found = self._read(cursor, "consumer = %s and md5(key) = md5(%s) and key = %s", (self.consumer, key, key), 1)
        return found[0] if found else None

    def drop(self, cursor: RowsCursor, letter: Letter) -> None:
        """Delete a settled dead letter."""
        cursor.execute(f"delete from {self._table} where id = %s", (letter.id,))  # noqa: S608 - quoted

    def refuse(self, cursor: RowsCursor, letter: Letter, error: str) -> None:
        """Record that a retry failed, and clear the requests for its key."""
        cursor.execute(
            f"update {self._table} set error = %s, attempt_count = attempt_count + 1 where id = %s",  # noqa: S608
            (error, letter.id),
        )
        cursor.execute(
            f"update {self._table} set wish = null where consumer = %s and md5(key) = md5(%s) "  # noqa: S608 - quoted
            "and key = %s",
            (self.consumer, letter.delivery.key, letter.delivery.key),
        )

    def ask(
        self, cursor: RowsCursor, wish: LetterAction, *, topic: str = "", error: str = "", key: bytes | None = None
    ) -> int:
        """Request a retry or skip for keys whose first dead letter has this topic and error; return how many keys.

        ``skip`` discards the first dead letter of a key and retries those behind it. The consumer that owns the
        partition does this, in order, within about a second.
        """
        rows = [
            letter
            for letter in self._heads(cursor)
            if topic in {"", letter.delivery.topic}
            and error in {"", letter.error}
            and key in {None, letter.delivery.key}
        ]
        for letter in rows:
            # A skip discards only the first event; those behind it are retried.
            cursor.execute(
                f"update {self._table} set wish = case when id = %s then %s else 'retry' end "  # noqa: S608 - quoted
                "where consumer = %s and md5(key) = md5(%s) and key = %s",
                (letter.id, wish, self.consumer, letter.delivery.key, letter.delivery.key),
            )
        return len(rows)

    def letters(self, cursor: RowsCursor, limit: int) -> list[Letter]:
        """Return up to `limit` dead letters, oldest first."""
        return self._read(cursor, "consumer = %s", (self.consumer,), limit)

    def counts(self, cursor: RowsCursor) -> list[Count]:
        """Count the dead letters of this consumer, or of all."""
        cursor.execute(
            "select consumer, topic, error, count(*), sum(letters) from (select distinct on (consumer, key) consumer, "  # noqa: S608
            f"topic, error, count(*) over (partition by consumer, key) as letters from {self._table} "
            "where %s in ('', consumer) order by consumer, key, id) as heads group by 1, 2, 3 order by 1, 2, 3",
            (self.consumer,),
        )
        return [Count(row[0], row[1], row[2], int(row[3]), int(row[4])) for row in cursor.fetchall()]

    def _heads(self, cursor: RowsCursor) -> list[Letter]:
        cursor.execute(
            f"select distinct on (key) {_FIELDS} from {self._table} where consumer = %s order by key, id",  # noqa: S608
            (self.consumer,),
        )
        return [_letter(row) for row in cursor.fetchall()]

    def _read(self, cursor: RowsCursor, condition: str, values: tuple[object, ...], limit: int) -> list[Letter]:
        cursor.execute(
            f"select {_FIELDS} from {self._table} where {condition} order by id limit %s",  # noqa: S608 - quoted
            (*values, limit),
        )
        return [_letter(row) for row in cursor.fetchall()]

    @property
    def _table(self) -> str:
        return self.names.qualified(self.names.dead_letter)


_FIELDS: Final = "id, topic, partition, record_offset, key, value, headers, error, attempt_count, wish"


def _letter(row: Sequence[Any]) -> Letter:
    number, topic, partition, offset, key, value, headers, error, attempt_count, wish = row
    parsed = json.loads(headers) if isinstance(headers, str | bytes) else headers
    payload = None if value is None else bytes(value)
    return Letter(number, Delivery(topic, partition, offset, bytes(key), payload, parsed), error, attempt_count, wish)
