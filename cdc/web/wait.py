"""/sinks/<sink>/wait?lsn=X/Y&timeout_s=10: a program reads its own writes without asking the sink itself.

A request that waits costs a thread and a wakeup every 50 ms; the sink is looked at for all of them together.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from cdc.clock import Clock
from cdc.errors import BrokerError, KeyBlocked, SinkError, UsageError
from cdc.reach import Look, Reach, SharedLook, SharedSettle, Sight, Wanted, await_sight, is_at, wanted_key, wanted_lsn

TIMEOUT_DEFAULT_S: Final = 10.0
TIMEOUT_MAX_S: Final = 60.0
"""Below what proxies usually cut an idle request at."""

WAITING_MAX: Final = 64
"""Requests that wait at a time, because each has a thread; more are sent away at once."""

_PATH: Final = re.compile(r"/sinks/([^/]*)/wait")
_FIELDS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """A status code, and the document that goes with it."""

    code: HTTPStatus
    document: Mapping[str, Any]


class WaitRoute:
    """Answers for the sinks it is given. Thread-safe; `answer` blocks for at most TIMEOUT_MAX_S."""

    def __init__(self, looks: Mapping[str, Look | Sight], clock: Clock) -> None:
        self._looks = {name: shared(look, clock) for name, look in looks.items()}
        self._clock = clock
        self._places = threading.BoundedSemaphore(WAITING_MAX)
        self._closing = threading.Event()

    @staticmethod
    def sink_of(path: str) -> str | None:
        """Which sink a path asks for; None when it is none of ours."""
        match = _PATH.fullmatch(path)
        return match[1] if match else None

    def answer(self, sink: str, query: str) -> Answer:
        """Wait as the query says."""
        look = self._looks.get(sink)
        if look is None:
            known = ", ".join(sorted(self._looks))
            there = f"there are {known}" if known else "there are none"
            return _error(HTTPStatus.NOT_FOUND, f"there is no sink {sink!r} here; {there}")
        try:
            asked, wanted, timeout_s = _parsed(query)
        except UsageError as error:
            return _error(HTTPStatus.BAD_REQUEST, f"{error.message}; {error.hint}")
        if not self._places.acquire(blocking=False):
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, f"{WAITING_MAX} requests wait already; try again")
        began_s = self._clock.monotonic_s()
        try:
            reach = await_sight(look, wanted, timeout_s, self._clock, self._closing)
            blocked = look.blocked_keys()
        except KeyBlocked as error:
            return _error(HTTPStatus.CONFLICT, error.message)
        except (SinkError, BrokerError) as error:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, error.message)
        finally:
            self._places.release()
        named = {"blocked": [{"table": table, "key": key} for table, key in blocked]} if blocked else {}
        code = HTTPStatus.OK if is_at(reach, wanted.lsn) else HTTPStatus.GATEWAY_TIMEOUT
        if code is not HTTPStatus.OK and self._closing.is_set():
            code = HTTPStatus.SERVICE_UNAVAILABLE
        return Answer(code, {**_document(sink, asked, reach, self._clock.monotonic_s() - began_s), **named})

    def close(self) -> None:
        """Let everybody who waits go."""
        self._closing.set()


def shared(look: Look | Sight, clock: Clock) -> Sight:
    """The same for many at once."""
    sight = look if isinstance(look, Sight) else Sight(look)
    return replace(sight, look=SharedLook(sight.look, clock), settle=SharedSettle(sight.settle, clock))


def _parsed(query: str) -> tuple[str, Wanted, float]:
    """The LSN as it was asked for, what is waited for, and for how long. Raises UsageError."""
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError as error:
        raise UsageError("the query has too many fields", hint="as ?lsn=0/1B014F8&timeout_s=10") from error
    if "lsn" not in fields:
        raise UsageError("lsn is missing", hint="as ?lsn=0/1B014F8, from pg_current_wal_insert_lsn() after the COMMIT")
    lsn = wanted_lsn(fields["lsn"][-1])
    text = fields.get("timeout_s", [str(TIMEOUT_DEFAULT_S)])[-1]
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = math.nan
    if not 0 <= timeout_s <= TIMEOUT_MAX_S:
        raise UsageError(f"timeout_s is {text!r}", hint=f"it takes 0 to {TIMEOUT_MAX_S:.0f}; ask again after that")
    key = wanted_key(fields["key"][-1]) if "key" in fields else None
    table = fields["table"][-1] if "table" in fields else None
    return fields["lsn"][-1], Wanted(lsn, key, table), timeout_s


def _document(sink: str, asked: str, reach: Reach | None, waited_s: float) -> dict[str, Any]:
    return {
        "sink": sink,
        "lsn": asked,
        "reached": str(reach.end_lsn) if reach else None,
        "cut": reach.cut if reach else None,
        "waited_seconds": round(waited_s, 3),
    }


def _error(code: HTTPStatus, text: str) -> Answer:
    return Answer(code, {"error": text})
