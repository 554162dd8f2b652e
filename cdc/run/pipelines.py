"""Runs the pipelines of one file, each in a process of its own, and serves HTTP for all of them.

No pipeline stops another one (`cdc.run.supervisor`). A process serves HTTP on a Unix socket in a folder that only this
user can enter, and this process passes requests on to it (`cdc.web.pipeline_routes`). This process reads no row and
connects to no server.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from cdc.clock import SystemClock
from cdc.config.config_file import ConfigFile
from cdc.config.load import load_all
from cdc.config.pipelines import scoped
from cdc.config.settings import Config
from cdc.errors import EXIT_OK, ConfigError, TailraceError, UsageError
from cdc.run.child_process import ChildProcess
from cdc.run.reload import HangUps
from cdc.run.shutdown import Shutdown
from cdc.run.supervisor import END_DEADLINE_S, PIPELINE, Supervisor
from cdc.telemetry import log
from cdc.telemetry.exposition import report_broken_threads
from cdc.web.access import Access
from cdc.web.http_server import HttpServer
from cdc.web.pipeline_routes import application

STOP_DEADLINE_S: Final = END_DEADLINE_S + 15.0
"""From SIGTERM until a process is killed: its sinks have END_DEADLINE_S, and capture 15 s before."""

_ENDED_EVERY_S: Final = 0.5
_SOCKET_BYTES_MAX: Final = 100  # the limit of the kernel is 108


def run_pipelines(configs: Mapping[str, Config], file: ConfigFile, flags: Sequence[str], *, with_sinks: bool) -> int:
    """Run until a signal, or until every pipeline has ended. Returns 0 after a signal, else their highest exit code.

    `configs` are all pipelines by name, and `flags` are options of their `cdc run`. Raises UsageError if none of them
    has a sink though `with_sinks` asks for them, and ConfigError if http.listen cannot be used.
    """
    if with_sinks and not any(config.sinks for config in configs.values()):
        raise UsageError(
            "--with-sinks needs a sink, but no pipeline has one",
            hint=f"add a table [pipelines.{min(configs)}.sinks.NAME]",
        )
    report_broken_threads()
    clock, stop, http = SystemClock(), threading.Event(), next(iter(configs.values())).http
    shutdown = Shutdown(stop, deadline_s=STOP_DEADLINE_S)
    with ExitStack() as closing:
        folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-", ignore_cleanup_errors=True))
        sockets = {name: str(Path(folder) / f"{number}.socket") for number, name in enumerate(configs)}
        _check_length(sockets)

        def launched(name: str) -> ChildProcess:
            own = ["--with-sinks"] if with_sinks and configs[name].sinks else []
            command = pipeline_command(name, file.path, [*flags, *own], sockets[name])
            # No process gets the variables of another pipeline: they hold its secrets.
            return ChildProcess(command, scoped(file.variables, name, list(configs)))

        supervisor = Supervisor(configs, launched, clock, kind=PIPELINE, end_deadline_s=STOP_DEADLINE_S)
        access = Access.of(http)
        if http.listen:
            web = HttpServer(
                http.listen,
                lambda on_loopback: application(supervisor.views, sockets, access, on_loopback=on_loopback),
                access=access,
            )
            closing.callback(web.close)
            log.get().info("http_listening", port=web.port)
        closing.enter_context(supervisor)
        HangUps(lambda: _reload(file, configs, supervisor, access), shutdown.request)
        closing.callback(shutdown.work_ended)
        log.get().info("pipelines_started", pipelines=list(configs))
        while not clock.wait(stop, _ENDED_EVERY_S):
            codes = supervisor.exit_codes()
            if codes is not None:
                log.get().error(
                    "pipelines_ended", exit_codes=dict(zip(sorted(configs), codes, strict=True)), exit_code=max(codes)
                )
                return max(codes)
    log.get().info("pipelines_finished")
    return EXIT_OK


def pipeline_command(name: str, path: Path, flags: Sequence[str], http_socket: str) -> list[str]:
    """Return the command that runs one pipeline as a part of this process."""
    command = [sys.executable, "-m", "cdc", "run", "-c", str(path), "--pipeline", name, "--until-eof"]
    return [*command, "--http-socket", http_socket, *flags]


def _reload(file: ConfigFile, configs: Mapping[str, Config], supervisor: Supervisor, access: Access) -> None:
    """Let every process read its configuration again, and start those that ended. Raises ConfigError."""
    try:
        now = load_all(file.path, file.variables)
    except TailraceError as error:
        log.get().error("config_reload_failed", **log.error_fields(error))
        raise
    added, removed = sorted(now.keys() - configs.keys()), sorted(configs.keys() - now.keys())
    if added or removed:
        log.get().warning(
            "pipelines_changed", added=added, removed=removed, hint="restart `cdc run` to start and stop pipelines"
        )
    if now:
        access.adopt(next(iter(now.values())))
    for view in supervisor.views():
        # A process without a report may not handle the signal yet, which would end it. It has just read the file.
        if view.pid is not None and view.report is not None and view.report.pid == view.pid:
            with suppress(ProcessLookupError):
                os.kill(view.pid, signal.SIGHUP)
    supervisor.start_again()


def _check_length(sockets: Mapping[str, str]) -> None:
    longest = max(sockets.values(), key=len)
    if len(os.fsencode(longest)) > _SOCKET_BYTES_MAX:
        raise ConfigError(
            f"the folder for temporary files is too deep: {Path(longest).parent}",
            hint=f"set TMPDIR to a folder whose path is at most {_SOCKET_BYTES_MAX - 32} bytes long",
            command="TMPDIR=/tmp cdc run",
        )
