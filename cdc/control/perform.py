"""Performs the action of a request and records it, for the command line and for HTTP.

The record is written after the action and before its answer. A process that is killed in between leaves none.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, assert_never

from cdc.clock import Clock, SystemClock
from cdc.config.settings import Config
from cdc.control import action_log
from cdc.control.action_record import ActionRecord, Actor, Result, error_of
from cdc.control.requests import (
    ActionRequest,
    ConfigReload,
    DdlAccept,
    DeadLettersRetry,
    DeadLettersSkip,
    LogLevel,
    SinkPause,
    SinkResume,
    SnapshotPause,
    SnapshotResume,
    SnapshotStart,
    SnapshotStop,
    ViewRollback,
    ViewSwap,
    action_of,
    recorded_arguments,
)
from cdc.control.terminal import Declined, Done, Terminal
from cdc.errors import ConfigError, SinkBehind, TailraceError, UsageError

Write = Callable[[Config, ActionRecord], object]
"""Writes a record; raises TailraceError."""

Reload = Callable[[], Mapping[str, Any]]
"""Reloads the configuration of this process, and returns the keys that it applied and those that need a restart."""

_OF_HTTP: Final = Terminal()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request.

    Attributes:
        facts: of an action without an error, for the answer.
        error: why it did not succeed.
        warning: why it is not recorded; empty if it is.
    """

    action: str
    result: Result
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: TailraceError | None = None
    warning: str = ""


def perform(
    config: Config,
    request: ActionRequest,
    actor: Actor,
    *,
    terminal: Terminal = _OF_HTTP,
    write: Write = action_log.write,
    clock: Clock | None = None,
    reload: Reload | None = None,
    sink: str = "",
) -> Outcome:
    """Perform the action and record it, also if it is refused or fails.

    `reload` is that of this process, if it is capture or a sink. `sink` names the sink whose process this is: it
    performs only actions on itself, and their records name it.

    Raises `Declined` if the operator answers no, and what is not a TailraceError, for example at Ctrl-C; the latter is
    recorded too.
    """

    def record(result: Result, error: BaseException | None = None) -> str:
        at = datetime.fromtimestamp((clock or SystemClock()).wall_s(), UTC).isoformat(timespec="milliseconds")
        entry = ActionRecord(
            at=at,
            who=actor.who,
            origin=actor.origin,
            via=actor.via,
            action=action_of(request),
            arguments=({"sink": sink} if sink else {}) | recorded_arguments(request),
            result=result,
            error=None if error is None else error_of(error),
        )
        try:
            write(config, entry)
        except TailraceError as failure:
            return f"this action is not in the topic of actions: {failure.message}"
        return ""

    try:
        if sink:
            _refuse_of_capture(request, sink)
        done = _act(config, request, terminal, reload)
    except Declined:
        raise
    except TailraceError as error:
        result = _result_of(error)
        return Outcome(action_of(request), result, error=error, warning=record(result, error))
    except BaseException as error:
        record("failed", error)
        raise
    return Outcome(action_of(request), done.result, done.facts, warning=record(done.result))


def cli_actor() -> Actor:
    """Return the actor of this process: the user by its id, because the environment can name another one."""
    try:
        who = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user of a container without an entry
        who = f"uid {os.getuid()}"
    return Actor(who, f"{socket.gethostname()} pid {os.getpid()}", "cli")


def _refuse_of_capture(request: ActionRequest, sink: str) -> None:
    if not isinstance(request, LogLevel | ConfigReload):
        raise UsageError(
            f"the process of sink {sink!r} does not perform {action_of(request)}",
            hint="it performs only config.reload and log.level; send other actions to capture, at http.listen",
        )


def _act(config: Config, request: ActionRequest, terminal: Terminal, reload: Reload | None) -> Done:
    """Each action is imported when it is needed: a command must start quickly."""
    match request:
        case SinkPause() | SinkResume():
            from cdc.control import sink_actions

            if isinstance(request, SinkPause):
                return sink_actions.pause(config, request, terminal.wait_s)
            return sink_actions.resume(config, request)
        case SnapshotStart() | SnapshotPause() | SnapshotResume() | SnapshotStop():
            from cdc.control import snapshot_actions

            return snapshot_actions.send(config, request, terminal)
        case DeadLettersRetry() | DeadLettersSkip():
            from cdc.control import dead_letter_actions

            return dead_letter_actions.send(config, request, terminal)
        case DdlAccept():
            from cdc.control import ddl_actions

            return ddl_actions.accept(config, request, terminal)
        case ViewSwap() | ViewRollback():
            from cdc.control import view_actions

            return view_actions.switch(config, request, terminal)
        case LogLevel():
            from cdc.telemetry import log

            log.set_level(request.level)
            return Done("done", {})
        case ConfigReload():
            if reload is None:
                raise UsageError("this process has no configuration to reload", command="cdc reload")
            return Done("done", reload())
        case _:
            assert_never(request)


def _result_of(error: TailraceError) -> Result:
    if isinstance(error, UsageError | ConfigError):
        return "refused"
    # The pause stays in effect: workers stop when they read it.
    return "requested" if isinstance(error, SinkBehind) else "failed"
