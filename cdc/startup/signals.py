"""Reads ``<name>.__signals`` and acts on it, beside capture; what was acted on is recorded with what it changed.

A thread with a consumer of its own. A signal that cannot be done is answered in the record, logged and passed over:
nothing that somebody writes there stops capture, nor does a broker that is away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import SourceRefused, TailraceError
from cdc.kafka.consumer import LogReader
from cdc.model.names import signals_topic
from cdc.model.signals import SignalAnswer, SignalsRecord, bounded
from cdc.progress.restore import LogRecord
from cdc.replication.connect import Connection, connect
from cdc.replication.table import SourceTable
from cdc.telemetry import log
from snapshot import reader
from snapshot.condition import Condition, ConditionError, parse
from snapshot.crew import Tables
from snapshot.desk import Desk
from snapshot.merger import Merger
from snapshot.signals import Signal, SignalError, in_order
from snapshot.signals import parse as parse_signal
from snapshot.tablestate import Wanted

_AHEAD_BYTES: Final = 2 << 20
_AGAIN_S: Final = 2.0  # between attempts to read, or to ask PostgreSQL
_REFUSED_MAX: Final = 100  # of one answer, which is kept in the log
_NAME_MAX: Final = 200
_LIVE: Final = frozenset({"begun", "suspected", "planned"})


@dataclass(slots=True)
class _Outcome:
    done: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def told(self) -> dict[str, str]:
        """A bounded number of what was refused."""
        found = {name[:_NAME_MAX]: why for name, why in list(self.refused.items())[:_REFUSED_MAX]}
        more = len(self.refused) - _REFUSED_MAX
        return found | ({"": f"{more} more were refused"} if more > 0 else {})


class SignalListener:
    """Acts on every signal once, from `start` to `close`."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        desk: Desk,
        tables: Tables,
        record: SignalsRecord | None,
        topic_id: str,
    ) -> None:
        """`record` is what the log has; of another topic, or None, the topic is read from its beginning."""
        self._config = config
        self._clock = clock
        self._desk = desk
        self._tables = tables
        same = record is not None and record.topic_id == topic_id
        self._record = record if record is not None and same else SignalsRecord(topic_id=topic_id, next_offset=0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """End the thread, within a moment."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _listen(self) -> None:
        troubled = False
        while not self._stop.is_set():
            try:
                self._read()
            except TailraceError as error:
                if not troubled:
                    log.get().warning("signals_interrupted", **log.error_fields(error))
                troubled = True
                self._clock.wait(self._stop, _AGAIN_S)

    def _read(self) -> None:
        partition = (signals_topic(self._config.name), 0)
        with LogReader(
            self._config.kafka, client_id="tailrace-signals", clock=self._clock, ahead_bytes=_AHEAD_BYTES, follows=True
        ) as consumer:
            low, high = consumer.end_offsets([partition[0]])[partition]
            at = self._record.next_offset
            batches = consumer.read({partition: at if low <= at <= high else low})
            try:
                for batch in batches:
                    for record in batch:
                        if self._stop.is_set():
                            return
                        self._take(record)
                    if self._stop.is_set():
                        return
            finally:
                batches.close()

    def _take(self, record: LogRecord) -> None:
        """Act on one record, and have that and its place go into the log together."""
        _, _, offset, _, key, value, _ = record
        act: Callable[[Merger], _Outcome] = lambda _: _Outcome()  # noqa: E731
        identity, action = "", ""
        try:
            signal = parse_signal(key, value, self._config.name)
            if signal is not None:
                identity, action = signal.id, signal.action
                act = self._prepared(signal)
        except SignalError as error:
            refusal = _Outcome(refused={"": str(error)})
            act = lambda _: refusal  # noqa: E731
            signal = Signal("", "log")
        with self._desk.merging() as merger:
            outcome = act(merger)
            answers = self._record.answers
            if signal is not None:
                answer = SignalAnswer(
                    offset=offset, id=identity, action=action, done=tuple(outcome.done), refused=outcome.told
                )
                answers = bounded((*answers, answer))
            self._record = SignalsRecord(topic_id=self._record.topic_id, next_offset=offset + 1, answers=answers)
            merger.acted(self._record)
        if signal is not None:
            self._say(signal, action, offset, outcome)

    def _say(self, signal: Signal, action: str, offset: int, outcome: _Outcome) -> None:
        if outcome.refused or not action:
            refused = {name or "*": why for name, why in list(outcome.refused.items())[:10]}
            log.get().warning("signal_refused", action=action, offset=offset, reasons=refused)
        elif action == "log":
            log.get().info("signal_log", offset=offset, message=signal.message.replace("{}", str(offset)))
        if outcome.done:
            log.get().info("signal_done", action=action, offset=offset, tables=len(outcome.done))

    def _prepared(self, signal: Signal) -> Callable[[Merger], _Outcome]:
        """What is to be done; whatever takes time is behind it. Raises SignalError, and as PostgreSQL is asked."""
        if signal.action == "log":
            return lambda _: _Outcome()
        if signal.action == "start":
            return self._start(signal)
        return lambda merger: self._steer(signal, merger)

    def _start(self, signal: Signal) -> Callable[[Merger], _Outcome]:
        wanted: dict[str, Wanted] = {}
        refused: dict[str, str] = {}
        with connect(self._config.source.dsn, application_name="cdc signals") as connection:
            tables = {table.table: table for table in self._tables(connection)}
            for pattern in signal.tables:
                names = signal.matching(pattern, tables)
                if not names:
                    refused[pattern] = "no captured table is called so"
                if signal.keys and len({*names, *wanted}) > 1:
                    raise SignalError("keys are those of one table")
                for name in names:
                    try:
                        wanted[name] = self._wanted(connection, tables[name], signal)
                    except SignalError as error:
                        refused[name] = str(error)

        def act(merger: Merger) -> _Outcome:
            outcome = _Outcome(refused=refused)
            states = {one.table: one for one in merger.progress()}
            for name, rows in wanted.items():
                now = states.get(name)
                some = rows.where or rows.keys
                if now is not None and now.state in _LIVE:
                    outcome.refused[name] = "it is being read already"
                elif some and (now is None or now.state != "complete"):
                    outcome.refused[name] = "some rows are read of tables only whose first snapshot is complete"
                else:
                    merger.order(name, tables[name].oid, self._desk.boundary, rows)
                    outcome.done.append(name)
            return outcome

        return act

    def _wanted(self, connection: Connection, table: SourceTable, signal: Signal) -> Wanted:
        """Which rows of a table are meant. Raises SignalError."""
        if not table.key:
            raise SignalError("it has no key: rows that are read again could not take the place of others")
        if signal.keys and self._config.encode.format == "avro":
            raise SignalError("its keys are in Avro, and a signal names keys in JSON: give a condition")
        columns = [column.name for column in table.columns if column.name in table.key]
        keys = tuple(in_order(key, columns) for key in signal.keys)
        text = "" if keys else signal.where_of(table.table)
        try:
            condition = parse(text) if text else None
        except ConditionError as error:
            raise SignalError(f"the condition cannot be read: {error}") from None
        problem = self._problem(connection, table, condition)
        if problem:
            raise SignalError(problem)
        return Wanted(text, keys)

    def _problem(self, connection: Connection, table: SourceTable, condition: Condition | None) -> str:
        """Why PostgreSQL would not let it be read: what only the reading would find out would stop capture."""
        try:
            sights = reader.sights(connection, self._config.publication, [table])
            if table.table not in sights:
                return "it is not published"
            if condition is None:
                return ""
            return reader.condition_problem(connection, sights[table.table].form, condition)
        except SourceRefused as error:
            return error.message
        except reader.NotNow:
            return ""  # it is looked at again before the table is read

    def _steer(self, signal: Signal, merger: Merger) -> _Outcome:
        """Pause, resume or stop what is going on, of all tables or of some."""
        outcome = _Outcome()
        tables = {one.table: one for one in merger.progress()}
        live = [name for name, one in tables.items() if one.state in _LIVE]
        names = live
        if signal.tables:
            names = []
            for pattern in signal.tables:
                found = signal.matching(pattern, tables)
                names += found
                if not found:
                    outcome.refused[pattern] = "there is no snapshot of a table that is called so"
        for name in dict.fromkeys(names):
            now = tables[name]
            if now.state not in _LIVE:
                outcome.refused[name] = f"nothing is being read: it is {now.shown}"
            elif signal.action == "stop":
                merger.stop(name)
                outcome.done.append(name)
            elif now.paused == (signal.action == "pause"):
                outcome.refused[name] = "it is paused already" if now.paused else "it is not paused"
            else:
                merger.pause(name, paused=not now.paused)
                outcome.done.append(name)
        if signal.tables == () and not outcome.done:
            outcome.refused.setdefault("", "there is nothing to do: no snapshot is in such a state")
        return outcome
