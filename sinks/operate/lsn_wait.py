"""Waits until a sink has applied everything up to an LSN: `cdc wait`, and /sinks/<sink>/wait over HTTP.

The applied position comes from an `AppliedCutSource` that the caller passes in; this module knows no kind of sink.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import msgspec

from cdc.clock import Clock
from cdc.errors import KeyBlocked, UsageError
from cdc.lsn import Lsn
from sinks.operate.unread_tables import NONE, Unread

LOOK_EVERY_S: Final = 0.05
"""Between polls, so the delay of an answer; reading a manifest takes less than a millisecond."""

SETTLE_EVERY_S: Final = 0.1
"""Minimum time between the starts of two `SinkProbe.settle` calls."""

_SHARED_S: Final = LOOK_EVERY_S / 2  # shorter than a poll, so that a single waiter gets a fresh value each time


@dataclass(frozen=True, slots=True)
class AppliedCut:
    """The newest cut of a sink: it has every transaction that committed before `end_lsn`, and no other.

    Tables in `unread` may lack transactions that committed before `unread.lsn`.
    """

    cut: int
    end_lsn: Lsn
    unread: Unread = NONE


AppliedCutSource: TypeAlias = Callable[[], AppliedCut | None]
"""Returns the cut that a sink is at; None before its first cut. Raises SinkError when it is unknown."""


def _nothing() -> None:
    """Readers of most stores see writes at once."""


def _never(key: bytes, table: str | None) -> bool:  # noqa: ARG001 - the signature of the hook
    """Without dead letters no key is blocked."""
    return False


def _none() -> Sequence[tuple[str, str]]:
    return ()


class WaitRequest(NamedTuple):
    """The LSN to wait for, and optionally a key, in one table or in any table that has such a key."""

    lsn: Lsn
    key: bytes | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True)
class SinkProbe:
    """The functions of a sink that answer wait requests.

    Attributes:
        look: returns the applied cut.
        settle: returns when readers see everything that was applied before the call (`sinks.contract.Target.refresh`).
        blocked: whether a record of this key (in this table, or in any) was refused, so that the sink lacks its newest
            version.
        blocked_keys: table and key of some blocked keys, for display.
    """

    look: AppliedCutSource
    settle: Callable[[], None] = _nothing
    blocked: Callable[[bytes, str | None], bool] = _never
    blocked_keys: Callable[[], Sequence[tuple[str, str]]] = _none


def parse_wait_lsn(text: str) -> Lsn:
    """Parse the LSN to wait for, as pg_current_wal_insert_lsn() returns it. Raises UsageError."""
    try:
        return Lsn.parse(text).before_header()
    except ValueError as error:
        raise UsageError(f"invalid LSN {text!r}", hint="expected e.g. 0/1B014F8") from error


def parse_wait_key(text: str) -> bytes:
    """Parse a key as topics have it: a JSON object of the key columns, in their order. Raises UsageError."""
    try:
        columns = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        values = {name: _compact(bytes(value)) for name, value in columns.items()}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise UsageError(
            "the key is not a JSON object", hint="""expected e.g. '{"id":7}', the key of the record"""
        ) from None
    return msgspec.json.encode(values)


def _compact(value: bytes) -> msgspec.Raw:
    """Normalise the spelling of a text; numbers keep their digits."""
    return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(value)) if value[:1] == b'"' else value)


def is_at(reach: AppliedCut | None, lsn: Lsn) -> bool:
    """Whether the sink has reached `lsn`, and no snapshot has to read a change before it."""
    return reach is not None and lsn <= reach.end_lsn and (not reach.unread.tables or lsn > reach.unread.lsn)


def await_lsn(
    look: AppliedCutSource, lsn: Lsn, timeout_s: float, clock: Clock, stop: threading.Event
) -> AppliedCut | None:
    """Poll until `lsn` is reached, the time is up or `stop` is set; return the last value. Raises errors of `look`."""
    ends_s = clock.monotonic_s() + timeout_s
    while True:
        reach = look()
        left_s = ends_s - clock.monotonic_s()
        if is_at(reach, lsn) or left_s <= 0 or clock.wait(stop, min(LOOK_EVERY_S, left_s)):
            return reach


def await_visible(
    sight: SinkProbe, wanted: WaitRequest, timeout_s: float, clock: Clock, stop: threading.Event
) -> AppliedCut | None:
    """As `await_lsn`, and optionally check a key; when this returns, readers see everything up to the LSN.

    Raises KeyBlocked, and what the functions of `sight` raise.
    """
    reach = await_lsn(sight.look, wanted.lsn, timeout_s, clock, stop)
    if is_at(reach, wanted.lsn):
        # Only checked now: a worker records the dead letter before it advances.
        if wanted.key is not None and sight.blocked(wanted.key, wanted.table):
            raise KeyBlocked(
                "the store refused a record of this key, so the sink has an older version of it",
                hint="list the reason, then retry or skip the key",
                command="cdc dlq list",
            )
        sight.settle()
    return reach


class SharedRefresh:
    """`SinkProbe.settle` shared by many waiters: a refresh that began after a waiter asked also serves it. Thread-safe.

    One refresh runs at a time, and the next begins at least SETTLE_EVERY_S later: a refresh of a search index is
    expensive for its server.
    """

    def __init__(self, settle: Callable[[], None], clock: Clock) -> None:
        self._settle = settle
        self._clock = clock
        self._lock = threading.Lock()
        self._began_s: float | None = None
        self._tried_s: float | None = None  # a failed refresh costs the store as much

    def __call__(self) -> None:
        """See `SinkProbe`."""
        asked_s = self._clock.monotonic_s()
        with self._lock:
            if self._began_s is not None and self._began_s > asked_s:
                return
            if self._tried_s is not None:
                early_s = self._tried_s + SETTLE_EVERY_S - self._clock.monotonic_s()
                if early_s > 0:
                    self._clock.wait(threading.Event(), early_s)
            self._tried_s = began_s = self._clock.monotonic_s()
            self._settle()
            self._began_s = began_s


class SharedCutSource:
    """An `AppliedCutSource` for many requests: reads the sink at most 40 times a second. Thread-safe."""

    def __init__(self, look: AppliedCutSource, clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: AppliedCut | None = None
        self._seen_s: float | None = None

    def __call__(self) -> AppliedCut | None:
        """See `AppliedCutSource`."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._seen_s is None or now_s - self._seen_s >= _SHARED_S:
                self._seen = self._look()
                self._seen_s = self._clock.monotonic_s()
            return self._seen
