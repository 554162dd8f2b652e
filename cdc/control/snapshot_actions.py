"""Requests the start, pause, resumption and stop of snapshots, with a signal to capture."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from cdc.config.settings import Config
from cdc.control.requests import SnapshotPause, SnapshotRequest, SnapshotResume, SnapshotStart, SnapshotStop
from cdc.control.terminal import Done, Terminal
from cdc.errors import UsageError
from cdc.inspect.snapshot_state import ask
from snapshot.condition import ConditionError, parse
from snapshot.signal_parsing import Signal, SignalError, key_of

if TYPE_CHECKING:
    from snapshot.signal_parsing import Action

_ACTIONS: Final[dict[type[SnapshotRequest], Action]] = {
    SnapshotStart: "start",
    SnapshotPause: "pause",
    SnapshotResume: "resume",
    SnapshotStop: "stop",
}


def send(config: Config, request: SnapshotRequest, terminal: Terminal) -> Done:
    """Write the signal; capture answers it when it runs. The facts have its `offset` in the topic of signals.

    Raises UsageError for an invalid condition or key, or when capture does not read signals.
    """
    action = _ACTIONS[type(request)]
    signal = _start(request) if isinstance(request, SnapshotStart) else Signal(_new_id(), action, request.tables or ())
    if not config.signals.enabled:
        raise UsageError(
            "capture does not read signals: [signals] enabled is false",
            hint="set it to true, restart capture, and run the command again",
        )
    with terminal.reading():
        return Done("requested", {"offset": ask(config, signal)})


def _start(request: SnapshotStart) -> Signal:
    if request.keys is UNSET:
        where = "" if request.where is UNSET else request.where
        if request.where is not UNSET:
            check_where(where)
        return Signal(_new_id(), "start", request.tables, where=where)
    if request.where is not UNSET:
        raise UsageError("where and keys cannot be combined", hint="give one of them")
    try:
        keys = tuple(dict.fromkeys(key_of(bytes(key)) for key in request.keys))
    except SignalError as error:
        raise UsageError(str(error), hint='expected JSON objects, e.g. {"id":7}') from None
    return Signal(_new_id(), "start", request.tables, keys=keys)


def _new_id() -> str:
    return uuid.uuid4().hex


def check_where(where: str) -> None:
    """Refuse a condition that capture would refuse. The error does not quote it. Raises UsageError."""
    try:
        parse(where)
    except ConditionError as error:
        raise UsageError(
            f"invalid --where: {error}",
            hint="compare columns with literals (=, <>, <, <=, >, >=, IN, BETWEEN, IS NULL); combine by AND, OR, NOT",
            command="cdc snapshot start public.orders --where \"id >= 100 and status = 'open'\"",
        ) from None
