"""Whether a sink is paused, and who has heard of it: records in the sink's state topic, so that it lasts.

``{"control":"pause"}`` -> ``{"pause":id}`` is the wish; it is gone when somebody resumes. With ``"until_ms"`` it holds
until then, unless it is written anew: a command that pauses for a moment may be killed in it.
``{"control":"paused","member":m}`` -> ``{"pause":id}`` says that a worker applies nothing and has committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, Protocol

from cdc.clock import Clock
from sinks.state.state_topic import Entry

PAUSE_KEY: Final = b'{"control":"pause"}'


class StateEntries(Protocol):
    """What is needed of `sinks.state.state_topic.StateTopic`."""

    def load(self) -> dict[bytes, bytes]:
        """Everything that is kept now; `new` goes on behind it."""

    def new(self) -> list[Entry]:
        """What was written since."""

    def put(self, entries: list[Entry]) -> list[int]:
        """Write entries durably."""


def is_control(key: bytes) -> bool:
    """Whether a record is of the sink as a whole, and not of one of its keys."""
    return key.startswith(b'{"control":')


def paused_key(member: str) -> bytes:
    """Key of what a worker says."""
    return json.dumps({"control": "paused", "member": member}, separators=(",", ":")).encode()


def pause_value(pause: str, until_ms: int = 0) -> bytes:
    """Value of both."""
    until = {"until_ms": until_ms} if until_ms else {}
    return json.dumps({"pause": pause, **until}, separators=(",", ":")).encode()


def until_ms(value: bytes | None) -> int:
    """Until when a pause holds, in ms since 1970; 0: until somebody resumes."""
    if value is None or pause_of(value) is None:
        return 0
    found = json.loads(value).get("until_ms", 0)
    return found if isinstance(found, int) else 0


def holds(value: bytes | None, clock: Clock) -> str | None:
    """As `pause_of`, unless its time is over."""
    until = until_ms(value)
    return None if until and clock.wall_s() * 1000 > until else pause_of(value)


def pause_of(value: bytes | None) -> str | None:
    """Which pause a value is of."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return str(found["pause"]) if isinstance(found, dict) and "pause" in found else None


def paused_members(entries: Iterable[tuple[bytes, bytes | None]], pause: str) -> set[str]:
    """Members that say they are paused by this pause."""
    members: set[str] = set()
    for key, value in entries:
        name = json.loads(key)
        if isinstance(name, dict) and name.get("control") == "paused" and pause_of(value) == pause:
            members.add(str(name["member"]))
    return members


class WorkerPause:
    """A worker's side. One thread."""

    def __init__(self, state: StateEntries, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._wish = state.load().get(PAUSE_KEY)
        self._said: bytes | None = None

    def look(self) -> str | None:
        """Which pause holds now; None: none. Raises BrokerUnreachable."""
        for key, value in self._state.new():
            if key == PAUSE_KEY:
                self._wish = value
        return holds(self._wish, self._clock)

    def report_paused(self, member: str) -> None:
        """This worker applies nothing, and what it applied is committed."""
        pause = pause_of(self._wish)
        if pause is not None:
            said, before = paused_key(member), self._said
            forgotten = [(before, None)] if before not in {None, said} else []
            self._said = said
            self._state.put([*forgotten, (said, pause_value(pause))])

    def report_running(self) -> None:
        """It goes on, or ends."""
        if self._said is not None:
            self._state.put([(self._said, None)])
            self._said = None
