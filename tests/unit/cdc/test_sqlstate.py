"""PostgreSQL's errors as Tailrace errors. The class decides what happens next, so each one is tested."""

from __future__ import annotations

import psycopg
import pytest

from cdc.errors import (
    ConfigError,
    SlotHeld,
    SourceGap,
    SourceRefused,
    SourceUnreachable,
    TailraceError,
)
from cdc.replication.error_mapping import translate, translate_sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "message", "kind"),
    [
        ("08006", "connection failure", SourceUnreachable),
        ("57P01", "terminating connection due to administrator command", SourceUnreachable),
        ("57P03", "the database system is starting up", SourceUnreachable),
        ("53300", "too many clients already", SourceUnreachable),
        ("53100", "could not extend file: No space left on device", SourceUnreachable),
        ("40P01", "deadlock detected", SourceUnreachable),
        ("55P03", "canceling statement due to lock timeout", SourceUnreachable),
        ("28P01", "password authentication failed", SourceRefused),
        ("28000", "no pg_hba.conf entry", SourceRefused),
        ("3D000", 'database "x" does not exist', SourceRefused),
        ("42501", "must be owner of table x", SourceRefused),
        ("53400", "all replication slots are in use", SourceRefused),
        ("25006", "cannot execute CREATE PUBLICATION in a read-only transaction", SourceRefused),
        ("55000", 'logical decoding requires "wal_level" >= "logical"', SourceRefused),
        ("55000", "recovery is in progress", SourceRefused),
        ("XX000", "something new", SourceRefused),
        ("55006", 'replication slot "s" is active for PID 4711', SlotHeld),
        ("42704", 'replication slot "s" does not exist', SourceGap),
        ("55000", 'can no longer access replication slot "s"', SourceGap),
        ("55000", 'cannot read from logical replication slot "s"', SourceGap),
        ("58P01", "requested WAL segment has already been removed", SourceGap),
    ],
)
def test_sqlstate_decides_the_class(sqlstate: str, message: str, kind: type[TailraceError]) -> None:
    error = translate_sqlstate(sqlstate, message, "", "stream from slot 's'", slot="s")

    assert type(error) is kind
    assert error.message == f"cannot stream from slot 's': {message}"
    assert error.facts["sqlstate"] == sqlstate
    assert error.facts["slot"] == "s"


def test_holder_of_the_slot_is_a_fact() -> None:
    error = translate_sqlstate("55006", 'replication slot "s" is active for PID 4711', "", "stream")

    assert error.facts["pid"] == 4711


def test_reason_of_an_invalidated_slot_is_reported() -> None:
    detail = 'This replication slot has been invalidated due to "wal_removed".'

    error = translate_sqlstate("55000", 'can no longer access replication slot "s"', detail, "stream")

    assert detail in error.message


@pytest.mark.parametrize("sqlstate", ["22P02", "23505"])
def test_values_of_rows_stay_out_of_messages(sqlstate: str) -> None:
    error = translate_sqlstate(sqlstate, 'invalid input syntax: "s3cret"', "Key (a)=(s3cret)", "read")

    assert "s3cret" not in error.message


@pytest.mark.parametrize("sqlstate", ["23505", "42710"])
def test_an_object_that_another_session_makes_just_now_is_tried_again(sqlstate: str) -> None:
    error = translate_sqlstate(sqlstate, "already exists", "", 'create publication "p"')

    assert isinstance(error, SourceUnreachable)


def test_caller_may_say_what_to_do() -> None:
    error = translate_sqlstate("42501", "no", "", "x", hint="ask the DBA", command="grant it")

    assert (error.hint, error.command) == ("ask the DBA", "grant it")
    assert "hint" not in error.facts


AT = 'connection to server at "db" (10.0.0.1), port 5432 failed: '


@pytest.mark.parametrize(
    ("text", "kind", "hint"),
    [
        (AT + "Connection refused\n\tIs the server running?", SourceUnreachable, "check that the server is running"),
        (
            "failed to resolve host 'db': Name or service not known",
            SourceUnreachable,
            "check that the server is running",
        ),
        (AT + "FATAL:  the database system is starting up", SourceUnreachable, ""),
        (AT + "FATAL:  sorry, too many clients already", SourceUnreachable, "max_connections"),
        (AT + 'FATAL:  password authentication failed for user "cdc"', SourceRefused, "rejected the password"),
        (AT + "fe_sendauth: no password supplied", SourceRefused, "set the password in TAILRACE_SOURCE_PASSWORD"),
        (AT + 'FATAL:  no pg_hba.conf entry for host "10.0.0.2", user "cdc"', SourceRefused, "pg_hba.conf"),
        (AT + 'FATAL:  database "shop" does not exist', SourceRefused, "the database in source.dsn"),
        (AT + 'FATAL:  role "cdc" does not exist', SourceRefused, "the role in source.dsn"),
        (AT + 'FATAL:  role "cdc" is not permitted to log in', SourceRefused, "pg_hba.conf"),
        (AT + "server does not support SSL, but SSL was required", SourceRefused, "sslmode"),
        (AT + "SSL error: certificate verify failed", SourceRefused, "sslmode"),
        ('root certificate file "/x" does not exist', SourceRefused, "sslmode"),
        (AT + "FATAL:  unsupported startup parameter: replication", SourceRefused, "connect directly"),
        (AT + "FATAL:  permission denied to start WAL sender", SourceRefused, "statements for a DBA"),
        (AT + "session is read-only", SourceUnreachable, "primary"),
        ('invalid sslmode value: "x"', ConfigError, "source.dsn"),
        (AT + "FATAL:  Passwort-Authentifizierung fehlgeschlagen", SourceUnreachable, ""),
    ],
)
def test_failed_connection_is_classified_by_its_message(text: str, kind: type[TailraceError], hint: str) -> None:
    error = translate(psycopg.OperationalError(f"connection failed: {text}"), "connect")

    assert type(error) is kind
    assert hint in error.hint
    assert "\n" not in error.message
