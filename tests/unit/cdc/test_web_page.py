"""The routes of the live page over a real socket: who sees values, what is refused, and the stream of the picture."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cdc.clock import SystemClock
from cdc.config.load import parse
from cdc.errors import BrokerUnreachable, TopicMismatch
from cdc.model.run_state import State
from cdc.overview.desk import Desk
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.access import Access
from cdc.web.http_server import WebServer
from cdc.web.page_routes import RUNNING_MAX
from cdc.web.page_stream import VIEWERS_MAX
from tests.fixtures.servers.http_probe import ask
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = "s3cret-token"
_CONFIG = parse(
    'name = "shop"\n[source]\ndsn = "postgresql://cdc:hidden@db.invalid/shop"\n[kafka]\nbootstrap = "kafka.invalid:9"',
    {},
)


class _Desk(Desk):
    """Answers without Kafka."""

    def __init__(self, status: Status) -> None:
        super().__init__(_CONFIG, status, SystemClock(), left_out=list, settings=list, file=None)
        self.pictures = 0
        self.blocked = threading.Event()
        self.asked = 0

    def picture(self) -> dict[str, Any]:
        self.pictures += 1
        return super().picture()

    def tables(self, search: str, state: str, offset: int, limit: int) -> dict[str, Any]:
        return {"search": search, "state": state, "offset": offset, "limit": limit}

    def topics(self, search: str, offset: int, limit: int) -> dict[str, Any]:
        if search == "slow":
            self.asked += 1
            self.blocked.wait(20)
        raise BrokerUnreachable("Kafka does not answer", hint="start it", command="cdc doctor")

    def findings(self) -> dict[str, Any]:
        raise TopicMismatch("the topic is damaged")

    def lakes(self) -> dict[str, Any]:
        raise ValueError("a defect")

    def dead_letters(self, sink: str, *, authorised: bool) -> dict[str, Any]:
        return {"sink": sink, "keys": ["k"] if authorised else None}

    def key(self, table: str, key: str) -> dict[str, Any]:
        return {"events": [table, key]}


class _Page:
    def __init__(self, token: str = _TOKEN) -> None:
        metrics = Metrics("shop")
        self.status = Status("shop", ManualClock(), metrics)
        self.status.enter(State.RUNNING)
        self.desk = _Desk(self.status)
        self.server = WebServer("127.0.0.1:0", self.status, metrics, desk=self.desk, access=Access(token))

    def get(self, path: str, token: str = "") -> tuple[int, dict[str, Any]]:
        """Return code and document."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    @contextmanager
    def stream(self) -> Iterator[http.client.HTTPResponse]:
        """Open a stream of the picture."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        try:
            connection.request("GET", "/api/stream")
            yield connection.getresponse()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def page() -> Iterator[_Page]:
    found = _Page()
    yield found
    found.desk.blocked.set()
    found.server.close()


def test_session_says_whether_the_token_is_right(page: _Page) -> None:
    assert [page.get("/api/session", token)[1]["token"] for token in ("", "other", _TOKEN)] == [
        "none",
        "wrong",
        "valid",
    ]
    assert page.get("/api/session")[1]["token_configured"] is True


def test_parameters_have_defaults_and_are_checked(page: _Page) -> None:
    code, found = page.get("/api/tables?search=ord&offset=5")

    assert (code, found) == (200, {"search": "ord", "state": "all", "offset": 5, "limit": 100})
    for query in ("limit=0", "limit=1001", "offset=-1", "limit=a", "limit=%C2%B2", "serch=x"):
        assert page.get(f"/api/tables?{query}")[0] == 400
    assert page.get("/api/table") == (400, {"error": "the parameter name is missing: schema.table"})


def test_errors_have_their_hint_and_command_and_say_who_must_act(page: _Page) -> None:
    assert page.get("/api/topics") == (
        503,
        {"error": "Kafka does not answer", "hint": "start it", "command": "cdc doctor"},
    )
    assert page.get("/api/findings")[0] == 409


def test_a_defect_is_answered_without_its_text(page: _Page) -> None:
    code, found = page.get("/api/lakes")

    assert code == 500
    assert "a defect" not in found["error"]


def test_values_of_rows_are_shown_only_with_the_token(page: _Page) -> None:
    assert page.get("/api/dead-letters")[1]["keys"] is None
    assert page.get("/api/dead-letters", _TOKEN)[1]["keys"] == ["k"]
    assert page.get("/api/key?table=t&key=1")[0] == 401
    assert page.get("/api/key?table=t&key=1", "other")[0] == 401
    assert page.get("/api/key?table=t&key=1", _TOKEN)[0] == 200


def test_address_of_a_page_that_is_typed_without_its_hash_leads_to_the_page(page: _Page) -> None:
    code, _, body = ask("127.0.0.1", page.server.port, "/tables")

    assert code == 404
    assert b"/ (the page)" in body


def test_a_wrong_token_is_refused_even_where_none_is_needed(page: _Page) -> None:
    assert page.get("/api/picture", "other")[0] == 401
    assert page.get("/api/picture")[0] == 200


def test_without_a_configured_token_no_request_sees_values() -> None:
    page = _Page(token="")
    try:
        assert page.get("/api/key?table=t&key=1", "")[0] == 403
        assert page.get("/api/session", "x")[1] | {"version": ""} == {
            "name": "shop", "version": "", "token": "wrong", "token_configured": False,
        }  # fmt: skip
    finally:
        page.server.close()


def test_documents_that_wait_for_kafka_delay_neither_livez_nor_the_picture(page: _Page) -> None:
    page.desk.blocked.clear()
    page.desk.asked = 0
    threads = [threading.Thread(target=page.get, args=("/api/topics?search=slow",)) for _ in range(RUNNING_MAX + 2)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: page.desk.asked == RUNNING_MAX, "all threads are taken")
        assert ask("127.0.0.1", page.server.port, "/livez")[0] == 200
        with page.stream() as stream:
            assert stream.readline() == b"retry: 1000\n"
    finally:
        page.desk.blocked.set()
        for thread in threads:
            thread.join()


def test_stream_sends_the_picture_at_once_and_then_again(page: _Page) -> None:
    with page.stream() as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        lines = [stream.readline() for _ in range(9)]

    pictures = [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]
    assert len(pictures) == 2
    assert pictures[0]["name"] == "shop"


def test_picture_is_computed_for_all_viewers_at_once_and_not_without_viewers(page: _Page) -> None:
    with page.stream() as one, page.stream() as two, page.stream() as three:
        for stream in (one, two, three):
            [stream.readline() for _ in range(5)]
        before = page.desk.pictures
        for _ in range(6):
            one.readline()
        assert page.desk.pictures - before <= 3
    until(lambda: not _computes(page), "the picture is computed no more")


def _computes(page: _Page) -> bool:
    """Whether the picture is computed within 1.5 s."""
    before = page.desk.pictures
    threading.Event().wait(1.5)
    return page.desk.pictures != before


def test_one_viewer_too_many_is_refused(page: _Page) -> None:
    connections = []
    try:
        codes = []
        for _ in range(VIEWERS_MAX + 1):
            connection = http.client.HTTPConnection("127.0.0.1", page.server.port, timeout=10)
            connection.request("GET", "/api/stream")
            connections.append(connection)
            codes.append(connection.getresponse().status)
        assert codes == [200] * VIEWERS_MAX + [503]
    finally:
        for connection in connections:
            connection.close()
    until(lambda: _code_of_stream(page) == 200, "a place is free again")


def _code_of_stream(page: _Page) -> int:
    with page.stream() as stream:
        return stream.status
