"""Claims on a sink: only one rebuild, rollback or repair runs at a time. Stored in the sink's state topic.

``{"control":"claim","id":i}`` -> ``{"what","who","since_ms","until_ms"}``. A command writes its claim, then reads
the topic to its end. Two commands cannot both find no other claim, because one claim was written after the other. Both
may find each other and give up, which is harmless. A claim expires unless it is renewed, so that of a killed command
ends by itself. Claims only keep operators from disturbing each other. Each command must itself stay correct when it is
frozen for longer than its claim lasts.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Final

from cdc.clock import Clock
from cdc.errors import SinkBusy
from sinks.state.lease import lease_ms
from sinks.state.state_topic import StateEntries, check_control

_POLL_S: Final = 1.0
_PREFIX: Final = b'{"control":"claim",'


@dataclass(frozen=True, slots=True)
class Claim:
    """A running command on a sink: name, owner, start and expiry, in ms since 1970."""

    what: str
    who: str
    since_ms: int
    until_ms: int

    @property
    def since(self) -> str:
        """The start as text, in UTC."""
        return datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")

    def busy(self, sink: str) -> SinkBusy:
        """Return the error for a second command."""
        return SinkBusy(
            f"a {self.what} of sink {sink!r} is already running: {self.who}, since {self.since}",
            hint="wait until it has finished",
            command=f"cdc sink status {sink}",
            sink=sink,
            until=str(self.until_ms),
        )


def claims_of(entries: Iterable[tuple[bytes, bytes | None]], now_ms: float) -> dict[bytes, Claim | None]:
    """Return the claim of each key; None for an expired or unreadable claim."""
    found: dict[bytes, Claim | None] = {}
    for key, value in entries:
        if key.startswith(_PREFIX) and value is not None:
            claim = _claim_of(value)
            found[key] = claim if claim is not None and claim.until_ms > now_ms else None
    return found


def busy_with(entries: Iterable[tuple[bytes, bytes | None]], now_ms: float) -> str:
    """Return the running commands on a sink in one line, with owner and start; empty: none."""
    live = [claim for claim in claims_of(entries, now_ms).values() if claim is not None]
    return "; ".join(f"{claim.what}: {claim.who}, since {claim.since}" for claim in live)


class ClaimHolder:
    """Takes, renews and releases one claim. One thread at a time."""

    def __init__(
        self, state: StateEntries, sink: str, clock: Clock, *, name: Callable[[], str] = lambda: secrets.token_hex(8)
    ) -> None:
        self._state = state
        self._sink = sink
        self._clock = clock
        self._key = json.dumps({"control": "claim", "id": name()}, separators=(",", ":")).encode()
        self._mine: Claim | None = None

    def take(self, what: str, who: str) -> None:
        """Take the claim. Raises SinkBusy without taking it when another claim is live."""
        self._mine = Claim(what, who, int(self._clock.wall_s() * 1000), lease_ms(self._clock))
        self._write()
        others = claims_of(self._state.load().items(), self._clock.wall_s() * 1000)
        others.pop(self._key, None)
        live = [claim for claim in others.values() if claim is not None]
        if live:
            self.give_back()
            raise live[0].busy(self._sink)
        if others:
            self._state.put([(key, None) for key in others])

    def take_or_wait(self, what: str, who: str) -> None:
        """Take the claim; wait for the claim of a killed owner to expire. Raises SinkBusy when its owner is alive."""
        first: str | None = None
        while True:
            try:
                self.take(what, who)
            except SinkBusy as busy:
                until = str(busy.facts["until"])
                if first not in {None, until}:
                    raise  # the owner is alive: it renewed the claim
                first = until
                self._clock.wait(threading.Event(), _POLL_S)
            else:
                return

    def renew(self) -> None:
        """Extend the claim."""
        if self._mine is not None:
            self._mine = replace(self._mine, until_ms=lease_ms(self._clock))
            self._write()

    def give_back(self) -> None:
        """Release the claim. May be called twice."""
        if self._mine is not None:
            self._mine = None
            self._state.put([(self._key, None)])

    def _write(self) -> None:
        assert self._mine is not None
        self._state.put([(self._key, json.dumps(asdict(self._mine), separators=(",", ":")).encode())])


def _claim_of(value: bytes) -> Claim | None:
    """Read a claim; None for an unreadable one. Raises SinkUnfit if a newer release wrote it."""
    try:
        found = json.loads(value)
        check_control(found)
        return Claim(str(found["what"]), str(found["who"]), int(found["since_ms"]), int(found["until_ms"]))
    except (ValueError, TypeError, KeyError):
        return None
