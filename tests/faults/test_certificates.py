"""Certificates with one defect, and MD5 where SCRAM is required: a named stop for either server (F4)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest

from tests.faults.test_source_access import CANARY, as_role, assert_refused, passwords_asked
from tests.fixtures.faults.issuing import Authority
from tests.fixtures.servers.tls_fronts import handshakes, tls_front

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite

WRONG: Final = ("another authority", "another host", "expired")
_BROKER_S: Final = 60.0


@pytest.fixture(autouse=True)
def table(capture: CaptureSite) -> None:
    """A table to capture."""
    capture.sql("create table t (id int primary key)")


def issued(folder: Path, wrong: str = "") -> tuple[Path, Path, Path]:
    """What a client trusts, and certificate and key of a server."""
    trusted = Authority(folder)
    signing = Authority(folder, "another") if wrong == "another authority" else trusted
    host = "db.example" if wrong == "another host" else "127.0.0.1"
    return trusted.ca, *signing.issue(host, expired=wrong == "expired")


def test_server_with_a_right_certificate_is_captured_from(capture: CaptureSite, tmp_path: Path) -> None:
    """So that what the others refuse is the one thing that is wrong."""
    ca, certificate, key = issued(tmp_path)
    with tls_front(port_of(capture), certificate, key) as port:
        daemon = capture.running({"source": {"dsn": verified(capture, port, ca)}})
        daemon.until_position(capture.sql("insert into t values (1)"))

        assert daemon.stop() == 0


@pytest.mark.parametrize("wrong", WRONG)
def test_server_whose_certificate_is_wrong_is_a_named_stop(capture: CaptureSite, tmp_path: Path, wrong: str) -> None:
    ca, certificate, key = issued(tmp_path, wrong)
    with tls_front(port_of(capture), certificate, key) as port:
        stop = assert_refused(capture.daemon({"source": {"dsn": verified(capture, port, ca)}}), "certificate")

    assert "sslrootcert" in stop["hint"]
    assert "expired" in stop["hint"]
    assert ("does not match host name" in stop["message"]) == (wrong == "another host")


@pytest.mark.parametrize("wrong", WRONG[1:])  # the first one: tests/faults/test_broker_access.py
def test_broker_whose_certificate_is_wrong_is_a_named_stop(capture: CaptureSite, tmp_path: Path, wrong: str) -> None:
    ca, certificate, key = issued(tmp_path, wrong)
    options: dict[str, Any] = {"security.protocol": "SSL", "ssl.ca.location": str(ca)}
    with handshakes(certificate, key) as port:
        daemon = capture.daemon({"kafka": {"bootstrap": f"127.0.0.1:{port}", "options": options}})
        stop = daemon.stopped_with(_BROKER_S)

    assert (stop["state"], stop["exit_code"]) == ("MISCONFIGURED", 3)
    assert "ssl.ca.location" in stop["hint"]
    assert "dates" in stop["hint"]
    assert "certificate" in stop["message"].lower()


def test_md5_is_refused_by_name_where_scram_is_asked_for(capture: CaptureSite) -> None:
    role = f"{capture.name}_md5"
    capture.sql(
        "set password_encryption = 'md5'", f"create role {role} login replication superuser password '{CANARY}'"
    )
    try:
        with passwords_asked(capture, role, method="md5"):
            dsn = f"{as_role(capture, role, CANARY)}?require_auth=scram-sha-256"
            daemon = capture.daemon({"source": {"dsn": dsn}})
            assert_refused(daemon, "authentication method")
            assert CANARY not in daemon.log_text()
    finally:
        capture.end()
        capture.sql(f"drop role {role}")


def verified(capture: CaptureSite, port: int, ca: Path) -> str:
    """The DSN by way of a front, with everything checked."""
    password, path = urlsplit(capture.dsn).password, urlsplit(capture.dsn).path
    return f"postgresql://postgres:{password}@127.0.0.1:{port}{path}?sslmode=verify-full&sslrootcert={ca}"


def port_of(capture: CaptureSite) -> int:
    port = urlsplit(capture.dsn).port
    assert port is not None
    return port
