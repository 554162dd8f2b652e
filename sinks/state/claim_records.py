"""One at a time: who rebuilds, rolls back or repairs a sink says so in the sink's state topic, and others are refused.

``{"control":"claim","id":i}`` -> ``{"what","who","since_ms","until_ms"}``. Whoever wants to begin writes his own claim
and then reads the topic to its end. Two cannot both find themselves alone, for one of the two was written after the
other; that both find each other and neither begins is possible, and harmless. A claim holds for a time and is renewed,
so one whose owner was killed ends by itself. It keeps people out of each other's way; that nothing breaks when an owner
stands still for longer than that is the affair of each of these works.
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
from sinks.state.pause_records import StateEntries

_LOOK_S: Final = 1.0
_PREFIX: Final = b'{"control":"claim",'


@dataclass(frozen=True, slots=True)
class Claim:
    """What is done to a sink, by whom, and since and until when, in ms since 1970."""

    what: str
    who: str
    since_ms: int
    until_ms: int

    @property
    def since(self) -> str:
        """For people, in UTC."""
        return datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(timespec="seconds")

    def busy(self, sink: str) -> SinkBusy:
        """What the second one is told."""
        return SinkBusy(
            f"{self.what} of sink {sink!r} is under way: {self.who}, since {self.since}",
            hint="wait until it has ended",
            command=f"cdc sink status {sink}",
            sink=sink,
            until=str(self.until_ms),
        )


def claims_of(entries: Iterable[tuple[bytes, bytes | None]], now_ms: float) -> dict[bytes, Claim | None]:
    """Key -> claim, None where its time is over or it says nothing we know."""
    found: dict[bytes, Claim | None] = {}
    for key, value in entries:
        if key.startswith(_PREFIX) and value is not None:
            claim = _claim_of(value)
            found[key] = claim if claim is not None and claim.until_ms > now_ms else None
    return found


def busy_with(entries: Iterable[tuple[bytes, bytes | None]], now_ms: float) -> str:
    """What is done to a sink, by whom and since when, in a line; empty: nothing."""
    live = [claim for claim in claims_of(entries, now_ms).values() if claim is not None]
    return "; ".join(f"{claim.what}: {claim.who}, since {claim.since}" for claim in live)


class ClaimHolder:
    """Takes, renews and gives back one claim. One thread at a time."""

    def __init__(
        self, state: StateEntries, sink: str, clock: Clock, *, name: Callable[[], str] = lambda: secrets.token_hex(8)
    ) -> None:
        self._state = state
        self._sink = sink
        self._clock = clock
        self._key = json.dumps({"control": "claim", "id": name()}, separators=(",", ":")).encode()
        self._mine: Claim | None = None

    def take(self, what: str, who: str) -> None:
        """Begin. Raises SinkBusy, and nothing is claimed then."""
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
        """As `take`; a claim that nobody renews, because its owner was killed, is waited for. Raises SinkBusy."""
        first: str | None = None
        while True:
            try:
                self.take(what, who)
            except SinkBusy as busy:
                until = str(busy.facts["until"])
                if first not in {None, until}:
                    raise  # its owner lives
                first = until
                self._clock.wait(threading.Event(), _LOOK_S)
            else:
                return

    def renew(self) -> None:
        """It goes on."""
        if self._mine is not None:
            self._mine = replace(self._mine, until_ms=lease_ms(self._clock))
            self._write()

    def give_back(self) -> None:
        """It has ended. May be called twice."""
        if self._mine is not None:
            self._mine = None
            self._state.put([(self._key, None)])

    def _write(self) -> None:
        assert self._mine is not None
        self._state.put([(self._key, json.dumps(asdict(self._mine), separators=(",", ":")).encode())])


def _claim_of(value: bytes) -> Claim | None:
    try:
        found = json.loads(value)
        return Claim(str(found["what"]), str(found["who"]), int(found["since_ms"]), int(found["until_ms"]))
    except (ValueError, TypeError, KeyError):
        return None
