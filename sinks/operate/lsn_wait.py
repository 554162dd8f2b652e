"""Waits until a sink holds everything up to an LSN: `cdc wait`, and /sinks/<sink>/wait of every HTTP surface.

How far a sink is comes from a `AppliedCutSource` that is handed in; what a sink is made of is not known here.
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

LOOK_EVERY_S: Final = 0.05
"""How late an answer may be; a manifest is read in less than a millisecond."""

SETTLE_EVERY_S: Final = 0.1
"""At least so long from the beginning of one `SinkProbe.settle` to that of the next."""

_SHARED_S: Final = LOOK_EVERY_S / 2  # shorter, so that whoever waits alone sees something new each time


@dataclass(frozen=True, slots=True)
class AppliedCut:
    """A sink's newest published cut: it holds every transaction that committed before `end_lsn`, and no other."""

    cut: int
    end_lsn: Lsn


AppliedCutSource: TypeAlias = Callable[[], AppliedCut | None]
"""How far a sink is now; None before its first cut. Raises SinkError when that cannot be told."""


def _nothing() -> None:
    """Readers of most stores see what is written at once."""


def _never(key: bytes, table: str | None) -> bool:  # noqa: ARG001 - the signature of the hook
    """Without dead letters no key is blocked."""
    return False


def _none() -> Sequence[tuple[str, str]]:
    return ()


class WaitRequest(NamedTuple):
    """What is waited for: an LSN, and maybe a key, of one table or of whichever has such a key."""

    lsn: Lsn
    key: bytes | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True)
class SinkProbe:
    """What is asked of a sink by who waits for it.

    Attributes:
        look: how far it is.
        settle: returns when readers see everything that was applied before the call (`sinks.contract.Target.refresh`).
        blocked: whether a record of this key (of this table, or of any) was refused, so that the sink does not have its
            newest.
        blocked_keys: table and key of some that are blocked, for people.
    """

    look: AppliedCutSource
    settle: Callable[[], None] = _nothing
    blocked: Callable[[bytes, str | None], bool] = _never
    blocked_keys: Callable[[], Sequence[tuple[str, str]]] = _none


def parse_wait_lsn(text: str) -> Lsn:
    """The LSN somebody waits for, as pg_current_wal_insert_lsn() says it. Raises UsageError."""
    try:
        return Lsn.parse(text).before_header()
    except ValueError as error:
        raise UsageError(f"{text!r} is no LSN", hint="as 0/1B014F8") from error


def parse_wait_key(text: str) -> bytes:
    """A key as topics have it: a JSON object of the key's columns, in their order. Raises UsageError."""
    try:
        columns = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        values = {name: _compact(bytes(value)) for name, value in columns.items()}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise UsageError("the key is no JSON object", hint="""as '{"id":7}', the key of the record""") from None
    return msgspec.json.encode(values)


def _compact(value: bytes) -> msgspec.Raw:
    """Numbers keep their digits."""
    return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(value)) if value[:1] == b'"' else value)


def is_at(reach: AppliedCut | None, lsn: Lsn) -> bool:
    """Whether what is held reaches `lsn`."""
    return reach is not None and reach.end_lsn >= lsn


def await_lsn(
    look: AppliedCutSource, lsn: Lsn, timeout_s: float, clock: Clock, stop: threading.Event
) -> AppliedCut | None:
    """Look until `lsn` is reached, the time is up or `stop`; returns what was seen last. Raises what `look` raises."""
    ends_s = clock.monotonic_s() + timeout_s
    while True:
        reach = look()
        left_s = ends_s - clock.monotonic_s()
        if is_at(reach, lsn) or left_s <= 0 or clock.wait(stop, min(LOOK_EVERY_S, left_s)):
            return reach


def await_visible(
    sight: SinkProbe, wanted: WaitRequest, timeout_s: float, clock: Clock, stop: threading.Event
) -> AppliedCut | None:
    """As `await_lsn`, for an LSN and maybe a key; readers see what is reached when this returns.

    Raises KeyBlocked, and what the functions of `sight` raise.
    """
    reach = await_lsn(sight.look, wanted.lsn, timeout_s, clock, stop)
    if is_at(reach, wanted.lsn):
        # Asked only now: who parks a record says so before he goes on.
        if wanted.key is not None and sight.blocked(wanted.key, wanted.table):
            raise KeyBlocked(
                "a record of this key was refused by the store, so the sink has an older one",
                hint="see why, then have it tried again or passed over",
                command="cdc dlq list",
            )
        sight.settle()
    return reach


class SharedRefresh:
    """`SinkProbe.settle` for many at once: what one began after another had asked does for both. Thread-safe.

    However many ask, one is in flight, and the next one begins no sooner than SETTLE_EVERY_S after it began: a refresh
    of a search index costs its server work.
    """

    def __init__(self, settle: Callable[[], None], clock: Clock) -> None:
        self._settle = settle
        self._clock = clock
        self._lock = threading.Lock()
        self._began_s: float | None = None
        self._tried_s: float | None = None  # a refresh that fails has cost the store as much

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
