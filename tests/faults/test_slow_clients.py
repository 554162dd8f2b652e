"""A thousand clients that never finish their requests take neither the endpoints nor the memory from others."""

from __future__ import annotations

import http.client
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.access import Access
from cdc.web.http_server import WebServer
from tests.fixtures.faults.issuing import Authority
from tests.fixtures.servers.manual_clock import ManualClock

_CLIENTS = 1000
_FILES = 4 * _CLIENTS
_GROWTH_MB = 50


@contextmanager
def enough_files() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(_FILES, limits[1])), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def livez(port: int, certificate: Path | None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_thousand_slow_clients_do_not_delay_livez(tmp_path: Path, *, tls: bool) -> None:
    metrics = Metrics("shop")
    certificate, key = Authority(tmp_path).issue() if tls else (None, None)
    access = Access(certificate=str(certificate or ""), key=str(key or ""))
    with enough_files(), ExitStack() as held:
        server = WebServer("127.0.0.1:0", Status("shop", ManualClock(), metrics), metrics, access=access)
        held.callback(server.close)
        before_mb, took_s = resident_mb(), []
        for number in range(_CLIENTS):
            client = held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            client.setblocking(False)
            client.send(b"\x16\x03\x01" if tls else b"GET /metrics HTTP/1.1\r\n"[: number % 20 + 1])
            if number % 50 == 49:
                began_s = time.monotonic()
                assert livez(server.port, certificate) == 200
                took_s.append(time.monotonic() - began_s)
        growth_mb = resident_mb() - before_mb
        print(f"{_CLIENTS} clients: {growth_mb:.1f} MB, /livez at most {max(took_s):.3f} s")

        assert growth_mb < _GROWTH_MB
