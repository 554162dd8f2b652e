"""Consumes event topics: each event has its effect once, in the order of its key, even if it is delivered again.

A step of the consumer:

1. Poll records of the assigned partitions.
2. For each record, in order, run one transaction in the application's database: record the event's id in the inbox,
   call the handler with the cursor, commit. Skip an id that is already in the inbox.
3. If the handler rejects an event, or fails too often, store it as a dead letter in the same database, and every later
   event of its key behind it, until an operator retries or skips it.
4. Commit the offsets after all records before them are processed.
5. Process the dead letters of the assigned partitions that an operator has requested, in their order.

If the consumer is killed at any point, it repeats what is not committed, and the inbox filters what is. The log is an
`outbox.delivery.Source`; `outbox.kafka_source` implements it for Kafka.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import tenacity

from outbox.db_api import Connection, RowsCursor
from outbox.dead_letters import BEHIND, DeadLetters, Letter
from outbox.delivery import Delivery, Source, TopicPartition
from outbox.errors import ConsumerStopped, ContractBroken, EventMissing, EventRejected, PayloadInvalid
from outbox.inbox import Inbox

_log: Final = logging.getLogger("tailrace.consumer")
_OUTAGE: Final = ("08", "57P", "53")  # SQLSTATE: connection, shutdown, out of resources
_NOT_RETRIED: Final = (EventRejected, EventMissing, ContractBroken, PayloadInvalid)
_SETTLE_S: Final = 1.0


class Session(Connection, Protocol):
    """A connection that the consumer opens and closes."""

    def close(self) -> None:
        """Close the session."""


Handler = Callable[[Any, Delivery], None]
"""Applies an event with a cursor of the transaction; must not commit. Raises EventRejected if no retry can succeed."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long a consumer retries.

    Attributes:
        attempts: attempts per event before it becomes a dead letter.
        wait_s, wait_max_s: seconds before the second attempt; doubled for each further one, up to the maximum.
        outage_max_s: how long the database may be unavailable; less than max.poll.interval.ms of the group (5 min).
    """

    attempts: int = 5
    wait_s: float = 0.2
    wait_max_s: float = 10.0
    outage_max_s: float = 240.0


class Consumer:
    """Reads one source and calls the handler. Runs in one thread; any thread may call `stop`."""

    def __init__(
        self,
        name: str,
        source: Source,
        connect: Callable[[], Session],
        handler: Handler,
        *,
        letters: DeadLetters | None = None,
        patience: Patience | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` identifies the consumer in inbox and dead letters; all members of one group use the same name."""
        self._source = source
        self._connect = connect
        self._handler = handler
        self._letters = letters or DeadLetters(name)
        self._patience = patience or Patience()
        self._sleep = sleep
        self._now_s = now_s
        self._settled_s = float("-inf")
        self._connection: Session | None = None
        self._stopping = False

    def run(self, wait_s: float = 0.5) -> None:
        """Consume until `stop`, then close. Raises ConsumerStopped and the errors of the source."""
        try:
            while not self._stopping:
                self.step(wait_s)
        finally:
            self.close()

    def close(self) -> None:
        """Leave the group and close the session; `run` does this at its end."""
        self._source.close()
        self._disconnect()

    def stop(self) -> None:
        """Make `run` return after its current step."""
        self._stopping = True

    def step(self, wait_s: float) -> int:
        """Run one step as described above; return the number of records."""
        records = self._source.poll(wait_s)
        positions: dict[TopicPartition, int] = {}
        for record in records:
            self._process(record)
            positions[record.place] = record.offset + 1
        if positions:
            self._source.commit(positions)
        if self._now_s() - self._settled_s >= _SETTLE_S:
            self.settle()
            self._settled_s = self._now_s()
        return len(records)

    def settle(self) -> int:
        """Process the requested dead letters of the assigned partitions; return how many are settled."""
        places = sorted(self._source.assigned())
        if not places:
            return 0
        keys: Sequence[bytes] = self._in_transaction(lambda cursor: self._letters.requested_keys(cursor, places))
        return sum(self._settle_key(key) for key in keys)

    def _process(self, delivery: Delivery) -> None:
        error, attempts = "", 0
        try:
            for attempt in self._attempts():
                with attempt:
                    attempts = attempt.retry_state.attempt_number
                    if self._in_transaction(lambda cursor: self._effect(cursor, delivery)) != "blocked":
                        return
                    error = BEHIND
        except Exception as failure:
            if isinstance(failure, ConsumerStopped):
                raise
            error = type(failure).__name__
        self._in_transaction(lambda cursor: self._letters.park(cursor, delivery, error, attempts))
        if error != BEHIND:
            _log.warning("event_parked", extra={"topic": delivery.topic, "type": delivery.type, "error": error})

    def _effect(self, cursor: RowsCursor, delivery: Delivery) -> Literal["new", "repeated", "blocked"]:
        found = self._letters.accept(cursor, delivery)
        if found == "new":
            self._handler(cursor, delivery)
        return found

    def _settle_key(self, key: bytes) -> int:
        """Process the dead letters of a key from first to last, until one fails again.

        Include dead letters that were parked behind them after the request: only the earlier ones blocked them.
        """
        count = 0
        while True:
            letter = self._in_transaction(lambda cursor: self._letters.first(cursor, key))
            if letter is None or (letter.wish is None and not (count and letter.error == BEHIND)):
                return count
            if not self._settle_letter(letter):
                return count
            count += 1

    def _settle_letter(self, letter: Letter) -> bool:
        def settle(cursor: RowsCursor) -> None:
            self._letters.drop(cursor, letter)
            try:
                accepted = Inbox(self._letters.consumer, self._letters.names).accept(cursor, letter.delivery.id)
            except EventMissing:
                if letter.wish == "skip":
                    return
                raise
            if accepted and letter.wish != "skip":
                self._handler(cursor, letter.delivery)

        try:
            self._in_transaction(settle)
        except ConsumerStopped:
            raise
        except Exception as failure:  # noqa: BLE001 - as in _process
            error = type(failure).__name__
            self._in_transaction(lambda cursor: self._letters.refuse(cursor, letter, error))
            return False
        return True

    def _in_transaction(self, work: Callable[[RowsCursor], Any]) -> Any:
        """Run `work` in a transaction of its own; retry while the database is unavailable."""
        began_s, wait_s = self._now_s(), self._patience.wait_s
        while True:
            try:
                return self._once(work)
            except Exception as error:
                if not _is_outage(error):
                    raise
                self._disconnect()
                if self._now_s() - began_s > self._patience.outage_max_s:
                    raise ConsumerStopped(
                        "the consumer's database is not available", hint="restart the consumer later; no event is lost"
                    ) from error
                self._sleep(wait_s)
                wait_s = min(2 * wait_s, self._patience.wait_max_s)

    def _once(self, work: Callable[[RowsCursor], Any]) -> Any:
        connection = self._connection = self._connection or self._connect()
        try:
            found = work(connection.cursor())
            connection.commit()
        except BaseException:
            try:
                connection.rollback()
            except Exception:  # noqa: BLE001 - the session is broken
                self._disconnect()
            raise
        return found

    def _attempts(self) -> tenacity.Retrying:
        patience = self._patience
        return tenacity.Retrying(
            retry=tenacity.retry_if_not_exception_type((*_NOT_RETRIED, ConsumerStopped)),
            stop=tenacity.stop_after_attempt(patience.attempts),
            wait=tenacity.wait_exponential(multiplier=patience.wait_s, max=patience.wait_max_s),
            sleep=self._sleep,
            reraise=True,
        )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:  # noqa: BLE001 - the connection is given up anyway
                _log.debug("close_failed")


def _is_outage(error: BaseException) -> bool:
    """Whether the database is unavailable: by SQLSTATE, or by the class of an error without one."""
    state = str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")
    if state:
        return state.startswith(_OUTAGE)
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"OperationalError", "InterfaceError"}) or isinstance(error, ConnectionError)
