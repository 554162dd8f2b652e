"""Connections that a real server refuses: the error gives reason and fix, and never the password."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cdc.clock import SystemClock
from cdc.config.credential import Dsn, FileSecret
from cdc.config.secret import Secret
from cdc.config.settings import Config
from cdc.doctor.finding import Level
from cdc.doctor.gather import gather
from cdc.doctor.source_checks import check_source
from cdc.errors import SourceRefused, SourceUnreachable, TailraceError
from cdc.replication.connect import connect
from cdc.replication.stream import ReplicationSession
from cdc.why.error_codes import code_of
from cdc.why.evidence import Failure
from tests.fixtures.capture.source_builders import config
from tests.fixtures.servers.running_servers import Database, MakeStack, PostgresServer
from tests.fixtures.servers.tls_fronts import pooler, tls_front
from tests.fixtures.servers.waiting import until

PASSWORD = "s3cret"


@pytest.fixture(scope="module")
def openssl() -> str:
    found = shutil.which("openssl")
    if found is None:
        pytest.skip("openssl is not installed")
    return found


@pytest.fixture
def guarded(make_stack: MakeStack) -> str:
    """A server that asks role `reader` for a password and does not let it replicate, but for role `streamer`."""
    server = make_stack("postgres").postgres
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(f"create role reader login replication password '{PASSWORD}'".encode())
        admin.execute("create role idle")
        admin.execute("create role plain login")
        lines = (
            "local all all trust",
            "host all postgres 127.0.0.1/32 trust",
            "host all plain,idle 127.0.0.1/32 trust",
            "host shop reader 127.0.0.1/32 scram-sha-256",
        )
        _write(admin, "pg_hba.conf", "\n".join(lines) + "\n")
        admin.execute("select pg_reload_conf()")
        until(lambda: _refused(make_conninfo(server.dsn, user="nobody-knows")), "pg_hba.conf is in force")
    return server.dsn


def refusal(dsn: str) -> TailraceError:
    with pytest.raises(TailraceError) as caught:
        connect(Secret(dsn)).close()
    assert PASSWORD not in repr(caught.value) + caught.value.message + caught.value.hint
    return caught.value


def test_password_that_is_wrong_or_missing_is_named_as_such(guarded: str) -> None:
    for given in ("wrong", ""):
        error = refusal(make_conninfo(guarded, user="reader", password=given))

        assert isinstance(error, SourceRefused)
        assert "TAILRACE_SOURCE_PASSWORD" in error.hint

    connect(Secret(make_conninfo(guarded, user="reader", password=PASSWORD))).close()


def test_password_file_that_is_empty_during_a_rotation_is_named_and_tried_again(guarded: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch()
    dsn = Dsn(make_conninfo(guarded, user="reader"), FileSecret(str(file), "source.password_file", first_line=True))

    with pytest.raises(SourceUnreachable) as caught:
        connect(dsn)
    file.write_text(PASSWORD)

    assert caught.value.message.endswith("no password supplied: source.password_file is empty")
    assert code_of(Failure.of(caught.value)) == "credential-unavailable"
    connect(dsn).close()


def test_database_that_pg_hba_does_not_let_in_is_named_as_such(guarded: str) -> None:
    error = refusal(make_conninfo(guarded, user="reader", password=PASSWORD, dbname="postgres"))

    assert isinstance(error, SourceRefused)
    assert "pg_hba.conf" in error.message + error.hint


def test_role_that_may_not_log_in_is_named_as_such(guarded: str) -> None:
    error = refusal(make_conninfo(guarded, user="idle"))

    assert isinstance(error, SourceRefused)
    assert "not permitted to log in" in error.message


def test_role_without_replication_is_refused_with_the_script(guarded: str) -> None:
    with pytest.raises(SourceRefused) as caught:
        ReplicationSession(Secret(make_conninfo(guarded, user="plain")), application_name="x", clock=SystemClock())

    assert caught.value.command == "cdc doctor --sql"


def test_server_that_starts_or_stops_is_waited_for(make_stack: MakeStack) -> None:
    server = make_stack("postgres").postgres
    connection = connect(Secret(server.dsn))
    server.stop("fast")

    assert isinstance(refusal(server.dsn), SourceUnreachable)
    with pytest.raises(SourceUnreachable):
        _ask(connection)


def test_pooler_is_detected_with_a_hint_to_connect_directly(postgres: PostgresServer, database: Database) -> None:
    with pooler(postgres.port) as port:
        facts = gather(settings(make_conninfo(database.dsn, port=port)))

        found = {f.check: f for f in check_source(facts, settings(database.dsn)) if f.level is Level.ERROR}

    assert set(found) == {"pooler", "replication_connection"}
    assert "connect directly" in found["replication_connection"].message


def test_no_pooler_is_seen_where_there_is_none(database: Database) -> None:
    facts = gather(settings(database.dsn))

    assert not facts.pooled
    assert facts.replication_error is None


def test_certificate_is_checked_as_libpq_checks_it(postgres: PostgresServer, openssl: str, tmp_path: Path) -> None:
    certificate = _certificate(openssl, tmp_path / "server", "db.example")
    other = _certificate(openssl, tmp_path / "other", "other.example")

    with tls_front(postgres.port, certificate, certificate.with_name("server.key")) as port:
        dsn = make_conninfo(postgres.dsn, port=port, sslmode="verify-full", sslrootcert=str(certificate))
        named = make_conninfo(dsn, host="db.example", hostaddr="127.0.0.1")
        connect(Secret(named)).close()

        for wrong in (dsn, make_conninfo(named, sslrootcert=str(other)), make_conninfo(named, sslrootcert="/nowhere")):
            error = refusal(wrong)
            assert isinstance(error, SourceRefused)
            assert "sslrootcert" in error.hint


def settings(dsn: str) -> Config:
    return config(dsn=dsn)


def _ask(connection: psycopg.Connection) -> None:
    from cdc.replication.catalog_queries import current_wal

    current_wal(connection)


def _refused(dsn: str) -> bool:
    try:
        connect(Secret(dsn)).close()
    except TailraceError:
        return True
    return False


def _write(admin: psycopg.Connection, name: str, text: str) -> None:
    """Write a file of the data folder, wherever the server runs."""
    row = admin.execute("show data_directory").fetchone()
    assert row is not None
    values = ", ".join(f"('{line}')" for line in text.splitlines())
    admin.execute(f"copy (select * from (values {values}) as v) to '{row[0]}/{name}'".encode())


def _certificate(openssl: str, folder: Path, name: str) -> Path:
    """A key and a certificate for it, signed by itself."""
    folder.mkdir()
    subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}")
    files = ("-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt"))
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    subprocess.run([openssl, "req", "-x509", "-nodes", *curve, *subject, *files], check=True, capture_output=True)
    return folder / "server.crt"
