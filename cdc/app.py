"""The composition root: the only place that names every concrete class, and the process around the daemon."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

from cdc.artifacts.machine import Machine
from cdc.artifacts.progress import Progress
from cdc.clock import SystemClock
from cdc.config.settings import Config, Warehouse
from cdc.daemon import Daemon
from cdc.errors import EXIT_OK, UsageError
from cdc.startup.protocol import start
from cdc.telemetry import log
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.status import Status
from cdc.web.server import WebServer

if TYPE_CHECKING:
    from sinks.warehouse.manifest import Manifest
    from sinks.warehouse.verifying import MirrorReport

_SAME_SIGNAL_S: Final = 1.0  # process managers signal the process and its group: that is one wish, not two

STOP_DEADLINE_S: Final = 15.0
"""From SIGTERM until we leave whatever a broker or server keeps us waiting for. Leaving at any moment is safe."""


def run_capture(config: Config) -> None:
    """Run the daemon in this process until SIGTERM or SIGINT. Raises what needs a person, logged already.

    A second signal, or the deadline, ends the process at once: nothing is lost by that, the open Kafka transaction
    is aborted by the next start.
    """
    clock, metrics, stop = SystemClock(), Metrics(), threading.Event()
    status = Status(config.name, clock, metrics)
    _handle_signals(stop)
    web = WebServer(config.http.listen, status, metrics) if config.http.listen else None
    if web is not None:
        log.get().info("http_listening", port=web.port)
    try:
        Daemon(lambda: start(config, status, clock, stop), status, metrics, clock).run(stop)
    finally:
        if web is not None:
            web.close()


def sink_settings(config: Config, name: str) -> Warehouse:
    """The section of a sink. Raises UsageError with what there is."""
    if name not in config.sinks:
        known = ", ".join(sorted(config.sinks))
        raise UsageError(
            f"there is no sink {name!r} in the configuration",
            hint=f"it has {known}" if known else "add a table [sinks.NAME]",
        )
    return config.sinks[name]


def verify_sink(
    config: Config, name: str, tables: Sequence[str], progress: Progress
) -> tuple[Manifest, list[MirrorReport]]:
    """Compare a sink with the topics, as of the cut it is at; also says which cut that is."""
    settings = sink_settings(config, name)
    from sinks.warehouse.start import verify

    return verify(config, settings, tables, machine=Machine.here(), progress=progress)


def run_sink(config: Config, name: str, progress: Progress) -> None:
    """Run a sink in this process until SIGTERM or SIGINT. Raises what needs a person, logged already."""
    sink_settings(config, name)
    from sinks.warehouse.start import start as start_lake

    clock, metrics, stop, machine = SystemClock(), Metrics(), threading.Event(), Machine.here()
    status = Status(f"{config.name}.{name}", clock, metrics)
    _handle_signals(stop)
    Daemon(
        lambda: start_lake(config, name, clock, machine=machine, progress=progress), status, metrics, clock, what="sink"
    ).run(stop)


def _handle_signals(stop: threading.Event) -> None:
    def leave() -> None:
        log.get().warning("stop_deadline_passed", seconds=STOP_DEADLINE_S)
        os._exit(EXIT_OK)

    first_s: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        now_s = time.monotonic()
        if first_s and now_s - first_s[0] > _SAME_SIGNAL_S:
            os._exit(EXIT_OK)
        if first_s:
            return
        first_s.append(now_s)
        stop.set()
        timer = threading.Timer(STOP_DEADLINE_S, leave)
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
