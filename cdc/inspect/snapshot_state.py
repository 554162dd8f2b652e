"""Reads the state of snapshots from the log, and sends signals that control them.

Needs only Kafka. Rates and reasons for waiting come from the daemon's /status, if it answers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import TailraceError, TopicMismatch
from cdc.inspect.pipeline_state import ask_daemon
from cdc.kafka.log_reader import LogReader
from cdc.kafka.sender import send
from cdc.model.signal_record import SignalAnswer, SignalsRecord
from cdc.model.snapshot_record import SnapshotRecord
from cdc.model.topic_names import progress_topic, signals_topic
from cdc.progress.record_format import decode, signals_key, snapshot_key
from snapshot.signal_parsing import Signal, encode

_POLL_S: Final = 0.1  # between reads of the answer
_ANSWER_S: Final = 5.0  # for Kafka


class SnapshotView:
    """The state of snapshots in the log, read incrementally. Close it."""

    def __init__(self, config: Config) -> None:
        """No connection is made yet."""
        self._config = config
        self._reader = LogReader(config.kafka, client_id="tailrace-snapshots")
        self._at: int | None = None
        self.records: dict[str, SnapshotRecord] = {}
        self.signals: SignalsRecord | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def look(self) -> None:
        """Read the records since the last call. Raises TopicMismatch when capture never ran, BrokerUnreachable."""
        name = self._config.name
        topic = progress_topic(name)
        partition = (topic, 0)
        low, high = self._reader.end_offsets([topic], timeout_s=_ANSWER_S)[partition]
        start = low if self._at is None or self._at < low else self._at
        prefix, signals = snapshot_key(name), signals_key(name)
        for batch in self._reader.read({partition: start}, {partition: high}, timeout_s=_ANSWER_S):
            for record in batch:
                key, value = record.key, record.value
                if key is None or value is None:
                    continue
                if key == signals:
                    self.signals = decode(value, SignalsRecord, topic)
                elif key.startswith(prefix):
                    found = decode(value, SnapshotRecord, topic)
                    self.records[found.table] = found
        self._at = high

    def answer(self, offset: int) -> SignalAnswer | None:
        """Return the answer to the signal at `offset`; None while capture has not acted on it."""
        if self.signals is None or self.signals.next_offset <= offset:
            return None
        known = {answer.offset: answer for answer in self.signals.answers}
        return known.get(offset, SignalAnswer(offset=offset))


def ask(config: Config, signal: Signal) -> int:
    """Write a signal and return its offset. Raises TopicMismatch when capture never ran, and Kafka's errors."""
    topic = signals_topic(config.name)
    try:
        return send(config.kafka, topic, config.name.encode(), encode(signal))
    except TopicMismatch as error:
        raise never_ran(config, error) from error


def never_ran(config: Config, error: TailraceError) -> TopicMismatch:
    """Return the error for a pipeline without topics."""
    return TopicMismatch(
        f"capture {config.name!r} has never run on this Kafka",
        hint="the first start creates its topics",
        command="cdc run",
        **error.facts,
    )


def await_answer(view: SnapshotView, offset: int, timeout_s: float, clock: Clock) -> SignalAnswer | None:
    """Return the answer to a signal; None when capture has not acted on it in time. The signal stays valid."""
    end_s = clock.monotonic_s() + timeout_s
    while True:
        view.look()
        found = view.answer(offset)
        if found is not None or clock.monotonic_s() >= end_s:
            return found
        clock.wait(threading.Event(), _POLL_S)


def tables(config: Config, view: SnapshotView) -> tuple[list[dict[str, Any]], str]:
    """Return every snapshot as in /status, from the daemon if it answers, and the reason why it does not.

    Without the daemon, its facts are null, and rows and state are those of its last commit.
    """
    logged = {name: _document(record) for name, record in view.records.items()}
    try:
        reported: list[Mapping[str, Any]] = ask_daemon(config.http, config.name).get("snapshots", [])
        why = ""
    except TailraceError as error:
        reported, why = [], error.message
    return merged(logged, reported), why


def merged(logged: Mapping[str, Mapping[str, Any]], reported: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the log says of each table, with the facts of /status where they are of the same or a newer snapshot.

    /status is refreshed after the commit that the log shows, so for a moment it still has the snapshot before.
    """
    found = {name: dict(one) for name, one in logged.items()}
    for one in reported:
        name = str(one["table"])
        if int(one["number"]) >= int(found.get(name, one)["number"]):
            found[name] = {**found.get(name, {}), **one}
    return [one for _, one in sorted(found.items())]


def _document(record: SnapshotRecord) -> dict[str, Any]:
    """Return the document of `snapshot.snapshot_progress.document`, from the log."""
    state = "complete" if record.state == "complete" else record.hold or "reading"
    return {
        "table": record.table,
        "state": "waiting" if record.begun and state == "reading" else state,
        "number": record.number,
        "again": record.again,
        "rows": record.row_count,
        "bytes": record.byte_count,
        "blocks_done": None,
        "blocks": None,
        "keys_left": len({*(key.encode() for key in record.repair), *(one.key for one in record.owed)}),
        "rows_per_second": None,
        "eta_seconds": None,
        "chunks_reading": None,
        "chunks_waiting": None,
        "waits_for": [],
        "where": record.where or None,
    }
