"""Dead letters of a consumer, in its own database: parked in the order of their key, settled when somebody asks.

As long as a key has a letter, every later event of it is parked behind it: no event overtakes another of its key, and
all other keys flow on. Statements only; transactions are the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

from outbox.delivery import Delivery, TopicPartition
from outbox.table_names import Names

LetterAction = Literal["retry", "skip"]

BEHIND: Final = "blocked"
"""The error of a letter that nobody has tried: an earlier event of its key was parked."""
_KEYS_MAX: Final = 100  # that are settled in one go, so that live records are read in between


class Rows(Protocol):
    """What is needed of a DB-API cursor."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed."""

    def execute(self, operation: Any, parameters: Any, /) -> Any:
        """Run a statement with parameters by position."""

    def fetchall(self) -> Sequence[Any]:
        """All rows of the last statement."""


class Letter(NamedTuple):
    """A dead letter: its number, the record as it was, why it was parked, how often it was tried, what is wished."""

    id: int
    delivery: Delivery
    error: str
    attempt_count: int
    wish: LetterAction | None


class Count(NamedTuple):
    """How much is parked of a consumer, by topic and error of each key's first letter."""

    consumer: str
    topic: str
    error: str
    key_count: int
    letter_count: int


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The letters of one consumer, or of all where `consumer` is empty. Thread-safe: it has no state."""

    consumer: str
    names: Names = field(default_factory=Names)

    def accept(self, cursor: Rows, delivery: Delivery) -> Literal["new", "repeated", "blocked"]:
        """Note the event in the inbox, unless it was dealt with, or letters of its key wait: one statement for both."""
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

    def park(self, cursor: Rows, delivery: Delivery, error: str, attempt_count: int) -> bool:
        """Keep a record as a letter, once; False where it is one already."""
        cursor.execute(
            f"insert into {self._table} (consumer, topic, partition, record_offset, key, value, headers, "  # noqa: S608
            "error, attempt_count) values (%s, %s, %s, %s, %s, %s, cast(%s as jsonb), %s, %s) on conflict do nothing",
            (
                self.consumer, delivery.topic, delivery.partition, delivery.offset, delivery.key, delivery.value,
                json.dumps(dict(delivery.headers)), error, attempt_count,
            ),
        )  # fmt: skip
        return cursor.rowcount == 1

    def requested_keys(self, cursor: Rows, places: Iterable[TopicPartition]) -> list[bytes]:
        """Keys of these partitions of which somebody wants a letter settled."""
        topics, partitions = zip(*places, strict=True) if places else ((), ())
        cursor.execute(
            f"select distinct key from {self._table} where consumer = %s and wish is not null "  # noqa: S608
            "and (topic, partition) in (select * from unnest(cast(%s as text[]), cast(%s as int[]))) limit %s",
            (self.consumer, list(topics), list(partitions), _KEYS_MAX),
        )
        return [bytes(row[0]) for row in cursor.fetchall()]

    def first(self, cursor: Rows, key: bytes) -> Letter | None:
        """The letter of a key that is to be settled first."""
        found = self._read(cursor, "consumer = %s and md5(key) = md5(%s) and key = %s", (self.consumer, key, key), 1)
        return found[0] if found else None

    def drop(self, cursor: Rows, letter: Letter) -> None:
        """It is settled."""
        cursor.execute(f"delete from {self._table} where id = %s", (letter.id,))  # noqa: S608 - quoted

    def refuse(self, cursor: Rows, letter: Letter, error: str) -> None:
        """It was tried again, in vain: nobody wishes anything of its key any more."""
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
        self, cursor: Rows, wish: LetterAction, *, topic: str = "", error: str = "", key: bytes | None = None
    ) -> int:
        """Wish that letters be settled, of keys whose first letter is of this topic and error; returns how many keys.

        ``skip`` passes over the first letter of a key, and has those behind it tried.

        The consumer that has the partition does it, in order, within about a second.
        """
        rows = [
            letter
            for letter in self._heads(cursor)
            if topic in {"", letter.delivery.topic}
            and error in {"", letter.error}
            and key in {None, letter.delivery.key}
        ]
        for letter in rows:
            # Who skips an event gives up that one: those behind it are tried.
            cursor.execute(
                f"update {self._table} set wish = case when id = %s then %s else 'retry' end "  # noqa: S608 - quoted
                "where consumer = %s and md5(key) = md5(%s) and key = %s",
                (letter.id, wish, self.consumer, letter.delivery.key, letter.delivery.key),
            )
        return len(rows)

    def letters(self, cursor: Rows, limit: int) -> list[Letter]:
        """The letters, oldest first."""
        return self._read(cursor, "consumer = %s", (self.consumer,), limit)

    def counts(self, cursor: Rows) -> list[Count]:
        """How much is parked, of all consumers or this one."""
        cursor.execute(
            "select consumer, topic, error, count(*), sum(letters) from (select distinct on (consumer, key) consumer, "  # noqa: S608
            f"topic, error, count(*) over (partition by consumer, key) as letters from {self._table} "
            "where %s in ('', consumer) order by consumer, key, id) as heads group by 1, 2, 3 order by 1, 2, 3",
            (self.consumer,),
        )
        return [Count(row[0], row[1], row[2], int(row[3]), int(row[4])) for row in cursor.fetchall()]

    def _heads(self, cursor: Rows) -> list[Letter]:
        cursor.execute(
            f"select distinct on (key) {_FIELDS} from {self._table} where consumer = %s order by key, id",  # noqa: S608
            (self.consumer,),
        )
        return [_letter(row) for row in cursor.fetchall()]

    def _read(self, cursor: Rows, condition: str, values: tuple[object, ...], limit: int) -> list[Letter]:
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
    told = json.loads(headers) if isinstance(headers, str | bytes) else headers
    payload = None if value is None else bytes(value)
    return Letter(number, Delivery(topic, partition, offset, bytes(key), payload, told), error, attempt_count, wish)
