"""Reads the configuration again while a process runs, and hands it what can change (`cdc.config.reloadable`).

Nothing changes if the file or the environment is not valid: the process goes on with what it has.
"""

from __future__ import annotations

import contextvars
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from cdc.config.reloadable import RELOADABLE, Changes, changes, merged
from cdc.control.action_record import Actor
from cdc.control.requests import ConfigReload
from cdc.errors import TailraceError
from cdc.telemetry import log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cdc.config.config_file import ConfigFile
    from cdc.config.settings import Config
    from cdc.control.perform import Outcome
    from cdc.run.supervisor import ChildView

Adopt = Callable[["Config"], None]
"""Takes over a configuration that differs from the last one in reloadable settings only."""

_TERMINAL: Final = "/dev/tty"


class Reloader:
    """Holds the configuration in use. Thread-safe."""

    def __init__(
        self,
        config: Config,
        load: Callable[[], Config],
        *,
        reloadable: Iterable[str] = RELOADABLE,
        concerns: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`load` reads the file and the environment again, and raises ConfigError.

        `concerns` says whether the process uses a setting at all.
        """
        self._config = config
        self._load = load
        self._reloadable = frozenset(reloadable)
        self._concerns = concerns
        self._lock = threading.Lock()
        self._adopting: list[Adopt] = []

    @property
    def config(self) -> Config:
        """The configuration in use."""
        return self._config

    @contextmanager
    def followed_by(self, adopt: Adopt) -> Iterator[None]:
        """Call `adopt` with the configuration in use, and after each reload in the block."""
        with self._lock:
            adopt(self._config)
            self._adopting.append(adopt)
        try:
            yield
        finally:
            with self._lock:
                self._adopting.remove(adopt)

    def pending(self) -> Changes:
        """Return what a reload would do now. Raises ConfigError."""
        return self._changes(self._load())

    def reload(self) -> Changes:
        """Take over what can change while the process runs. Raises ConfigError, and changes nothing then."""
        with self._lock:
            try:
                new = self._load()
            except TailraceError as error:
                log.get().error("config_reload_failed", **log.error_fields(error))
                raise
            found = self._changes(new)
            self._config = merged(self._config, new, found.applied)
            for adopt in self._adopting:
                adopt(self._config)
        log.get().info("config_reloaded", applied=list(found.applied), restart=list(found.restart))
        return found

    def _changes(self, new: Config) -> Changes:
        found = changes(self._config, new, self._reloadable)
        return Changes(found.applied, tuple(filter(self._concerns, found.restart)))


def of_sink(name: str) -> Callable[[str], bool]:
    """Return whether the process of a sink uses a setting."""
    own = ("name", "kafka.", "encode.", "http.", "otel.", f"sinks.{name}.")
    return lambda key: key.startswith(own)


def facts(found: Changes) -> dict[str, Any]:
    """Return the document of a reload."""
    return {"applied": list(found.applied), "restart": list(found.restart)}


def pending(reloader: Reloader) -> dict[str, Any]:
    """Return for /api/config what a reload would do, or why it would fail."""
    try:
        found = reloader.pending()
    except TailraceError as error:
        return {"error": error.message}
    return {"reload": list(found.applied), "restart": list(found.restart)}


def followed(reloader: Reloader, running: Any) -> _Followed:
    """Return a capture that takes over new settings until it is closed."""
    return _Followed(running, reloader.followed_by(running.adopt))


def passed_on(config: Config, sinks: Callable[[], Iterable[ChildView]]) -> Adopt:
    """Return what lets the processes of sinks reload, too, when a setting changes that they take over."""
    used = config.http

    def adopt(now: Config) -> None:
        nonlocal used
        if now.http == used:
            return
        used = now.http
        for view in sinks():
            if view.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(view.pid, signal.SIGHUP)

    return adopt


class _Followed:
    """Implements `cdc.run.daemon.Capture`."""

    def __init__(self, running: Any, following: AbstractContextManager[None]) -> None:
        self._running = running
        self._following = following
        following.__enter__()

    def run(self, stop: threading.Event) -> None:
        self._running.run(stop)

    def close(self) -> None:
        self._following.__exit__(None, None, None)
        self._running.close()


class HangUps:
    """Reloads at SIGHUP, in a thread; or stops, if the signal means that the terminal of the process was closed.

    Create it in the main thread. Under nohup, which ignores the signal, it always reloads.
    """

    def __init__(self, reload: Callable[[], object], stop: Callable[[], None]) -> None:
        """`reload` logs and raises only TailraceError."""
        self._reload = reload
        self._stop = stop
        self._asked: queue.SimpleQueue[int] = queue.SimpleQueue()  # a handler may put while it is in use
        self._on_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        run = partial(contextvars.copy_context().run, self._run)  # what is bound to the log, such as the sink
        threading.Thread(target=run, name="reload", daemon=True).start()
        signal.signal(signal.SIGHUP, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        if self._on_terminal and not _has_terminal():
            self._stop()
        else:
            self._asked.put(number)

    def _run(self) -> None:
        while self._asked.get():
            try:
                self._reload()
            except TailraceError:
                continue  # it is logged
            except Exception as error:  # noqa: BLE001 - the thread goes on; the process must not lose reloads
                log.get().error("config_reload_failed", error=log.origin(error))


def by_signal(perform: Callable[[ConfigReload, Actor], Outcome]) -> Callable[[], None]:
    """Return a reload that is recorded as an action of this process."""

    def reload() -> None:
        outcome = perform(ConfigReload(), Actor("SIGHUP", f"{socket.gethostname()} pid {os.getpid()}", "signal"))
        if outcome.warning:
            log.get().warning("action_not_recorded", action=outcome.action, reason=outcome.warning)

    return reload


def reading(config: Config, file: ConfigFile | None) -> Callable[[], Config]:
    """Return a function that reads `file` and the environment of this process again; without a file, `config`."""
    return file.load if file is not None else lambda: config


def _has_terminal() -> bool:
    try:
        os.close(os.open(_TERMINAL, os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
