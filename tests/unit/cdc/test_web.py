"""The daemon's HTTP endpoints, over a real socket on loopback."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from cdc.errors import ConfigError
from cdc.model.run_state import State
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.http_server import WebServer
from tests.fixtures.servers.http_probe import ask
from tests.fixtures.servers.manual_clock import ManualClock


class Web:
    """A server on a free port."""

    def __init__(self, listen: str = "127.0.0.1:0") -> None:
        metrics = Metrics("shop")
        self.status = Status("shop", ManualClock(), metrics)
        self.server = WebServer(listen, self.status, metrics)
        self.host = listen.rpartition(":")[0].strip("[]")

    def ask(self, path: str, method: str = "GET") -> tuple[int, str, bytes]:
        """Return status code, content type and body."""
        return ask(self.host, self.server.port, path, method=method)


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    """One server for all tests of this file, because closing one takes a while; each test sets the state it needs."""
    found = Web()
    yield found
    found.server.close()


def test_livez_says_ok_whatever_capture_does(web: Web) -> None:
    web.status.enter(State.GAP)

    assert web.ask("/livez")[::2] == (200, b"ok\n")


def test_readyz_follows_the_state(web: Web) -> None:
    answers = []
    for state in (State.STARTING, State.RUNNING, State.WAITING, State.MISCONFIGURED):
        web.status.enter(state)
        answers.append(web.ask("/readyz")[::2])

    assert answers == [(503, b"STARTING\n"), (200, b"CATCHING_UP\n"), (503, b"WAITING\n"), (503, b"MISCONFIGURED\n")]


def test_status_is_the_document(web: Web) -> None:
    code, kind, body = web.ask("/status")

    assert (code, kind) == (200, "application/json")
    assert json.loads(body) == web.status.snapshot()


def test_metrics_are_in_the_text_format(web: Web) -> None:
    web.status.enter(State.STARTING)

    code, kind, body = web.ask("/metrics")

    assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'\ncdc_rows_total{pipeline="shop"} 0.0\n' in body
    assert b'\ncdc_state{pipeline="shop",state="STARTING"} 1.0\n' in body


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/status"])
def test_query_parameter_that_a_path_does_not_have_is_refused_by_its_name(web: Web, path: str) -> None:
    code, kind, body = web.ask(f"{path}?verbose=1")

    assert (code, kind) == (400, "application/json")
    assert "'verbose'" in json.loads(body)["error"]


@pytest.mark.parametrize("path", ["/", "/livez/", "/etc/passwd", "/../cdc.toml", "/status/../x", "//", "/%2e%2e"])
def test_any_other_path_is_not_found_and_names_those_there_are(web: Web, path: str) -> None:
    code, _, body = web.ask(path)

    assert code == 404
    assert b"/status" in body


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/status", "/nowhere"])
def test_head_is_get_without_a_body(web: Web, path: str) -> None:
    asked = web.ask(path)

    assert web.ask(path, "HEAD") == (*asked[:2], b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed_over_http(web: Web, method: str) -> None:
    code, _, body = web.ask("/status", method)

    assert code == 405
    assert method in json.loads(body)["error"]


def test_port_that_is_taken_is_refused_with_the_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(ConfigError, match=r"http\.listen") as caught:
            Web(f"127.0.0.1:{port}")

    assert "http" in caught.value.command


def test_unknown_host_is_refused_with_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"http\.listen"):
        Web("203.0.113.7:0")


def test_ipv6_is_listened_on() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        web = Web("[::1]:0")
    except ConfigError:
        pytest.skip("no IPv6 loopback here")
    try:
        assert web.ask("/livez")[0] == 200
    finally:
        web.server.close()


def test_port_is_free_again_after_close() -> None:
    web = Web()
    port = web.server.port
    web.server.close()

    again = Web(f"127.0.0.1:{port}")

    assert again.ask("/livez")[0] == 200
    again.server.close()
