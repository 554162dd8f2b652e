"""Sends the status reports of a sink's process to its parent process and to the sink's state topic.

Each destination has its own thread, so that an unavailable broker does not delay the reports to the parent. Part of the
composition root beside `cdc.run.app`.
"""

from __future__ import annotations

import contextvars
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from msgspec import structs

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import TailraceError
from cdc.kafka.durable_writer import RecordWriter
from cdc.model.sink_report import (
    PIPE_EVERY_S,
    TOPIC_EVERY_S,
    SinkReport,
    decode,
    encode,
    is_report,
    report_of,
    worker_key,
)
from cdc.model.topic_names import sink_group
from cdc.telemetry import log
from sinks.state.state_topic import Entry, StateTopic, ensure_state_topic
from sinks.state.stuck_watch import StuckWatch

FORGET_S: Final = 86_400.0
"""When a worker starts, it removes reports of other workers older than this."""

_WRITE_S: Final = 5.0
_STATE_EVERY_S: Final = 1.0  # a change of state is written before the next report is due
_END_S: Final = 6.0  # for the last report


class ReportSender:
    """Sends a report every few seconds and a last one at the end. `send` may raise TailraceError and OSError."""

    def __init__(
        self,
        report: Callable[[], SinkReport],
        send: Callable[[SinkReport], None],
        clock: Clock,
        *,
        every_s: float,
        name: str,
    ) -> None:
        """`report` returns a current report."""
        self._report = report
        self._send = send
        self._clock = clock
        self._every_s = every_s
        self._fails = False
        self._stop = threading.Event()
        context = contextvars.copy_context()  # the sink's name in every event
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, which sends the first report at once."""
        self._thread.start()

    def close(self) -> bool:
        """Send the last report, in a bounded time; return whether the thread has ended."""
        self._stop.set()
        self._thread.join(_END_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        state, sent_s = "", -self._every_s
        while not self._clock.wait(self._stop, 0.0):
            report, now_s = self._report(), self._clock.monotonic_s()
            if report.shown != state or now_s - sent_s >= self._every_s:
                state, sent_s = report.shown, now_s
                self._try(report)
            self._clock.wait(self._stop, min(_STATE_EVERY_S, self._every_s))
        self._try(structs.replace(self._report(), ended=True))

    def _try(self, report: SinkReport) -> None:
        """Log a failing destination once; the sink continues."""
        try:
            self._send(report)
        except (TailraceError, OSError) as error:
            if not self._fails and isinstance(error, TailraceError):
                log.get().warning("sink_heartbeat_failed", **log.error_fields(error))
            self._fails = True
        else:
            if self._fails:
                log.get().info("sink_heartbeat_recovered")
            self._fails = False


@contextmanager
def heartbeats(
    config: Config,
    sink: str,
    status: Callable[[], dict[str, Any]],
    clock: Clock,
    *,
    worker: str = "",
    report_fd: int | None = None,
) -> Iterator[None]:
    """Send reports while the context lasts, and a last one at its end.

    Args:
        config: the configuration.
        sink: the name of the sink.
        status: returns the document of /status; called by two threads.
        clock: for the times of reports.
        worker: a name that survives restarts; without one, host and process id.
        report_fd: the pipe to the parent process.
    """
    host, pid = socket.gethostname(), os.getpid()

    watch = StuckWatch(clock)

    def report() -> SinkReport:
        found = report_of(status(), int(clock.wall_s() * 1000), host=host, pid=pid)
        watch.see(found)
        return found

    topic = _Topic(config, sink, worker or f"{host}:{pid}", clock)
    if report_fd is not None:
        os.set_inheritable(report_fd, False)  # noqa: FBT003 - positional only
    settings = config.sinks.get(sink)
    # An objective is a few seconds at least, and capture measures it by these reports if it does not run the sink.
    every_s = TOPIC_EVERY_S if settings is None or settings.objective is None else PIPE_EVERY_S
    outlets = [ReportSender(report, topic.send, clock, every_s=every_s, name="heartbeat")]
    if report_fd is not None:
        outlets.append(ReportSender(report, _Pipe(report_fd).send, clock, every_s=PIPE_EVERY_S, name="report"))
    for outlet in outlets:
        outlet.start()
    try:
        yield
    finally:
        ended = [outlet.close() for outlet in reversed(outlets)]
        if all(ended):  # a Kafka client must not be closed while another thread waits in it
            topic.close()


@contextmanager
def pipe_reports(status: Callable[[], dict[str, Any]], clock: Clock, report_fd: int | None) -> Iterator[None]:
    """Send reports about capture to its parent process while the context lasts; none without `report_fd`."""
    if report_fd is None:
        yield
        return
    os.set_inheritable(report_fd, False)  # noqa: FBT003 - positional only
    host, pid = socket.gethostname(), os.getpid()

    def report() -> SinkReport:
        return report_of(status(), int(clock.wall_s() * 1000), host=host, pid=pid)

    sender = ReportSender(report, _Pipe(report_fd).send, clock, every_s=PIPE_EVERY_S, name="report")
    sender.start()
    try:
        yield
    finally:
        sender.close()


class _Pipe:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, report: SinkReport) -> None:
        """Write one line; it is atomic up to PIPE_BUF."""
        data = encode(report) + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]


class _Topic:
    """Connects at the first report. One thread."""

    def __init__(self, config: Config, sink: str, worker: str, clock: Clock) -> None:
        self._config = config
        self._sink = sink
        self._key = worker_key(worker)
        self._clock = clock
        self._topic = ""
        self._writer: RecordWriter | None = None

    def send(self, report: SinkReport) -> None:
        if self._writer is None:
            self._open()
        assert self._writer is not None
        self._writer.write([(self._topic, 0, self._key, encode(report), None)])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _open(self) -> None:
        self._topic = ensure_state_topic(self._config, self._sink)
        client_id = f"{sink_group(self._config.name, self._sink)}.heartbeat"
        writer = RecordWriter(self._config.kafka, client_id=client_id, timeout_s=_WRITE_S)
        gone = self._forgotten()
        if gone:
            writer.write([(self._topic, 0, key, value, None) for key, value in gone])
        self._writer = writer

    def _forgotten(self) -> list[Entry]:
        """Return the entries that delete old reports of other workers."""
        state, now_ms = StateTopic(self._config, self._sink), self._clock.wall_s() * 1000
        try:
            kept = {key: decode(value) for key, value in state.load().items() if is_report(key) and key != self._key}
        finally:
            with suppress(TailraceError):
                state.close()
        return [(key, None) for key, one in kept.items() if one is None or now_ms - one.at_ms > FORGET_S * 1000]
