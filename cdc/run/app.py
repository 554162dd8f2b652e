"""Builds and runs the processes of capture and sinks: composition root, signals, HTTP.

This is the only module that names every concrete class.
"""

from __future__ import annotations

import contextvars
import ctypes
import gc
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from cdc.artifacts.download_progress import Progress
from cdc.artifacts.machine import Machine
from cdc.clock import Clock, SystemClock
from cdc.config.reloadable import ACCESS
from cdc.config.settings import Config, Warehouse
from cdc.config.shown import settings_shown
from cdc.config.sink_kinds import applied_of, lake_of, sink_of
from cdc.control.action_log import read_newest
from cdc.control.perform import perform
from cdc.errors import UsageError
from cdc.kafka.sasl_rotation import rotation
from cdc.notify.notifier import Notifier
from cdc.overview.desk import Desk
from cdc.overview.objective_watch import ObjectiveWatch
from cdc.run.daemon import Capture, Daemon
from cdc.run.part import ALONE, Part
from cdc.run.reload import HangUps, Reloader, by_signal, followed, of_sink, passed_on, pending, reading
from cdc.run.reload import facts as reload_facts
from cdc.run.shutdown import Shutdown
from cdc.run.stop_note import stops_recorded
from cdc.run.supervisor import Launch, Supervisor
from cdc.startup.protocol import start
from cdc.startup.wal_guard import WalGuard
from cdc.telemetry import log
from cdc.telemetry.capture_status import Status
from cdc.telemetry.exposition import Rendered, Reported, report_broken_threads
from cdc.telemetry.lake_status import LakeStatus
from cdc.telemetry.metrics import LakeMetrics, Metrics
from cdc.telemetry.runner_metrics import RunnerMetrics
from cdc.telemetry.runner_status import RunnerStatus
from cdc.telemetry.spans import Sampler, SinkTracing, SpanOutlet
from cdc.telemetry.supervised_sinks import WithSinks
from cdc.web.access import Access
from cdc.web.actions_endpoint import ActionsRoute
from cdc.web.http_server import WebServer
from cdc.web.wait_endpoint import WaitRoute
from sinks.operate.lsn_wait import SinkProbe
from sinks.state.report_sender import heartbeats, pipe_reports

if TYPE_CHECKING:
    from cdc.config.config_file import ConfigFile
    from sinks.compose import Replay
    from sinks.warehouse.lake.location import Location
    from sinks.warehouse.lake.manifest import Manifest
    from sinks.warehouse.read.lake_reader import At
    from sinks.warehouse.read.view_check import ViewReport
    from sinks.warehouse.verify.mirror_check import MirrorReport
    from sinks.warehouse.views.definition import ViewFiles

STOP_DEADLINE_S: Final = 15.0
"""From SIGTERM until the process exits, even if it still waits for a broker or server. An exit at any time is safe."""

SINK_STOP_DEADLINE_S: Final = 50.0
"""STOP_DEADLINE_S of a sink, which may finish its current cut; shorter than `cdc.run.supervisor.END_DEADLINE_S`."""

_GC_THRESHOLD: Final = (50_000, 20, 100)
_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h
_SINK_CATCHING_UP_S: Final = 30.0  # a cut under load takes seconds; a sink that lags for half a minute is behind


def run_capture(
    config: Config, *, sinks: Launch | None = None, file: ConfigFile | None = None, part: Part = ALONE
) -> None:
    """Run capture in this process until SIGTERM or SIGINT. Raises errors that need an operator, after logging them.

    `file` is the configuration file, for the page that shows where a setting comes from.

    A second signal, or the deadline, ends the process at once. Nothing is lost: the next start aborts the open Kafka
    transaction. With `sinks`, every configured sink runs in a child process and ends with capture, for any reason.
    `part` is what a parent process that runs several pipelines asks for. Raises UsageError if no sink is configured.
    """
    if sinks is not None and not config.sinks:
        raise UsageError("--with-sinks needs a sink, but none is configured", hint="add a table [sinks.NAME]")
    if config.outbox is not None:
        _collect_rarely()  # each event has a list of headers
    _share_one_heap()
    report_broken_threads()
    clock, metrics, stop = SystemClock(), Metrics(config.name), threading.Event()
    status = Status(config.name, clock, metrics)
    shutdown = Shutdown(stop, deadline_s=STOP_DEADLINE_S)
    if part.until_eof:
        shutdown.at_eof()
    with ExitStack() as closing:
        probes = {name: sink_probe(config, name, closing) for name in config.sinks}
        report: tuple[Reported, Rendered] = (status, metrics)
        supervisor = None if sinks is None else Supervisor(config.sinks, sinks, clock)
        if supervisor is not None:
            needed = config.http.ready_needs_sinks
            both = WithSinks(status, metrics, supervisor.views, pipeline=config.name, ready_needs_sinks=needed)
            report = (both, both)
        closing.enter_context(pipe_reports(report[0].snapshot, clock, part.report_fd))
        status.spans = _exported(config, "capture", metrics, report[1], clock, closing)
        reloader, access = Reloader(config, reading(config, file)), Access.of(config.http)
        listen = config.http.listen
        if part.http_socket is not None:
            listen, access = part.http_socket, replace(access, certificate="", key="")  # the parent has them
        performed = partial(perform, config, reload=lambda: reload_facts(reloader.reload()))
        desk = None
        if listen or config.notify:
            desk = closing.enter_context(_desk(reloader, report[0], clock, status, file))
            closing.enter_context(reloader.followed_by(desk.adopt))
        actions = ActionsRoute(performed, partial(read_newest, config))
        _serve(listen, report, probes, clock, closing, access=access, actions=actions, desk=desk)
        _adopting(reloader, access, closing)
        if supervisor is not None:
            closing.enter_context(supervisor)
            shutdown.last = supervisor.close
            closing.enter_context(reloader.followed_by(passed_on(config, supervisor.views)))
        # The guard lives as long as the process, not as long as the stream: WAL piles up when nothing reads the slot.
        closing.enter_context(ObjectiveWatch(config, status, clock, None if supervisor is None else supervisor.views))
        guard = WalGuard(config, clock, status)
        guard.start()
        closing.callback(guard.close)
        if desk is not None:
            # Among the first to end: troubles vanish from the list when capture stops, and are not resolved by that.
            notifier = Notifier(config.notify, config.name, desk.attention, status.notify, clock)
            closing.enter_context(notifier)
        closing.enter_context(reloader.followed_by(guard.adopt))
        HangUps(by_signal(performed), shutdown.request)
        closing.callback(shutdown.work_ended)

        def begin() -> Capture:
            return followed(reloader, guard.guarded(lambda: start(reloader.config, status, clock, stop)))

        with stops_recorded(config, clock):
            Daemon(begin, status, metrics, clock).run(stop)


def _desk(reloader: Reloader, report: Reported, clock: Clock, status: Status, file: ConfigFile | None) -> Desk:
    raw, environ = (file.raw, file.environ) if file is not None else ({}, os.environ)
    return Desk(
        reloader.config,
        report,
        clock,
        left_out=lambda: status.left_out.tables,
        settings=lambda: settings_shown(reloader.config, raw, environ),
        pending=lambda: pending(reloader),
        file=file.path if file is not None else None,
    )


def sink_probe(config: Config, name: str, closing: ExitStack) -> SinkProbe:
    """Return the queries that wait requests need from a sink, usable until `closing`. Raises UsageError."""
    settings = sink_of(config, name)
    from sinks.waiting import applied_probe, lake_probe

    if isinstance(settings, Warehouse):
        return lake_probe(config, name, settings, closing)
    return applied_probe(config, name, settings, closing)


def verify_sink(
    config: Config, name: str, tables: Sequence[str], progress: Progress
) -> tuple[Manifest, list[MirrorReport]]:
    """Compare a warehouse with the topics as of its newest cut. Returns the cut's manifest and the reports."""
    settings = lake_of(config, name)
    from sinks.warehouse.start import verify

    return verify(config, settings, tables, machine=Machine.here(), progress=progress)


def check_lake_views(
    location: Location, files: ViewFiles, names: Sequence[str], *, at: At, progress: Progress
) -> tuple[int, list[ViewReport]]:
    """Compare views of a lake with their queries; without `names`, all views. Returns the cut and the reports."""
    from sinks.warehouse.start import check

    return check(location, files, names, at=at, machine=Machine.here(), progress=progress)


def run_sink(
    config: Config,
    name: str,
    progress: Progress,
    *,
    master: str | None = None,
    until_eof: bool = False,
    report_fd: int | None = None,
    file: ConfigFile | None = None,
) -> None:
    """Run a warehouse sink in this process until SIGTERM or SIGINT. Raises errors that need an operator, after logging.

    `master` replaces the configured Spark master. With `until_eof`, the end of standard input also stops the sink, so
    it ends with the process that holds the other side. Reports go to `report_fd`, see `sinks.state.report_sender`.
    """
    again = reading(config, file)
    reloader = _of_sink(_with_master(config, name, master), name, lambda: _with_master(again(), name, master))
    config, access = reloader.config, Access.of(config.http)
    settings = lake_of(config, name)
    from sinks.warehouse.spark.spark_session import close_open_session
    from sinks.warehouse.start import start as start_lake

    report_broken_threads()
    clock, daemon_metrics, stop, machine = SystemClock(), Metrics(config.name), threading.Event(), Machine.here()
    catching_up_s = _SINK_CATCHING_UP_S + 2 * settings.interval_s
    daemon_status = Status(f"{config.name}.{name}", clock, daemon_metrics, catching_up_s=catching_up_s)
    metrics = LakeMetrics(daemon_metrics, name)
    status = LakeStatus(daemon_status, metrics, clock)
    shutdown = Shutdown(stop, deadline_s=SINK_STOP_DEADLINE_S)
    if until_eof:
        shutdown.at_eof()
    with ExitStack() as closing:
        closing.callback(close_open_session)
        tracing = _tracing(config, name, _exported(config, name, daemon_metrics, metrics, clock, closing), clock)
        _serve(
            settings.listen,
            (status, metrics),
            {name: sink_probe(config, name, closing)},
            clock,
            closing,
            f"sinks.{name}.listen",
            access=access,
            actions=_own_actions(reloader, name),
        )
        _adopting(reloader, access, closing)
        HangUps(reloader.reload, shutdown.request)
        closing.enter_context(heartbeats(config, name, status.snapshot, clock, worker="driver", report_fd=report_fd))
        closing.callback(shutdown.work_ended)
        Daemon(
            lambda: start_lake(
                config, name, clock, machine=machine, progress=progress, observer=status, tracing=tracing
            ),
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
    file: ConfigFile | None = None,
) -> None:
    """Like `run_sink`, for search and cache. `instance` identifies the worker in its group across restarts."""
    from sinks.compose import replayed, start_applied

    again, of = reading(config, file), name
    config, name = replayed(config, name, replay)
    reloader, access = _of_sink(config, name, lambda: replayed(again(), of, replay)[0]), Access.of(config.http)
    settings = applied_of(config, name)
    _collect_rarely()
    _share_one_heap()
    report_broken_threads()
    clock, daemon_metrics, stop = SystemClock(), Metrics(config.name), threading.Event()
    daemon_status = Status(f"{config.name}.{name}", clock, daemon_metrics, catching_up_s=_SINK_CATCHING_UP_S)
    metrics = RunnerMetrics(daemon_metrics, name)
    status = RunnerStatus(daemon_status, metrics, clock)
    shutdown = Shutdown(stop, deadline_s=SINK_STOP_DEADLINE_S)
    if until_eof:
        shutdown.at_eof()
    with ExitStack() as closing:
        probes = {name: sink_probe(config, name, closing)}
        tracing = _tracing(config, name, _exported(config, name, daemon_metrics, metrics, clock, closing), clock)
        _serve(
            settings.listen,
            (status, metrics),
            probes,
            clock,
            closing,
            f"sinks.{name}.listen",
            access=access,
            actions=_own_actions(reloader, name),
        )
        _adopting(reloader, access, closing)
        HangUps(reloader.reload, shutdown.request)
        closing.enter_context(heartbeats(config, name, status.snapshot, clock, worker=instance, report_fd=report_fd))
        closing.callback(shutdown.work_ended)
        Daemon(
            lambda: start_applied(
                config, name, clock, observer=status, replay=replay, instance=instance, tracing=tracing
            ),
            daemon_status,
            daemon_metrics,
            clock,
            what="sink",
        ).run(stop)


def _exported(
    config: Config, process: str, metrics: Metrics, rendered: Rendered, clock: Clock, closing: ExitStack
) -> SpanOutlet | None:
    """Export metrics, and what is emitted, by OTLP until `closing`; None if that is off."""
    if not config.otel.enabled:
        return None
    from cdc.telemetry.otel.export import OtlpExport

    interval_s = config.otel.interval_s
    return closing.enter_context(
        OtlpExport(config.name, process, rendered.render, metrics, clock, interval_s=interval_s)
    )


def _tracing(config: Config, sink: str, outlet: SpanOutlet | None, clock: Clock) -> SinkTracing | None:
    if outlet is None:
        return None
    return SinkTracing(config.name, sink, Sampler(config.name, config.otel.sample_ratio), outlet, clock)


def _adopting(reloader: Reloader, access: Access, closing: ExitStack) -> None:
    """Let what every process has take over a reload, until `closing`: access by HTTP, and passwords of Kafka."""
    closing.enter_context(reloader.followed_by(access.adopt))
    closing.enter_context(reloader.followed_by(lambda _: rotation().reloaded()))


def _of_sink(config: Config, name: str, load: Callable[[], Config]) -> Reloader:
    """Return the reloader of a sink: only its HTTP endpoints take over settings while it runs."""
    return Reloader(config, load, reloadable=ACCESS, concerns=of_sink(name))


def _own_actions(reloader: Reloader, sink: str) -> ActionsRoute:
    """Return the actions that the process of a sink performs on itself."""
    config, bound = reloader.config, contextvars.copy_context()  # what is bound to the log, for threads of HTTP
    performed = partial(perform, config, sink=sink, reload=lambda: reload_facts(bound.copy().run(reloader.reload)))
    return ActionsRoute(performed, partial(read_newest, config))


def _collect_rarely() -> None:
    """Collect garbage rarely: scanning tens of thousands of records, none in a cycle, took a quarter of the CPU."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLD)


def _share_one_heap() -> None:
    """Let all threads allocate from one heap, before they start.

    Otherwise each thread of the Kafka clients has a heap of its own, which keeps what its busiest moment needed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it; other C libraries have one heap anyway
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)


def _with_master(config: Config, name: str, master: str | None) -> Config:
    settings = lake_of(config, name)
    if master is None:
        return config
    return structs.replace(config, sinks={**config.sinks, name: structs.replace(settings, master=master)})


def _serve(
    listen: str,
    report: tuple[Reported, Rendered],
    probes: Mapping[str, SinkProbe],
    clock: Clock,
    closing: ExitStack,
    setting: str = "http.listen",
    *,
    access: Access,
    actions: ActionsRoute | None = None,
    desk: Desk | None = None,
) -> None:
    """Serve HTTP until `closing`. Does nothing if `listen` is empty."""
    if not listen:
        return
    status, metrics = report
    waits = WaitRoute(probes, clock)
    web = WebServer(listen, status, metrics, waits=waits, actions=actions, desk=desk, setting=setting, access=access)
    closing.callback(web.close)
    if web.port:  # else the parent process listens
        log.get().info("http_listening", port=web.port)
