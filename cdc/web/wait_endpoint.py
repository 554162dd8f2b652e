"""/sinks/<sink>/wait?lsn=X/Y&timeout_s=10: a program reads its own writes without asking the sink itself.

A request that waits costs two threads and a wakeup every 50 ms; the sink is checked for all of them together. Checks
ask Kafka and the store, which may hang, so each runs beside its request, which is answered at its deadline whatever
they do. Row keys are in an answer only for a request that is authorised.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from cdc.clock import Clock
from cdc.errors import InvariantError, KeyBlocked, TailraceError, UsageError
from cdc.telemetry import log
from sinks.operate.lsn_wait import (
    AppliedCut,
    AppliedCutSource,
    SharedCutSource,
    SharedRefresh,
    SinkProbe,
    WaitRequest,
    await_visible,
    is_at,
    parse_wait_key,
    parse_wait_lsn,
)

TIMEOUT_DEFAULT_S: Final = 10.0
TIMEOUT_MAX_S: Final = 60.0
"""Below what proxies usually cut an idle request at."""

WAITING_MAX: Final = 64
"""Requests that wait at a time, because each has a thread; more are sent away at once."""

_PATH: Final = re.compile(r"/sinks/([^/]*)/wait")
_FIELDS_MAX: Final = 16
_PARAMETERS: Final = ("lsn", "timeout_s", "key", "table")
GRACE_S: Final = 0.25  # for a check that ends with its deadline


@dataclass(frozen=True, slots=True)
class Answer:
    """A status code, and the document that goes with it."""

    code: HTTPStatus
    document: Mapping[str, Any]


class WaitRoute:
    """Answers for the sinks it is given. Thread-safe; `answer` blocks for at most TIMEOUT_MAX_S."""

    def __init__(self, looks: Mapping[str, AppliedCutSource | SinkProbe], clock: Clock) -> None:
        self._looks = {name: shared(look, clock) for name, look in looks.items()}
        self._clock = clock
        self._places = threading.BoundedSemaphore(WAITING_MAX)
        self._closing = threading.Event()

    @staticmethod
    def sink_of(path: str) -> str | None:
        """Which sink a path asks for; None when it is none of ours."""
        match = _PATH.fullmatch(path)
        return match[1] if match else None

    def answer(self, sink: str, query: str, *, authorised: bool = False) -> Answer:
        """Wait as the query says. `authorised`: the answer may have row keys."""
        look = self._looks.get(sink)
        if look is None:
            known = ", ".join(sorted(self._looks))
            there = f"the sinks here are {known}" if known else "there are none here"
            return error_answer(HTTPStatus.NOT_FOUND, f"no sink {sink!r}; {there}")
        try:
            asked, wanted, timeout_s = _parsed(query)
        except UsageError as error:
            return error_answer(HTTPStatus.BAD_REQUEST, f"{error.message}; {error.hint}")
        if not self._places.acquire(blocking=False):
            return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{WAITING_MAX} requests wait already; try again")
        check = Check(look, wanted, timeout_s, self._clock, self._closing)
        # The place is given back when the check ends, which may be later than the answer: threads stay bounded.
        began_s = self._clock.monotonic_s()
        threading.Thread(target=check.run, args=(self._places.release,), name="http-wait", daemon=True).start()
        if not check.ended.wait(timeout_s + GRACE_S):
            document = _document(sink, asked, None, self._clock.monotonic_s() - began_s)
            return Answer(HTTPStatus.GATEWAY_TIMEOUT, {**document, "error": "the check of the sink has not ended"})
        failure = check.error
        if isinstance(failure, KeyBlocked):
            return error_answer(HTTPStatus.CONFLICT, failure.message)
        if failure is not None:
            return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, failure.message)
        code = HTTPStatus.OK if is_at(check.reach, wanted.lsn) else HTTPStatus.GATEWAY_TIMEOUT
        if code is not HTTPStatus.OK and self._closing.is_set():
            code = HTTPStatus.SERVICE_UNAVAILABLE
        document = _document(sink, asked, check.reach, self._clock.monotonic_s() - began_s)
        return Answer(code, {**document, **_named(check.blocked, authorised=authorised)})

    def close(self) -> None:
        """Have every request that waits answered."""
        self._closing.set()


class Check:
    """What one request asks of a sink; `run` in a thread, and read it when `ended` is set."""

    def __init__(
        self, sight: SinkProbe, wanted: WaitRequest, timeout_s: float, clock: Clock, stop: threading.Event
    ) -> None:
        self._asked = sight, wanted, timeout_s, clock, stop
        self.ended = threading.Event()
        self.reach: AppliedCut | None = None
        self.blocked: Sequence[tuple[str, str]] = ()
        self.error: TailraceError | None = None

    def run(self, ended: Callable[[], None]) -> None:
        """Wait, and keep what was found; `ended` is called in any case."""
        try:
            self.reach = await_visible(*self._asked)
            self.blocked = self._asked[0].blocked_keys()
        except TailraceError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - the request is answered, and the process logs it
            log.get().error("wait_failed", error=log.origin(error))
            self.error = InvariantError(f"the check of the sink failed with {type(error).__name__}")
        finally:
            ended()
            self.ended.set()


def shared(look: AppliedCutSource | SinkProbe, clock: Clock) -> SinkProbe:
    """The same for many at once."""
    sight = look if isinstance(look, SinkProbe) else SinkProbe(look)
    return replace(sight, look=SharedCutSource(sight.look, clock), settle=SharedRefresh(sight.settle, clock))


def unknown_parameter(query: str, known: Sequence[str]) -> str:
    """Return what is wrong with the names of a query's parameters; empty when all are known."""
    try:
        names = parse_qs(query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError:
        return f"the query has more than {_FIELDS_MAX} parameters"
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            accepted = f"accepted are {', '.join(known)}" if known else "this path takes none"
            return f"unknown query parameter {name!r}; {f'did you mean {near[0]}? ' if near else ''}{accepted}"
    return ""


def _named(blocked: Sequence[tuple[str, str]], *, authorised: bool) -> dict[str, object]:
    """Some blocked rows: their tables, and with authorisation their keys."""
    if not blocked:
        return {}
    if not authorised:
        return {"blocked": [{"table": table} for table in dict.fromkeys(table for table, _ in blocked)]}
    return {"blocked": [{"table": table, "key": key} for table, key in blocked]}


def _parsed(query: str) -> tuple[str, WaitRequest, float]:
    """The LSN as it was asked for, what is waited for, and for how long. Raises UsageError."""
    wrong = unknown_parameter(query, _PARAMETERS)
    if wrong:
        raise UsageError(wrong, hint="as ?lsn=0/1B014F8&timeout_s=10")
    fields = parse_qs(query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    if "lsn" not in fields:
        raise UsageError("lsn is missing", hint="as ?lsn=0/1B014F8, from pg_current_wal_insert_lsn() after the COMMIT")
    lsn = parse_wait_lsn(fields["lsn"][-1])
    text = fields.get("timeout_s", [str(TIMEOUT_DEFAULT_S)])[-1]
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = math.nan
    if not 0 <= timeout_s <= TIMEOUT_MAX_S:
        raise UsageError(f"timeout_s is {text!r}", hint=f"it takes 0 to {TIMEOUT_MAX_S:.0f}; ask again after that")
    key = parse_wait_key(fields["key"][-1]) if "key" in fields else None
    table = fields["table"][-1] if "table" in fields else None
    return fields["lsn"][-1], WaitRequest(lsn, key, table), timeout_s


def _document(sink: str, asked: str, reach: AppliedCut | None, waited_s: float) -> dict[str, Any]:
    return {
        "sink": sink,
        "lsn": asked,
        "reached": str(reach.end_lsn) if reach else None,
        "cut": reach.cut if reach else None,
        "waited_seconds": round(waited_s, 3),
    }


def error_answer(code: HTTPStatus, text: str) -> Answer:
    """Return an answer that says why there is no other."""
    return Answer(code, {"error": text})
