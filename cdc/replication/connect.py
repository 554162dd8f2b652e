"""Opens SQL and replication connections to PostgreSQL, with the same session settings, so that both see the same bytes.

It builds the connection string and does not use slots, publications or tables. `cdc.replication.error_mapping`
translates errors.

https://www.postgresql.org/docs/18/libpq-connect.html
"""

from __future__ import annotations

import contextlib
import difflib
import os
import socket
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cdc.config.credential import FILE_UNREADABLE, Changing, Dsn
from cdc.config.secret import Secret
from cdc.errors import (
    OUT_OF_FILES,
    ConfigError,
    CredentialUnavailable,
    MachineExhausted,
    SourceUnreachable,
    TailraceError,
)
from cdc.replication.deadlines import Deadlines
from cdc.replication.error_mapping import REJECTED, UNSUPPLIED, translate, translate_sqlstate

__all__ = [
    "REPLICATION_SESSION",
    "SESSION",
    "Connection",
    "connect",
    "connect_replication",
    "conninfo",
    "deadline",
    "sever",
    "translate",
    "translate_sqlstate",
]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

APPLICATION_NAME: Final = "cdc"
_DEADLINES: Final = Deadlines()

SESSION: Final[tuple[str, ...]] = (
    "set datestyle = 'ISO, MDY'",
    "set intervalstyle = 'iso_8601'",
    "set timezone = 'UTC'",
    "set extra_float_digits = 3",
    "set bytea_output = 'hex'",
    "set lc_monetary = 'C'",
    # Names of types, tables and functions are printed qualified, for every role and whatever `public` contains.
    "set search_path = ''",
    "set quote_all_identifiers = off",
)
"""Settings that change how values are printed. Every session runs them first, so that a replay gives the same bytes."""

# A large transaction is decoded, and a table without keys is copied, within one transaction of ours. A limit of the
# role would end it at every attempt. PostgreSQL 17 has the second setting; `where` skips it on older servers.
_TRANSACTIONS: Final = (
    "set idle_in_transaction_session_timeout = 0",
    "select set_config(name, '0', false) from pg_settings where name = 'transaction_timeout'",
)
REPLICATION_SESSION: Final[tuple[str, ...]] = (
    *SESSION,
    "set statement_timeout = 0",
    "set lock_timeout = 0",
    *_TRANSACTIONS,
)
"""SESSION, and no timeouts: the stream is one statement that runs for weeks, and a role's timeouts would end it."""

# For readers of several tables. Less than deadlock_timeout (1 s by default): a migration that has locked one of the
# tables and waits for another would otherwise be ended by PostgreSQL for a deadlock with the reader.
LOCK_TIMEOUT: Final = "500ms"

# A dead peer is found after idle + interval * count = 25 s instead of the kernel's two hours, and unacknowledged
# data after 20 s. Settings in the DSN take precedence.
_DEFAULTS: Final = {
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "connect_timeout": "10",
}
# Of the settings of a role or database: a session may be idle for hours, and it creates the publication.
_OWN: Final = ("set idle_session_timeout = 0", "set default_transaction_read_only = off")
_FORMS: Final = "postgresql://user@host:5432/database, or host=… dbname=… user=…"


def conninfo(dsn: Secret, *, application_name: str = APPLICATION_NAME, replication: bool = False) -> str:
    """Return the libpq connection string for `dsn`, a URL or ``key=value`` pairs, with defaults filled in.

    The result contains the password: pass it to libpq and nothing else. `replication` requests a walsender that also
    takes SQL (``replication=database``). The password of a file or command is read now. Raises ConfigError, which
    quotes no part of the DSN, and CredentialUnavailable.
    """
    given = _parse(dsn.reveal())
    if isinstance(dsn, Dsn):
        given["password"] = dsn.password.reveal()
    settings = {**_DEFAULTS, "application_name": application_name, **given, "client_encoding": "UTF8"}
    settings.pop("replication", None)
    if replication:
        settings["replication"] = "database"
    return make_conninfo("", **settings)


def connect(dsn: Secret, *, application_name: str = APPLICATION_NAME) -> Connection:
    """Open an SQL session in autocommit with SESSION applied. Raises a TailraceError by cause. The caller closes it.

    Nothing is prepared on the server, so a pooler in session mode may be in between.
    """
    text = _text(dsn, "connect to PostgreSQL", application_name=application_name)
    try:
        connection = psycopg.connect(text, autocommit=True, prepare_threshold=None)
    except (psycopg.Error, OSError) as error:
        raise _unconnected(error, "connect to PostgreSQL", dsn) from None
    try:
        connection.execute("; ".join((*SESSION, *_OWN, *_TRANSACTIONS)).encode())
    except psycopg.Error as error:
        connection.close()
        raise translate(error, "set up the session") from error
    return connection


def connect_replication(dsn: Secret, *, application_name: str = APPLICATION_NAME) -> Connection:
    """Open a walsender session; no settings are applied yet. Raises a TailraceError by cause. The caller closes it.

    It does not use `pq.PGconn.connect`, which holds the interpreter's lock while it waits for the server, up to
    connect_timeout, and stops every thread of the daemon (psycopg 3.3.9, measured 2026-11-21).
    """
    text = _text(dsn, "open a replication connection", application_name=application_name, replication=True)
    try:
        return psycopg.connect(text, autocommit=True, prepare_threshold=None)
    except (psycopg.Error, OSError) as error:
        raise _unconnected(error, "open a replication connection", dsn) from None


def _text(dsn: Secret, doing: str, *, application_name: str, replication: bool = False) -> str:
    """Return the connection string. A password that cannot be read now is a connection that cannot be made now."""
    try:
        return conninfo(dsn, application_name=application_name, replication=replication)
    except CredentialUnavailable as error:
        raise SourceUnreachable(f"cannot {doing}: {error.message}", hint=error.hint) from None


def _unconnected(error: psycopg.Error | OSError, doing: str, dsn: Secret) -> TailraceError:
    """Return why a connection could not be made. Checks for exhausted file descriptors, which libpq hides.

    A rejected password of a file or command is worth another attempt: it may be rotated at this moment.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as reason:
        return MachineExhausted(f"cannot {doing}: {reason.strerror}", hint=OUT_OF_FILES)
    if isinstance(error, OSError):
        return MachineExhausted(f"cannot {doing}: {error.strerror}", hint=OUT_OF_FILES)
    found = translate(error, doing)
    if isinstance(dsn, Dsn) and found.hint == UNSUPPLIED and isinstance(dsn.password, Changing):
        # Only a file can be empty: it may be in the middle of a rotation.
        return SourceUnreachable(f"{found.message}: {dsn.password.key} is empty", hint=FILE_UNREADABLE)
    if isinstance(dsn, Dsn) and found.hint == REJECTED:
        changing = dsn.password.key if isinstance(dsn.password, Changing) else "it"
        hint = f"PostgreSQL rejected the password; {changing} is read again for the next attempt"
        return SourceUnreachable(found.message, hint=hint)
    return found


def text_encoding(pg: pq.abc.PGconn) -> str:
    """Return the encoding to request for the texts of rows: UTF8, except for a database in SQL_ASCII.

    Texts of an SQL_ASCII database may be any bytes. If UTF-8 is requested, the server refuses those that are not UTF-8
    (22021) without their table and column. Requested unconverted, the encoder reports table and column.
    """
    return "SQL_ASCII" if pg.parameter_status(b"server_encoding") == b"SQL_ASCII" else "UTF8"


def sever(connection: Connection) -> None:
    """Cut a connection from any thread. A thread that waits on it gets an error at once, even if the server is silent.

    It frees nothing; the owner still closes the connection.
    """
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def deadline(connection: Connection, seconds: float) -> Iterator[None]:
    """Sever the connection if the block takes longer.

    libpq waits for ever on a link that drops all packets; the capture thread must not.
    """
    with _DEADLINES.within(seconds, lambda: sever(connection)):
        yield


def check_dsn(dsn: Secret) -> None:
    """Raise ConfigError for a connection string that libpq does not accept. Reads no file and runs no command."""
    _parse(dsn.reveal())


def _parse(text: str) -> dict[str, str]:
    if not text.strip():
        raise ConfigError("source.dsn is empty", hint=f"expected {_FORMS}")
    try:
        found = conninfo_to_dict(text)
    except psycopg.Error as error:
        raise ConfigError(
            f"source.dsn is not a valid libpq connection string{_meant(str(error))}",
            hint=f"expected {_FORMS}; percent-encode special characters in a URL",
        ) from None
    given = {key: str(value) for key, value in found.items() if value is not None}
    _check_url(text, given)
    return given


def _meant(message: str) -> str:
    """Suggest the option for a mistyped name. The name itself is not quoted: it may be a part of a password."""
    if "option" not in message and "parameter" not in message:
        return ""
    options = [option.keyword.decode() for option in pq.Conninfo.get_defaults()]
    quoted = message.split('"')[1::2]
    close = [match for word in quoted for match in difflib.get_close_matches(word, options, n=1, cutoff=0.75)]
    return f" (did you mean {close[0]}?)" if close else ""


def _check_url(text: str, given: dict[str, str]) -> None:
    """Refuse a URL whose unescaped password extends into host, port or database: libpq would print it."""
    hosts, ports = given.get("host", "").split(","), given.get("port", "").split(",")
    in_host = any("@" in host and not host.startswith(("@", "/")) for host in hosts)
    in_port = any(port and not port.isdigit() for port in ports)
    in_database = "://" in text and "@" in given.get("dbname", "")
    if in_host or in_port or in_database:
        raise ConfigError(
            "source.dsn: host, port or database is malformed",
            hint="in a URL, percent-encode @ as %40, / as %2F and : as %3A inside user and password",
        )
