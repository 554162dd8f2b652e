"""The records of a pause in the sink's state topic: the request, and the acknowledgement of each worker.

``{"control":"pause"}`` -> ``{"pause":id}`` requests a pause; resuming removes it. With ``"until_ms"`` it expires at
that time unless it is renewed, because a command that pauses for a moment may be killed.
``{"control":"paused","member":m}`` -> ``{"pause":id}`` acknowledges: the worker has committed and applies nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from cdc.clock import Clock
from sinks.state.state_topic import StateEntries, check_control

PAUSE_KEY: Final = b'{"control":"pause"}'


def is_control(key: bytes) -> bool:
    """Whether a record concerns the sink as a whole, and not one of its keys."""
    return key.startswith(b'{"control":')


def paused_key(member: str) -> bytes:
    """Return the key of a worker's acknowledgement."""
    return json.dumps({"control": "paused", "member": member}, separators=(",", ":")).encode()


def pause_value(pause: str, until_ms: int = 0) -> bytes:
    """Return the value of a request or an acknowledgement."""
    until = {"until_ms": until_ms} if until_ms else {}
    return json.dumps({"pause": pause, **until}, separators=(",", ":")).encode()


def until_ms(value: bytes | None) -> int:
    """Return when a pause expires, in ms since 1970; 0: it does not expire."""
    if value is None or pause_of(value) is None:
        return 0
    found = json.loads(value).get("until_ms", 0)
    return found if isinstance(found, int) else 0


def holds(value: bytes | None, clock: Clock) -> str | None:
    """Return the id of a pause; None when it has expired."""
    until = until_ms(value)
    return None if until and clock.wall_s() * 1000 > until else pause_of(value)


def pause_of(value: bytes | None) -> str | None:
    """Return the id of the pause in a value. Raises SinkUnfit if a newer release wrote it."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    check_control(found)
    return str(found["pause"]) if isinstance(found, dict) and "pause" in found else None


def paused_members(entries: Iterable[tuple[bytes, bytes | None]], pause: str) -> set[str]:
    """Return the members that have acknowledged this pause."""
    members: set[str] = set()
    for key, value in entries:
        name = json.loads(key)
        if isinstance(name, dict) and name.get("control") == "paused" and pause_of(value) == pause:
            members.add(str(name["member"]))
    return members


class WorkerPause:
    """The worker's side of a pause. One thread."""

    def __init__(self, state: StateEntries, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._wish = state.load().get(PAUSE_KEY)
        self._acknowledged: bytes | None = None

    def look(self) -> str | None:
        """Return the id of the current pause; None: not paused. Raises BrokerUnreachable."""
        for key, value in self._state.new():
            if key == PAUSE_KEY:
                self._wish = value
        return holds(self._wish, self._clock)

    def report_paused(self, member: str) -> None:
        """Acknowledge the pause: this worker has committed and applies nothing."""
        pause = pause_of(self._wish)
        if pause is not None:
            entry, before = paused_key(member), self._acknowledged
            forgotten = [(before, None)] if before not in {None, entry} else []
            self._acknowledged = entry
            self._state.put([*forgotten, (entry, pause_value(pause))])

    def report_running(self) -> None:
        """Withdraw the acknowledgement: this worker runs again, or ends."""
        if self._acknowledged is not None:
            self._state.put([(self._acknowledged, None)])
            self._acknowledged = None
