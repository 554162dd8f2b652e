"""Reads ``<name>.__signals`` while capture runs, carries out the signals, and records the answers.

A thread with a consumer of its own. Every writer of the topic can write anything, so no record may stop capture or the
thread. An error while a signal is examined or carried out becomes a refusal, which is recorded, and the next signal is
read. Errors of Kafka or PostgreSQL are waited out.

A signal and what it changes are recorded under one lock, so that they are in the same Kafka transaction. A snapshot
that a signal begins is recorded at once (`Merger.order`). Otherwise a crash before its first check of open transactions
would lose it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import InvariantError, TailraceError
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.log_record import LogRecord
from cdc.model.signal_record import SignalAnswer, SignalsRecord, newest_answers
from cdc.model.topic_names import signals_topic
from cdc.progress.record_format import encode
from cdc.replication.connect import Connection, connect
from cdc.startup.signal_actions import Act, Catalog, Outcome, SourceCatalog, control_acts, start
from cdc.startup.signal_rate import SignalRate
from cdc.telemetry import log
from snapshot.handover import HandOver
from snapshot.merger import Merger
from snapshot.reader_threads import Tables
from snapshot.signal_parsing import Signal, SignalError
from snapshot.signal_parsing import parse as parse_signal

_AHEAD_BYTES: Final = 2 << 20
_AGAIN_S: Final = 2.0  # between attempts to read, or to ask PostgreSQL
_ATTEMPTS_MAX: Final = 3  # to examine a signal while the connection breaks; then it is refused
_LOGGED_MAX: Final = 10  # reasons in one event


class SignalObserver(Protocol):
    """Receives the results of signals; for logs, metrics and status. Must not block or raise."""

    def signals_listening(self, alive: Callable[[], bool] | None) -> None:
        """The topic is read for as long as `alive()` is true; None: no longer."""

    def signals_failed(self, cause: TailraceError | None) -> None:
        """The topic cannot be read, or a signal cannot be examined; None: it works again."""

    def signal_handled(self, *, refused: bool, next_offset: int) -> None:
        """A signal was answered. `refused`: for some table, or as a whole."""


class MergerAccess(Protocol):
    """The part of `snapshot.handover` that is needed: access to the merger under its lock."""

    boundary: Lsn

    def merging(self) -> AbstractContextManager[Merger]:
        """Return the merger, with its lock held inside the block."""


class SignalHandler:
    """Turns records into acts and answers. Not thread-safe."""

    def __init__(
        self,
        name: str,
        hand_over: MergerAccess,
        catalog: Callable[[], AbstractContextManager[Catalog]],
        record: SignalsRecord,
        observer: SignalObserver,
        *,
        avro: bool = False,
    ) -> None:
        """`catalog` connects to PostgreSQL. It raises TailraceError if that is not possible now."""
        self._name = name
        self._hand_over = hand_over
        self._catalog = catalog
        self._observer = observer
        self._avro = avro
        self._tried = (-1, 0)
        self.record = record

    def handle(self, record: LogRecord) -> None:
        """Carry out one record. The act and its offset are committed together.

        Raises TailraceError while PostgreSQL does not answer. A signal is refused if its examination breaks the
        connection repeatedly.
        """
        _, _, offset, _, key, value, _ = record
        signal, act = self._examined(key, value, offset)
        with self._hand_over.merging() as merger:
            outcome = self._acted(act, merger, offset)
            self.record = self._answered(offset, signal, outcome)
            merger.acted(self.record)
        if signal is not None:
            self._observer.signal_handled(refused=bool(outcome.refused), next_offset=offset + 1)
            _log(signal, offset, outcome)

    def _examined(self, key: bytes | None, value: bytes | None, offset: int) -> tuple[Signal | None, Act]:
        signal: Signal | None = None
        try:
            signal = parse_signal(key, value, self._name)
            return signal, _nothing if signal is None else self._prepared(signal, offset)
        except SignalError as error:
            refusal = str(error)
        except TailraceError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a signal causes is its refusal
            refusal = _failed(offset, error)
        return signal or Signal("", ""), lambda _: Outcome(refused={"": refusal})

    def _prepared(self, signal: Signal, offset: int) -> Act:
        if signal.action in {"log", ""}:
            return _nothing
        if signal.action != "start":
            with self._hand_over.merging() as merger:
                names = frozenset(merger.states)
            return control_acts(signal, names)
        with self._catalog() as catalog:
            try:
                return start(signal, catalog, lambda: self._hand_over.boundary, avro=self._avro)
            except TailraceError as error:
                before, count = self._tried
                self._tried = (offset, count + 1 if before == offset else 1)
                if self._tried[1] < _ATTEMPTS_MAX:
                    raise
                raise SignalError(f"it could not be examined in {_ATTEMPTS_MAX} attempts: {error.message}") from None

    def _acted(self, act: Act, merger: Merger, offset: int) -> Outcome:
        try:
            return act(merger)
        except SignalError as error:
            return Outcome(refused={"": str(error)})
        except Exception as error:  # noqa: BLE001 - see `_examined`
            return Outcome(refused={"": _failed(offset, error)})

    def _answered(self, offset: int, signal: Signal | None, outcome: Outcome) -> SignalsRecord:
        """Return the record to write. A record that cannot be encoded would stop capture, so encoding is tried here."""
        topic_id, answers = self.record.topic_id, self.record.answers
        if signal is None:
            return SignalsRecord(topic_id=topic_id, next_offset=offset + 1, answers=answers)
        answer = SignalAnswer(
            offset=offset, id=signal.id, action=signal.action, done=tuple(outcome.done), refused=outcome.shown
        )
        found = SignalsRecord(topic_id=topic_id, next_offset=offset + 1, answers=newest_answers((*answers, answer)))
        try:
            encode(found)
        except Exception as error:  # noqa: BLE001 - see `_examined`
            plain = SignalAnswer(offset=offset, done=tuple(outcome.done), refused={"": _failed(offset, error)})
            found = SignalsRecord(topic_id=topic_id, next_offset=offset + 1, answers=newest_answers((*answers, plain)))
        return found


class SignalListener:
    """Carries out every signal once, from `start` to `close`, in a thread that survives every error."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        handler: SignalHandler,
        observer: SignalObserver,
        *,
        idle: Callable[[], object] = lambda: None,
    ) -> None:
        """`idle` is called when there is nothing to read for now."""
        self._config = config
        self._clock = clock
        self._handler = handler
        self._observer = observer
        self._idle = idle
        self._rate = SignalRate(config.signals.per_second_max, clock)
        self._stop = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self._observer.signals_listening(self._thread.is_alive)

    def adopt(self, config: Config) -> None:
        """Take over a new limit of signals per second."""
        self._rate.limit(config.signals.per_second_max)

    def close(self) -> None:
        """Stop the thread, within a moment."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._observer.signals_listening(None)

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                self._read()
            except TailraceError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - the thread goes on; the observer reports it
                self._failed(InvariantError(f"the signals thread failed: {log.origin(error)}"))

    def _failed(self, error: TailraceError) -> None:
        self._failing = True
        self._observer.signals_failed(error)
        self._clock.wait(self._stop, _AGAIN_S)

    def _read(self) -> None:
        partition = (signals_topic(self._config.name), 0)
        with LogReader(
            self._config.kafka, client_id="tailrace-signals", clock=self._clock, ahead_bytes=_AHEAD_BYTES, follows=True
        ) as consumer:
            low, high = consumer.end_offsets([partition[0]])[partition]
            at = self._handler.record.next_offset
            batches = consumer.read({partition: at if low <= at <= high else low})
            try:
                for batch in batches:
                    for record in batch:
                        if self._stop.is_set() or not self._rate.wait(self._stop):
                            return
                        self._handler.handle(record)
                    self._idle()
                    if self._stop.is_set():
                        return
                    if self._failing:
                        self._failing = False
                        self._observer.signals_failed(None)
            finally:
                batches.close()
                self._idle()


class HeldCatalog:
    """A catalog whose connection serves many signals: to connect costs more than to examine one. One thread."""

    def __init__(self, connected: Callable[[], Connection], catalog: Callable[[Connection], Catalog]) -> None:
        self._connected = connected
        self._catalog = catalog
        self._connection: Connection | None = None

    @contextmanager
    def __call__(self) -> Iterator[Catalog]:
        """Yield the catalog; after an error the next call connects again. Raises TailraceError as `connect` does."""
        if self._connection is None:
            self._connection = self._connected()
        try:
            yield self._catalog(self._connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection if there is one. The next call connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def listener(
    config: Config,
    clock: Clock,
    hand_over: HandOver,
    tables: Tables,
    record: SignalsRecord | None,
    topic_id: str,
    observer: SignalObserver,
) -> SignalListener | None:
    """Return the listener; None if `[signals] enabled` is false.

    `record` is the recorded state. If it is None, or belongs to another topic, the topic is read from its beginning.
    """
    if not config.signals.enabled:
        return None

    catalog = HeldCatalog(
        lambda: connect(config.source.dsn, application_name="cdc signals"),
        lambda connection: SourceCatalog(connection, config.publication, tables),
    )
    if record is None or record.topic_id != topic_id:
        record = SignalsRecord(topic_id=topic_id, next_offset=0)
    avro = config.encode.format == "avro"
    handler = SignalHandler(config.name, hand_over, catalog, record, observer, avro=avro)
    return SignalListener(config, clock, handler, observer, idle=catalog.close)


def _nothing(_: Merger) -> Outcome:
    """Do nothing."""
    return Outcome()


def _failed(offset: int, error: Exception) -> str:
    """Log an error that no signal should cause, and return the refusal."""
    log.get().error("signal_failed", offset=offset, error=log.origin(error))
    return f"it failed with {type(error).__name__}; see event signal_failed in capture's log"


def _log(signal: Signal, offset: int, outcome: Outcome) -> None:
    if outcome.refused:
        refused = {name or "*": why for name, why in list(outcome.refused.items())[:_LOGGED_MAX]}
        log.get().warning("signal_refused", action=signal.action, offset=offset, reasons=refused)
    elif signal.action == "log":
        log.get().info("signal_log", offset=offset, message=signal.message.replace("{}", str(offset)))
    if outcome.done:
        log.get().info("signal_done", action=signal.action, offset=offset, tables=len(outcome.done))
