"""Limits of the HTTP server: connections, bytes and time of a request; row keys only with the bearer token."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cdc.clock import SystemClock
from cdc.config.load import load, parse
from cdc.config.secret import Secret
from cdc.errors import ConfigError
from cdc.lsn import Lsn
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.access import Access
from cdc.web.bounded_protocol import HEAD_BYTES_MAX, Limits
from cdc.web.http_server import WebServer
from cdc.web.wait_endpoint import WaitRoute
from sinks.operate.lsn_wait import AppliedCut, SinkProbe
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.waiting import until

_TOKEN = "s3cret-token"
_KEY = '{"id":"4711"}'


def _served(token: str, limits: Limits | None = None) -> WebServer:
    metrics = Metrics("shop")
    sight = SinkProbe(lambda: AppliedCut(1, Lsn(0x100)), blocked_keys=lambda: [("public.t", _KEY)])
    waits = WaitRoute({"cache": sight}, SystemClock())
    return WebServer(
        "127.0.0.1:0", Status("shop", ManualClock(), metrics), metrics, waits=waits, access=Access(token), limits=limits
    )


@pytest.fixture
def port() -> Iterator[int]:
    made = _served(_TOKEN)
    yield made.port
    made.close()


def _wait(port: int, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/sinks/cache/wait?lsn=0/1", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_row_keys_are_answered_only_with_the_bearer_token(port: int) -> None:
    allowed, without = _wait(port, Authorization=f"Bearer {_TOKEN}"), _wait(port)
    given = ("Bearer x", f"Basic {_TOKEN}", f"Bearer {_TOKEN}x", "\xff")
    wrong = [_wait(port, Authorization=one) for one in given]

    assert allowed[0] == 200
    assert json.loads(allowed[1])["blocked"] == [{"table": "public.t", "key": _KEY}]
    assert without[0] == 200
    assert json.loads(without[1])["blocked"] == [{"table": "public.t"}]
    assert [code for code, _ in wrong] == [401] * 4
    assert not any("4711" in body for _, body in [without, *wrong])


def test_without_a_configured_token_no_request_is_authorised() -> None:
    made = _served("")
    try:
        found = [_wait(made.port, Authorization=given) for given in ("Bearer", "Bearer ", "Bearer x")]
    finally:
        made.close()

    assert [code for code, _ in found] == [200] * 3
    assert not any("4711" in body for _, body in found)


_CONFIG = """
name = "shop"
source = {dsn = "postgresql://localhost/shop"}
kafka = {bootstrap = "localhost:9092"}
"""


def test_token_comes_from_the_environment_or_a_file_and_is_masked(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{_TOKEN}\nmore\n", encoding="utf-8")
    by_file = parse(f"{_CONFIG}[http]\ntoken_file = '{tmp_path / 'token'}'", {})
    by_name = parse(_CONFIG, {"TAILRACE_HTTP_TOKEN": _TOKEN})

    assert [one.http.token for one in (by_file, by_name, parse(_CONFIG, {}))] == [Secret(_TOKEN), Secret(_TOKEN), None]
    assert _TOKEN not in repr(by_file)
    (tmp_path / "cdc.toml").write_text(f"{_CONFIG}[http]\ntoken_file = '{tmp_path / 'none'}'", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"http\.token_file"):
        load(tmp_path / "cdc.toml", {})


def _sent(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(data)
            return connection.recv(100)
        except ConnectionError:
            return b""


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"a: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"a: x\r\n" * (HEAD_BYTES_MAX // 6) + b"\r\n",
    ],
)
def test_head_that_is_too_long_is_refused(port: int, head: bytes) -> None:
    # A reset may arrive before the answer.
    assert _sent(port, head)[:13] in {b"HTTP/1.1 400 ", b""}
    assert _wait(port)[0] == 200


def test_request_whose_bytes_come_one_by_one_ends_at_the_deadline() -> None:
    made = _served(_TOKEN, Limits(connections_max=8, receive_s=0.5, answer_s=60))
    with socket.create_connection(("127.0.0.1", made.port), timeout=20) as connection:
        began_s = time.monotonic()

        def hung_up() -> bool:
            try:
                connection.sendall(b"a")
                connection.settimeout(0.05)
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        until(hung_up, "the server hangs up", within_s=30)
    made.close()

    assert time.monotonic() - began_s >= 0.4


def test_slow_clients_give_their_places_to_new_ones() -> None:
    made = _served(_TOKEN, Limits(connections_max=4, receive_s=60, answer_s=60))
    try:
        with ExitStack() as held:
            slow = [
                held.enter_context(socket.create_connection(("127.0.0.1", made.port), timeout=20)) for _ in range(9)
            ]
            for one in slow[-4:]:
                one.sendall(b"GET /livez HTTP/1.1\r\n")
            answer = _wait(made.port)

        assert answer[0] == 200
        assert slow
    finally:
        made.close()


def test_connection_is_refused_while_every_place_is_answered() -> None:
    limits = Limits(connections_max=2, receive_s=60, answer_s=60)
    made = _served(_TOKEN, limits)
    waiting = b"GET /sinks/cache/wait?lsn=F/0&timeout_s=20 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    try:
        with ExitStack() as held:
            for _ in range(2):
                held.enter_context(socket.create_connection(("127.0.0.1", made.port), timeout=20)).sendall(waiting)
            until(lambda: len(made._server.server_state.tasks) == 2, "both requests are being answered")
            refused = _sent(made.port, b"")
        until(lambda: not made._server.server_state.connections, "every place is free again")

        assert refused.startswith(b"HTTP/1.1 503 ")
        assert _wait(made.port)[0] == 200
    finally:
        made.close()


def test_client_that_does_not_read_its_answer_loses_its_place() -> None:
    made = _served(_TOKEN, Limits(connections_max=8, receive_s=60, answer_s=0.5))
    head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    try:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(20)
            connection.connect(("127.0.0.1", made.port))

            def given_up() -> bool:
                try:
                    connection.sendall(head)  # more and more answers that are not read
                except ConnectionError:
                    return True
                except TimeoutError:
                    return False
                return not made._server.server_state.connections

            connection.settimeout(0.2)
            until(given_up, "the server hangs up", within_s=30)
        assert _wait(made.port)[0] == 200
    finally:
        made.close()


def test_client_that_reads_a_long_answer_slowly_gets_all_of_it() -> None:
    class Page:
        def render(self) -> bytes:
            return b"x" * (16 << 20)

    status = Status("shop", ManualClock(), Metrics("shop"))
    made = WebServer("127.0.0.1:0", status, Page(), limits=Limits(connections_max=8, receive_s=0.3, answer_s=60))
    try:
        with socket.create_connection(("127.0.0.1", made.port), timeout=20) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            time.sleep(1)
            count = 0
            while part := connection.recv(1 << 20):
                count += len(part)
        assert count > 16 << 20
    finally:
        made.close()
