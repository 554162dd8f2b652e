"""The composition root: the only place that names every concrete class, and the process around the daemon."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import FrameType
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cdc.artifacts.download_progress import Progress
from cdc.artifacts.machine import Machine
from cdc.clock import Clock, SystemClock
from cdc.config.secret import Secret
from cdc.config.settings import Config, Warehouse
from cdc.config.sink_kinds import applied_of, lake_of, sink_of
from cdc.errors import EXIT_OK, UsageError
from cdc.lsn import Lsn
from cdc.run.daemon import Daemon
from cdc.run.supervisor import Launch, Supervisor
from cdc.startup.protocol import start
from cdc.startup.wal_guard import WalGuard
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status
from cdc.telemetry.exposition import report_broken_threads
from cdc.telemetry.lake_status import LakeStatus
from cdc.telemetry.metrics import LakeMetrics, Metrics
from cdc.telemetry.runner_metrics import RunnerMetrics
from cdc.telemetry.runner_status import RunnerStatus
from cdc.telemetry.supervised_sinks import WithSinks
from cdc.web.http_server import Rendered, Reported, WebServer
from cdc.web.wait_endpoint import WaitRoute
from sinks.operate.lsn_wait import AppliedCut, AppliedCutSource, SinkProbe
from sinks.state.report_sender import heartbeats

if TYPE_CHECKING:
    from sinks.compose import Replay
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Manifest
    from sinks.warehouse.read.lake_reader import At
    from sinks.warehouse.read.view_check import ViewReport
    from sinks.warehouse.verify.mirror_check import MirrorReport
    from sinks.warehouse.views.definition import View

_SAME_SIGNAL_S: Final = 1.0  # process managers signal the process and its group: that is one wish, not two

STOP_DEADLINE_S: Final = 15.0
"""From SIGTERM until we leave whatever a broker or server keeps us waiting for. Leaving at any moment is safe."""

SINK_STOP_DEADLINE_S: Final = 50.0
"""As STOP_DEADLINE_S for a sink, whose cut under way may take longer; below `cdc.run.supervisor.END_DEADLINE_S`."""

_GC_THRESHOLD: Final = (50_000, 20, 100)
_STDIN: Final = 0
_PIPE_BYTES: Final = 4096  # nobody sends any
_SINK_CATCHING_UP_S: Final = 30.0  # a cut under load takes seconds; half a minute without having been level is behind


def run_capture(config: Config, *, sinks: Launch | None = None) -> None:
    """Run the daemon in this process until SIGTERM or SIGINT. Raises what needs a person, logged already.

    A second signal, or the deadline, ends the process at once: nothing is lost by that, the open Kafka transaction
    is aborted by the next start. With `sinks` every sink of the configuration is kept running beside it, in a process
    that this starts; they end with capture, whatever the reason. Raises UsageError when there is none.
    """
    if sinks is not None and not config.sinks:
        raise UsageError("--with-sinks, and the configuration has no sinks", hint="add a table [sinks.NAME]")
    if config.outbox is not None:
        _collect_rarely()  # each event has a list of headers
    report_broken_threads()
    clock, metrics, stop = SystemClock(), Metrics(config.name), threading.Event()
    status = Status(config.name, clock, metrics)
    leaving = _Leaving(stop, deadline_s=STOP_DEADLINE_S)
    with ExitStack() as closing:
        sights = {name: sink_probe(config, name, closing) for name in config.sinks}
        report: tuple[Reported, Rendered] = (status, metrics)
        supervisor = None if sinks is None else Supervisor(config.sinks, sinks, clock)
        if supervisor is not None:
            both = WithSinks(status, metrics, supervisor.views, ready_needs_sinks=config.http.ready_needs_sinks)
            report = (both, both)
        _serve(config.http.listen, report, sights, clock, closing, token=config.http.token)
        if supervisor is not None:
            closing.enter_context(supervisor)
            leaving.last = supervisor.close
        guard = WalGuard(config, clock, status)
        guard.start()
        closing.callback(guard.close)
        closing.callback(leaving.is_over)
        Daemon(lambda: guard.guarded(lambda: start(config, status, clock, stop)), status, metrics, clock).run(stop)


def sink_probe(config: Config, name: str, closing: ExitStack) -> SinkProbe:
    """What is asked of a sink by who waits for it, until `closing`. Raises UsageError with what sinks there are."""
    settings = sink_of(config, name)
    if isinstance(settings, Warehouse):
        return SinkProbe(lake_probe(settings))
    from sinks.waiting import applied_probe

    return applied_probe(config, name, settings, closing)


def lake_probe(settings: Warehouse) -> AppliedCutSource:
    """How far a sink is, told by what it has published: its process need not run, or be on this machine."""
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import ManifestStore

    store = ManifestStore(Location.configured(settings))

    def look() -> AppliedCut | None:
        current = store.current()
        return None if current is None else AppliedCut(current.cut, Lsn(current.end_lsn))

    return look


def verify_sink(
    config: Config, name: str, tables: Sequence[str], progress: Progress
) -> tuple[Manifest, list[MirrorReport]]:
    """Compare a sink with the topics, as of the cut it is at; also says which cut that is."""
    settings = lake_of(config, name)
    from sinks.warehouse.start import verify

    return verify(config, settings, tables, machine=Machine.here(), progress=progress)


def check_lake_views(
    location: Location, views: Sequence[View], names: Sequence[str], *, at: At, progress: Progress
) -> tuple[int, list[ViewReport]]:
    """Compare views of a lake, all for no names, with their queries; also says at which cut."""
    from sinks.warehouse.start import check

    return check(location, views, names, at=at, machine=Machine.here(), progress=progress)


def run_sink(
    config: Config,
    name: str,
    progress: Progress,
    *,
    master: str | None = None,
    until_eof: bool = False,
    report_fd: int | None = None,
) -> None:
    """Run a warehouse sink in this process until SIGTERM or SIGINT. Raises what needs a person, logged already.

    `master` is a Spark master in place of the configured one. With `until_eof` the end of the standard input is a
    signal too: the sink ends with the process that holds the other side. Reports go to `report_fd`, see
    `sinks.state.report_sender`.
    """
    config = _with_master(config, name, master)
    settings = lake_of(config, name)
    from sinks.warehouse.spark.spark_session import close_open_session
    from sinks.warehouse.start import start as start_lake

    report_broken_threads()
    clock, daemon_metrics, stop, machine = SystemClock(), Metrics(config.name), threading.Event(), Machine.here()
    catching_up_s = _SINK_CATCHING_UP_S + 2 * settings.interval_s
    daemon_status = Status(f"{config.name}.{name}", clock, daemon_metrics, catching_up_s=catching_up_s)
    metrics = LakeMetrics(daemon_metrics, name)
    status = LakeStatus(daemon_status, metrics, clock)
    leaving = _Leaving(stop, deadline_s=SINK_STOP_DEADLINE_S)
    if until_eof:
        threading.Thread(target=_ask_at_eof, args=(leaving,), name="until-eof", daemon=True).start()
    with ExitStack() as closing:
        closing.callback(close_open_session)
        _serve(
            settings.listen,
            (status, metrics),
            {name: lake_probe(settings)},
            clock,
            closing,
            f"sinks.{name}.listen",
            token=config.http.token,
        )
        closing.enter_context(heartbeats(config, name, status.snapshot, clock, worker="driver", report_fd=report_fd))
        closing.callback(leaving.is_over)
        Daemon(
            lambda: start_lake(config, name, clock, machine=machine, progress=progress, observer=status),
            daemon_status,
            daemon_metrics,
            clock,
            what="sink",
        ).run(stop)


def run_applied(
    config: Config,
    name: str,
    *,
    until_eof: bool = False,
    replay: Replay | None = None,
    instance: str = "",
    report_fd: int | None = None,
) -> None:
    """As `run_sink`, for a sink that applies one key at a time. `instance`: its name in the group over restarts."""
    from sinks.compose import replayed, start_applied

    config, name = replayed(config, name, replay)
    settings = applied_of(config, name)
    _collect_rarely()
    report_broken_threads()
    clock, daemon_metrics, stop = SystemClock(), Metrics(config.name), threading.Event()
    daemon_status = Status(f"{config.name}.{name}", clock, daemon_metrics, catching_up_s=_SINK_CATCHING_UP_S)
    metrics = RunnerMetrics(daemon_metrics, name)
    status = RunnerStatus(daemon_status, metrics, clock)
    leaving = _Leaving(stop, deadline_s=SINK_STOP_DEADLINE_S)
    if until_eof:
        threading.Thread(target=_ask_at_eof, args=(leaving,), name="until-eof", daemon=True).start()
    with ExitStack() as closing:
        sights = {name: sink_probe(config, name, closing)}
        _serve(
            settings.listen, (status, metrics), sights, clock, closing, f"sinks.{name}.listen", token=config.http.token
        )
        closing.enter_context(heartbeats(config, name, status.snapshot, clock, worker=instance, report_fd=report_fd))
        closing.callback(leaving.is_over)
        Daemon(
            lambda: start_applied(config, name, clock, observer=status, replay=replay, instance=instance),
            daemon_status,
            daemon_metrics,
            clock,
            what="sink",
        ).run(stop)


def _collect_rarely() -> None:
    """Records wait by the ten thousand, none of them in a cycle: looking through them took a quarter of the CPU."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLD)


def _with_master(config: Config, name: str, master: str | None) -> Config:
    settings = lake_of(config, name)
    if master is None:
        return config
    return structs.replace(config, sinks={**config.sinks, name: structs.replace(settings, master=master)})


def _serve(
    listen: str,
    report: tuple[Reported, Rendered],
    looks: Mapping[str, AppliedCutSource | SinkProbe],
    clock: Clock,
    closing: ExitStack,
    setting: str = "http.listen",
    *,
    token: Secret | None,
) -> None:
    """Answer over HTTP until `closing`; nothing when `listen` is empty."""
    if not listen:
        return
    status, metrics = report
    web = WebServer(
        listen, status, metrics, waits=WaitRoute(looks, clock), setting=setting, token=token.reveal() if token else ""
    )
    closing.callback(web.close)
    log.get().info("http_listening", port=web.port)


class _Leaving:
    """Sets `stop` at the first signal; leaves at once at a second one, or when the deadline has passed.

    `last` is what has to be done even then. Made in the main thread, whose signals it takes.
    """

    def __init__(self, stop: threading.Event, *, deadline_s: float) -> None:
        self.last: Callable[[], None] = lambda: None
        self._stop = stop
        self._deadline_s = deadline_s
        self._first_s: float | None = None
        self._is_over = False
        self._timer: threading.Timer | None = None
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)
        atexit.register(_heed_no_more)

    def ask(self) -> None:
        """As a first signal; nothing when there was one."""
        if self._first_s is not None:
            return
        self._first_s = time.monotonic()
        self._stop.set()
        if not self._is_over:
            self._timer = threading.Timer(self._deadline_s, self._leave)
            self._timer.daemon = True
            self._timer.start()

    def is_over(self) -> None:
        """What the deadline was for has ended; what follows has one of its own."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        if self._first_s is not None and time.monotonic() - self._first_s > _SAME_SIGNAL_S:
            os._exit(EXIT_OK)
        self.ask()

    def _leave(self) -> None:
        log.get().warning("stop_deadline_passed", seconds=self._deadline_s)
        self.last()
        os._exit(EXIT_OK)


def _heed_no_more() -> None:
    """The interpreter, while it ends, gives signals back to the system, where they end us with another exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _ask_at_eof(leaving: _Leaving) -> None:
    # Not sys.stdin: a thread that waits in it keeps the interpreter from ending.
    with suppress(OSError):
        while os.read(_STDIN, _PIPE_BYTES):
            pass
    leaving.ask()
