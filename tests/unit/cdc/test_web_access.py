"""Who is answered: the header Host, HTTPS, and a certificate that is renewed."""

from __future__ import annotations

import http.client
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog
from cryptography import x509
from cryptography.x509.oid import NameOID

from cdc.config.settings import Http
from cdc.errors import ConfigError, SourceUnreachable
from cdc.inspect.pipeline_state import ask_daemon
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web import http_server
from cdc.web.access import Access, is_loopback
from cdc.web.http_server import WebServer
from tests.fixtures.faults.issuing import Authority
from tests.fixtures.servers.manual_clock import ManualClock
from tests.fixtures.servers.waiting import until


@contextmanager
def served(access: Access, listen: str = "127.0.0.1:0") -> Iterator[WebServer]:
    metrics = Metrics("shop")
    made = WebServer(listen, Status("shop", ManualClock(), metrics), metrics, access=access)
    try:
        yield made
    finally:
        made.close()


def asked(port: int, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/status", headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


def test_page_of_another_site_cannot_read_the_endpoints_by_a_name_of_its_own() -> None:
    with served(Access()) as made:
        own = ["localhost", "LOCALHOST:8087", "127.0.0.1", f"127.0.0.1:{made.port}", "[::1]:8087", "localhost."]
        foreign = [
            "evil.example",
            "evil.example:8087",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "a b",
            "::x",
        ]
        found = {host: asked(made.port, host) for host in (*own, *foreign)}

    assert found == {**dict.fromkeys(own, 200), **dict.fromkeys(foreign, 421)}


def test_configured_host_is_answered() -> None:
    with served(Access(hosts=("Tailrace.example",))) as made:
        found = [asked(made.port, host) for host in ("tailrace.example", "tailrace.example:80", "other.example")]

    assert found == [200, 200, 421]


def test_server_on_other_addresses_answers_for_every_name_until_hosts_are_configured() -> None:
    open_access, named = Access(), Access(hosts=("tailrace",))

    assert open_access.accepts("capture.svc:8087", on_loopback=False)
    assert named.accepts("tailrace:8087", on_loopback=False)
    assert not named.accepts("capture.svc:8087", on_loopback=False)
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::", "db.example")] == [
        *(True, True, True, False, False, False)
    ]


def test_request_without_a_host_is_answered() -> None:
    assert Access().accepts("", on_loopback=True)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_status_is_read_over_https_with_the_configured_certificate(authority: Authority) -> None:
    certificate, key = map(str, authority.issue())
    other, _ = map(str, Authority(authority.folder, "other").issue())
    with served(Access(certificate=certificate, key=key)) as made:
        listen = f"127.0.0.1:{made.port}"

        assert ask_daemon(Http(listen=listen, tls_certificate=certificate), "shop")["name"] == "shop"
        for wrong in (Http(listen=listen), Http(listen=listen, tls_certificate=other)):
            with pytest.raises(SourceUnreachable, match="answers on"):
                ask_daemon(wrong, "shop")


def test_certificate_and_key_may_be_in_one_file(authority: Authority) -> None:
    certificate, key = authority.issue()
    both = authority.folder / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())

    with served(Access(certificate=str(both))) as made:
        listen = f"127.0.0.1:{made.port}"
        assert ask_daemon(Http(listen=listen, tls_certificate=str(both)), "shop")


def subject(port: int, trusted: Path) -> str:
    context = ssl.create_default_context(cafile=str(trusted))
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.connect()
        pem = ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(binary_form=True) or b"")
        (name,) = x509.load_pem_x509_certificate(pem.encode()).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(name.value)
    finally:
        connection.close()


def test_renewed_certificate_is_used_without_a_restart(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_CERTIFICATE_EVERY_S", 0.02)
    used = [authority.folder / "used.pem", authority.folder / "used.key"]
    for made, place in zip(authority.issue("old.example"), used, strict=True):
        shutil.copy(made, place)
    access = Access(certificate=str(used[0]), key=str(used[1]))
    with structlog.testing.capture_logs() as logged, served(access) as server:
        before = subject(server.port, authority.ca)
        renewed = authority.issue("new.example")
        shutil.copy(renewed[0], used[0])  # a certificate that does not belong to the key yet
        until(lambda: "http_certificate_not_loaded" in {one["event"] for one in logged}, "the pair is refused")
        between = subject(server.port, authority.ca)
        shutil.copy(renewed[1], used[1])
        until(lambda: subject(server.port, authority.ca) == "new.example", "the new certificate is used")

    assert (before, between) == ("old.example", "old.example")


def test_certificate_that_cannot_be_loaded_is_refused_with_its_setting(authority: Authority) -> None:
    certificate, key = map(str, authority.issue())
    _, foreign = map(str, authority.issue("other.example"))
    text = authority.folder / "text.pem"
    text.write_text("no certificate", encoding="utf-8")
    for wrong in (
        Access(certificate=str(authority.folder / "missing.pem")),
        Access(certificate=str(text)),
        Access(certificate=certificate),
        Access(certificate=certificate, key=foreign),
    ):
        with pytest.raises(ConfigError, match=r"http\.tls_certificate") as caught, served(wrong):
            pass
        assert "http.tls_key" in caught.value.hint
    with served(Access(certificate=certificate, key=key)):
        pass
