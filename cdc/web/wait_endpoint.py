"""Answers /sinks/<sink>/wait?lsn=X/Y&timeout_s=10, with which a program reads its own writes from a sink.

A waiting request costs two threads and a wakeup every 50 ms; all requests for a sink share its checks. A check asks
Kafka and the store, which may hang, so it runs in its own thread, and the request is answered at its deadline in any
case. An answer has row keys only if the request is authorised.
"""

from __future__ import annotations

import math
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
"""Below the time after which proxies usually drop an idle request."""

WAITING_MAX: Final = 64
"""Waiting requests at a time, because each has a thread; further ones are refused at once."""

_FIELDS_MAX: Final = 16
_PARAMETERS: Final = ("lsn", "timeout_s", "key", "table")
GRACE_S: Final = 0.25  # for a check that ends with its deadline


@dataclass(frozen=True, slots=True)
class Answer:
    """A status code and its document."""

    code: HTTPStatus
    document: Mapping[str, Any]


class WaitRoute:
    """Answers requests for its sinks. Thread-safe; `answer` blocks for at most TIMEOUT_MAX_S."""

    def __init__(self, probes: Mapping[str, AppliedCutSource | SinkProbe], clock: Clock) -> None:
        self._probes = {name: shared(probe, clock) for name, probe in probes.items()}
        self._clock = clock
        self._slots = threading.BoundedSemaphore(WAITING_MAX)
        self._closing = threading.Event()

    @property
    def sinks(self) -> list[str]:
        """The names of its sinks."""
        return list(self._probes)

    def answer(self, sink: str, query: str, *, authorised: bool = False) -> Answer:
        """Wait as the query says. `authorised`: the answer may have row keys."""
        probe = self._probes.get(sink)
        if probe is None:
            known = ", ".join(sorted(self._probes))
            available = f"available: {known}" if known else "this server has no sinks"
            return error_answer(HTTPStatus.NOT_FOUND, f"unknown sink {sink!r}; {available}")
        try:
            asked, wanted, timeout_s = _parsed(query)
        except UsageError as error:
            return error_answer(HTTPStatus.BAD_REQUEST, f"{error.message}; {error.hint}")
        if not self._slots.acquire(blocking=False):
            return error_answer(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{WAITING_MAX} requests are already waiting; try again later"
            )
        check = Check(probe, wanted, timeout_s, self._clock, self._closing)
        # The slot is released when the check ends, which may be after the answer: this bounds the threads.
        began_s = self._clock.monotonic_s()
        threading.Thread(target=check.run, args=(self._slots.release,), name="http-wait", daemon=True).start()
        if not check.ended.wait(timeout_s + GRACE_S):
            document = _document(sink, asked, None, self._clock.monotonic_s() - began_s)
            return Answer(
                HTTPStatus.GATEWAY_TIMEOUT, {**document, "error": "the check of the sink did not finish in time"}
            )
        failure = check.error
        if isinstance(failure, KeyBlocked):
            return error_answer(HTTPStatus.CONFLICT, failure.message)
        if failure is not None:
            # The clients of the check are closed while the process stops.
            message = "the process is stopping" if self._closing.is_set() else failure.message
            return error_answer(HTTPStatus.SERVICE_UNAVAILABLE, message)
        code = HTTPStatus.OK if is_at(check.reach, wanted.lsn) else HTTPStatus.GATEWAY_TIMEOUT
        if code is not HTTPStatus.OK and self._closing.is_set():
            code = HTTPStatus.SERVICE_UNAVAILABLE
        document = _document(sink, asked, check.reach, self._clock.monotonic_s() - began_s)
        unread = check.reach.unread.tables if check.reach and code is not HTTPStatus.OK else ()
        named = _named(check.blocked, authorised=authorised)
        return Answer(code, document | named | ({"snapshotting": list(unread)} if unread else {}))

    def close(self) -> None:
        """Answer every waiting request now."""
        self._closing.set()


class Check:
    """The check of a sink for one request: `run` it in a thread, and read the result when `ended` is set."""

    def __init__(
        self, probe: SinkProbe, wanted: WaitRequest, timeout_s: float, clock: Clock, stop: threading.Event
    ) -> None:
        self._asked = probe, wanted, timeout_s, clock, stop
        self.ended = threading.Event()
        self.reach: AppliedCut | None = None
        self.blocked: Sequence[tuple[str, str]] = ()
        self.error: TailraceError | None = None

    def run(self, ended: Callable[[], None]) -> None:
        """Wait, and store the result; `ended` is called in any case."""
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


def shared(source: AppliedCutSource | SinkProbe, clock: Clock) -> SinkProbe:
    """Return a probe that several requests can use at once."""
    probe = source if isinstance(source, SinkProbe) else SinkProbe(source)
    return replace(probe, look=SharedCutSource(probe.look, clock), settle=SharedRefresh(probe.settle, clock))


def unknown_parameter(query: str, known: Sequence[str]) -> str:
    """Return what is wrong with the names of a query's parameters; empty when all are known."""
    try:
        names = parse_qs(query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError:
        return f"the query has more than {_FIELDS_MAX} parameters"
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            accepted = f"accepted: {', '.join(known)}" if known else "this path accepts none"
            return f"unknown query parameter {name!r}; {f'did you mean {near[0]}? ' if near else ''}{accepted}"
    return ""


def _named(blocked: Sequence[tuple[str, str]], *, authorised: bool) -> dict[str, object]:
    """Return the blocked rows: their tables, and if authorised their keys."""
    if not blocked:
        return {}
    if not authorised:
        return {"blocked": [{"table": table} for table in dict.fromkeys(table for table, _ in blocked)]}
    return {"blocked": [{"table": table, "key": key} for table, key in blocked]}


def _parsed(query: str) -> tuple[str, WaitRequest, float]:
    """Return the LSN as given, the request, and its timeout. Raises UsageError."""
    wrong = unknown_parameter(query, _PARAMETERS)
    if wrong:
        raise UsageError(wrong, hint="expected e.g. ?lsn=0/1B014F8&timeout_s=10")
    fields = parse_qs(query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    if "lsn" not in fields:
        raise UsageError(
            "lsn is missing", hint="expected e.g. ?lsn=0/1B014F8, from pg_current_wal_insert_lsn() after COMMIT"
        )
    lsn = parse_wait_lsn(fields["lsn"][-1])
    text = fields.get("timeout_s", [str(TIMEOUT_DEFAULT_S)])[-1]
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = math.nan
    if not 0 <= timeout_s <= TIMEOUT_MAX_S:
        raise UsageError(
            f"invalid timeout_s {text!r}", hint=f"expected 0 to {TIMEOUT_MAX_S:.0f}; to wait longer, ask again"
        )
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
    """Return an answer that reports an error."""
    return Answer(code, {"error": text})
