"""A consumer of event topics: each event has its effect once, in the order of its key, whatever is delivered again.

A step is:

1. poll records of the partitions that are ours,
2. for each, in order, one transaction of the application's database: note its id in the inbox, call the handler with
   the cursor, commit; an id that is there already is passed over,
3. what a handler refuses, or fails at too often, is parked as a dead letter in the same database, and so is every later
   event of its key, until somebody has it retried or skipped,
4. commit the offsets, after everything before them is dealt with,
5. settle the letters that somebody asked for, of our partitions, in their order.

Killed between any two lines it does again what is not committed, and the inbox knows what is. The log is a
`outbox.delivery.Source`; `outbox.kafka_source` is Kafka.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import tenacity

from outbox.dead_letters import BEHIND, DeadLetters, Letter, Rows
from outbox.delivery import Delivery, Source, TopicPartition
from outbox.errors import ConsumerStopped, ContractBroken, EventMissing, EventRejected, PayloadInvalid
from outbox.inbox import Inbox

_log: Final = logging.getLogger("tailrace.consumer")
_OUTAGE: Final = ("08", "57P", "53")  # SQLSTATE: connection, shutdown, out of resources
_HOPELESS: Final = (EventRejected, EventMissing, ContractBroken, PayloadInvalid)
_SETTLE_S: Final = 1.0


class Connection(Protocol):
    """What is needed of a DB-API connection, not in autocommit."""

    def cursor(self) -> Any:
        """A cursor of its transaction."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo it."""

    def close(self) -> None:
        """End the session."""


Handler = Callable[[Any, Delivery], None]
"""Has an event's effect, with a cursor of the transaction; never commits. Raises EventRejected for what is hopeless."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How failures are met.

    Attributes:
        attempts: of an event, before it is a dead letter.
        wait_s, wait_max_s: before the second attempt, doubled each time up to the other.
        outage_max_s: how long the database may be away; less than max.poll.interval.ms of the group (5 min).
    """

    attempts: int = 5
    wait_s: float = 0.2
    wait_max_s: float = 10.0
    outage_max_s: float = 240.0


class Consumer:
    """Reads one source and has its events' effects. One thread; `stop` may be called by any."""

    def __init__(
        self,
        name: str,
        source: Source,
        connect: Callable[[], Connection],
        handler: Handler,
        *,
        letters: DeadLetters | None = None,
        patience: Patience | None = None,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name`: of inbox and dead letters; the members of one group have the same."""
        self._source = source
        self._connect = connect
        self._handler = handler
        self._letters = letters or DeadLetters(name)
        self._patience = patience or Patience()
        self._sleep = sleep
        self._now_s = now_s
        self._settled_s = float("-inf")
        self._connection: Connection | None = None
        self._stopping = False

    def run(self, wait_s: float = 0.5) -> None:
        """Consume until `stop`. Raises ConsumerStopped, and what the source raises; the source is closed then."""
        try:
            while not self._stopping:
                self.step(wait_s)
        finally:
            self.close()

    def close(self) -> None:
        """Leave the group and end the session; `run` does it by itself."""
        self._source.close()
        self._hang_up()

    def stop(self) -> None:
        """Have `run` return after the step it is in."""
        self._stopping = True

    def step(self, wait_s: float) -> int:
        """One round of the loop above; returns how many records came."""
        records = self._source.poll(wait_s)
        positions: dict[TopicPartition, int] = {}
        for record in records:
            self._deal(record)
            positions[record.place] = record.offset + 1
        if positions:
            self._source.commit(positions)
        if self._now_s() - self._settled_s >= _SETTLE_S:
            self.settle()
            self._settled_s = self._now_s()
        return len(records)

    def settle(self) -> int:
        """Settle what is wished of letters in our partitions; returns how many were."""
        places = sorted(self._source.assigned())
        if not places:
            return 0
        keys: Sequence[bytes] = self._in_transaction(lambda cursor: self._letters.requested_keys(cursor, places))
        return sum(self._settle_key(key) for key in keys)

    def _deal(self, delivery: Delivery) -> None:
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

    def _effect(self, cursor: Rows, delivery: Delivery) -> Literal["new", "repeated", "blocked"]:
        found = self._letters.accept(cursor, delivery)
        if found == "new":
            self._handler(cursor, delivery)
        return found

    def _settle_key(self, key: bytes) -> int:
        """The letters of a key, first to last, until one is refused again.

        Those that were parked behind them after somebody asked are settled, too: nothing else holds them up.
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
        def settle(cursor: Rows) -> None:
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
        except Exception as failure:  # noqa: BLE001 - as in _deal
            error = type(failure).__name__
            self._in_transaction(lambda cursor: self._letters.refuse(cursor, letter, error))
            return False
        return True

    def _in_transaction(self, work: Callable[[Rows], Any]) -> Any:
        """Run `work` in a transaction of its own, again while the database is away."""
        began_s, wait_s = self._now_s(), self._patience.wait_s
        while True:
            try:
                return self._once(work)
            except Exception as error:
                if not _is_outage(error):
                    raise
                self._hang_up()
                if self._now_s() - began_s > self._patience.outage_max_s:
                    raise ConsumerStopped(
                        "the consumer's database is away", hint="start it again; nothing is lost"
                    ) from error
                self._sleep(wait_s)
                wait_s = min(2 * wait_s, self._patience.wait_max_s)

    def _once(self, work: Callable[[Rows], Any]) -> Any:
        connection = self._connection = self._connection or self._connect()
        try:
            found = work(connection.cursor())
            connection.commit()
        except BaseException:
            try:
                connection.rollback()
            except Exception:  # noqa: BLE001 - the session is of no use any more
                self._hang_up()
            raise
        return found

    def _attempts(self) -> tenacity.Retrying:
        patience = self._patience
        return tenacity.Retrying(
            retry=tenacity.retry_if_not_exception_type((*_HOPELESS, ConsumerStopped)),
            stop=tenacity.stop_after_attempt(patience.attempts),
            wait=tenacity.wait_exponential(multiplier=patience.wait_s, max=patience.wait_max_s),
            sleep=self._sleep,
            reraise=True,
        )

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except Exception:  # noqa: BLE001 - it is gone either way
                _log.debug("close_failed")


def _is_outage(error: BaseException) -> bool:
    """Whether it is the database that is away, and not the event: by SQLSTATE, or a broken connection without one."""
    state = str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")
    if state:
        return state.startswith(_OUTAGE)
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"OperationalError", "InterfaceError"}) or isinstance(error, ConnectionError)
