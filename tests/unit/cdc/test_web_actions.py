"""/actions over a real socket on loopback: who may use it, what is refused, and what is answered."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cdc.control.action_log import Newest
from cdc.control.action_record import ActionRecord, Actor
from cdc.control.perform import Outcome
from cdc.control.requests import ActionRequest, SinkPause, action_of
from cdc.errors import BrokerRefused, BrokerUnreachable, SinkBehind, TailraceError, TopicMismatch, UsageError
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.access import Access
from cdc.web.actions_endpoint import BODY_BYTES_MAX, RUNNING_MAX, ActionsRoute
from cdc.web.http_server import WebServer
from tests.fixtures.servers.http_probe import ask
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TOKEN = "s3cret-token"
_PAUSE = b'{"action": "sink.pause", "sink": "search"}'
_RECORD = ActionRecord(
    at="2026-11-28T08:00:00.000+00:00",
    who="ann",
    origin="db7 pid 41",
    via="cli",
    action="sink.pause",
    arguments={"sink": "search"},
    result="done",
)


class Performer:
    """Notes what it must perform, and answers as it is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[ActionRequest, Actor]] = []
        self.limits: list[int] = []
        self.error: TailraceError | None = None
        self.warning = ""
        self.before: Callable[[], object] = lambda: None

    def perform(self, request: ActionRequest, actor: Actor) -> Outcome:
        self.asked.append((request, actor))
        self.before()
        if self.error is not None:
            return Outcome(action_of(request), "refused", error=self.error, warning=self.warning)
        return Outcome(action_of(request), "done", {"workers": 2}, warning=self.warning)

    def newest(self, limit: int) -> Newest:
        self.limits.append(limit)
        if self.error is not None:
            raise self.error
        return Newest((_RECORD,), unreadable=1)


@contextmanager
def served(performer: Performer, token: str = _TOKEN) -> Iterator[int]:
    metrics = Metrics("shop")
    actions = ActionsRoute(performer.perform, performer.newest)
    made = WebServer(
        "127.0.0.1:0", Status("shop", ManualClock(), metrics), metrics, actions=actions, access=Access(token)
    )
    try:
        yield made.port
    finally:
        made.close()


@pytest.fixture
def performer() -> Performer:
    return Performer()


@pytest.fixture
def port(performer: Performer) -> Iterator[int]:
    with served(performer) as found:
        yield found


def _sent(
    port: int,
    body: bytes | None = _PAUSE,
    *,
    method: str = "POST",
    path: str = "/actions",
    token: str | None = f"Bearer {_TOKEN}",
    kind: str | None = "application/json",
) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": token, "Content-Type": kind}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, {name: value for name, value in headers.items() if value is not None})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_action_is_performed_for_the_token_from_the_address_of_the_client(port: int, performer: Performer) -> None:
    code, found = _sent(port, kind="Application/JSON; charset=utf-8")

    ((request, actor),) = performer.asked
    assert (code, found) == (
        200,
        {"action": "sink.pause", "result": "done", "recorded": True, "facts": {"workers": 2}},
    )
    assert request == SinkPause(sink="search")
    assert (actor.who, actor.via) == ("token", "http")
    assert actor.origin.startswith("127.0.0.1:")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("token", [None, "", "Bearer", "Bearer x", f"Basic {_TOKEN}", f"Bearer {_TOKEN}x", "\xff"])
def test_without_the_token_nothing_is_performed_or_listed(
    port: int, performer: Performer, method: str, token: str | None
) -> None:
    code, found = _sent(port, _PAUSE if method == "POST" else None, method=method, token=token)

    assert (code, list(found)) == (401, ["error"])
    assert (performer.asked, performer.limits) == ([], [])


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_a_configured_token_actions_are_refused_with_the_setting(performer: Performer, method: str) -> None:
    with served(performer, token="") as port:
        found = [_sent(port, method=method, token=given) for given in (None, "Bearer", "Bearer x")]

    assert [code for code, _ in found] == [403] * 3
    assert all("http.token" in answer["error"] for _, answer in found)
    assert (performer.asked, performer.limits) == ([], [])


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_other_content_types_are_refused(port: int, performer: Performer, kind: str | None) -> None:
    assert _sent(port, kind=kind)[0] == 415
    assert performer.asked == []


def test_body_that_is_too_long_is_refused(port: int, performer: Performer) -> None:
    fits = _PAUSE.ljust(BODY_BYTES_MAX)

    assert [_sent(port, body)[0] for body in (fits, fits + b" ")] == [200, 413]
    assert len(performer.asked) == 1


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"action": "x"}', b'{"action": "sink.pause", "sink": "s", "x": 1}', b"\xff"]
)
def test_bad_body_is_answered_with_what_is_wrong_and_a_hint(port: int, performer: Performer, body: bytes) -> None:
    code, found = _sent(port, body)

    assert code == 400
    assert found["error"].startswith("invalid action: ")
    assert "sink.pause" in found["hint"]
    assert performer.asked == []


def test_query_of_an_action_is_refused(port: int, performer: Performer) -> None:
    assert _sent(port, path="/actions?dry_run=1")[0] == 400
    assert performer.asked == []


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_refused_with_those_there_are(port: int, method: str) -> None:
    code, found = _sent(port, method=method)

    assert code == 405
    assert found["error"].endswith("use GET or POST")


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (UsageError("unknown sink", hint="configured: search"), 409),
        (TopicMismatch("capture has never run", hint="start it"), 409),
        (BrokerRefused("not allowed", hint="grant Write"), 409),
        (BrokerUnreachable("no broker answers", hint="start it"), 503),
        (SinkBehind("1 of 2 workers have not stopped", hint="the pause stays in effect"), 504),
    ],
)
def test_refused_action_is_answered_with_its_reason_and_hint(
    port: int, performer: Performer, error: TailraceError, wanted: int
) -> None:
    performer.error = error

    code, found = _sent(port)

    assert code == wanted
    assert (found["error"], found["hint"], found["class"]) == (error.message, error.hint, type(error).__name__)
    assert (found["action"], found["recorded"]) == ("sink.pause", True)


def test_action_that_is_not_recorded_says_so(port: int, performer: Performer) -> None:
    performer.warning = "no broker answers"

    code, found = _sent(port)

    assert code == 200
    assert (found["recorded"], found["warning"]) == (False, "no broker answers")


def test_newest_actions_are_listed(port: int, performer: Performer) -> None:
    code, found = _sent(port, None, method="GET")
    _sent(port, None, method="GET", path="/actions?limit=1000")

    assert code == 200
    assert found["unreadable"] == 1
    assert [(one["who"], one["from"], one["result"]) for one in found["actions"]] == [("ann", "db7 pid 41", "done")]
    assert performer.limits == [20, 1000]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=", "limit=-1", "limit=%C2%B2", "n=1"])
def test_invalid_limit_is_refused(port: int, performer: Performer, query: str) -> None:
    code, found = _sent(port, None, method="GET", path=f"/actions?{query}")

    assert code == 400
    assert found["hint"]
    assert performer.limits == []


def test_list_that_cannot_be_read_is_answered_with_the_reason(port: int, performer: Performer) -> None:
    performer.error = BrokerUnreachable("no broker answers")

    assert _sent(port, None, method="GET") == (503, {"error": "no broker answers", "class": "BrokerUnreachable"})


def test_more_actions_than_run_at_once_are_refused_and_probes_are_answered(port: int, performer: Performer) -> None:
    """A request that waited for its turn could act long after its client has left."""
    held = threading.Event()
    performer.before = held.wait
    codes: list[int] = []
    running = [threading.Thread(target=lambda: codes.append(_sent(port)[0])) for _ in range(RUNNING_MAX)]
    for one in running:
        one.start()
    until(lambda: len(performer.asked) == RUNNING_MAX, "all are running")

    refused, alive = _sent(port)[0], ask("127.0.0.1", port, "/livez")[0]
    held.set()
    for one in running:
        one.join()

    assert (refused, alive) == (503, 200)
    assert codes == [200] * RUNNING_MAX


def test_server_without_actions_does_not_know_the_path() -> None:
    metrics = Metrics("shop")
    made = WebServer("127.0.0.1:0", Status("shop", ManualClock(), metrics), metrics, access=Access(_TOKEN))
    try:
        code, _, body = ask("127.0.0.1", made.port, "/actions")
        described = json.loads(ask("127.0.0.1", made.port, "/openapi.json")[2])
    finally:
        made.close()

    assert code == 404
    assert b"/actions" not in body
    assert "/actions" not in described["paths"]
