"""Translates errors of PostgreSQL and libpq into Tailrace errors: the cause by SQLSTATE, the hint by cause.

Pure. Policy never reads a message, with one exception: a failed connection attempt. libpq keeps no SQLSTATE of it
(PQresultErrorField needs a result), so `_BY_TEXT` matches the message. An unknown message, for example of a server that
speaks another language, counts as unreachable and is tried again.

https://www.postgresql.org/docs/18/errcodes-appendix.html
"""

from __future__ import annotations

from typing import Final, NamedTuple

import psycopg

from cdc.errors import ConfigError, SlotHeld, SourceGap, SourceRefused, SourceUnreachable, TailraceError


class _Cause(NamedTuple):
    kind: type[TailraceError]
    hint: str = ""
    command: str = ""


DIRECT: Final = "connect directly to PostgreSQL: most poolers do not forward replication (pgbouncer does since 1.23)"
_HBA: Final = (
    "add a line to pg_hba.conf for this role, host and database name (`replication` is for physical standbys), then "
    "reload"
)
_PASSWORD: Final = (
    "set the password in TAILRACE_SOURCE_PASSWORD, source.password_file, source.password_command or PGPASSFILE"  # noqa: S105 - a hint
)
UNSUPPLIED: Final = f"PostgreSQL asks for a password, and none is given: {_PASSWORD}"
REJECTED: Final = (
    "PostgreSQL rejected the password: check TAILRACE_SOURCE_PASSWORD, source.password_file, "
    "source.password_command or PGPASSFILE, and that the role exists"
)
_TLS: Final = (
    "check sslmode and sslrootcert in source.dsn; the server's certificate must be valid for the host name and not "
    "expired"
)
_STANDBY: Final = "this is a standby; connect to the primary, or add target_session_attrs=primary to source.dsn"
_NO_PRIMARY: Final = "no host of source.dsn is a primary; capture continues when one is promoted"
DISK_FULL: Final = "the disk of PostgreSQL is full: free space there; capture then continues by itself"
_GONE: Final = "what was committed meanwhile is not in the log; check the range, then create the slot again"

_UNREACHABLE: Final = _Cause(SourceUnreachable, "check that the server is running, and host and port in source.dsn")
_ROLE: Final = _Cause(SourceRefused, _HBA)
_RIGHTS: Final = _Cause(
    SourceRefused, "the role lacks a privilege; the command prints the statements for a DBA", "cdc doctor --sql"
)
_NO_DATABASE: Final = _Cause(SourceRefused, "the database in source.dsn does not exist on this server")
_MADE_MEANWHILE: Final = _Cause(SourceUnreachable, "another session created it at the same moment; retrying")
_LOST: Final = _Cause(SourceGap, _GONE, "cdc slot list")

_BY_STATE: Final[dict[str, _Cause]] = {
    "22021": _Cause(SourceRefused, "a text of this SQL_ASCII database is not UTF-8: repair the row"),
    "25006": _Cause(SourceRefused, _STANDBY),
    "28P01": _Cause(SourceRefused, REJECTED),
    "28": _ROLE,
    "3D000": _NO_DATABASE,
    "3F000": _Cause(SourceRefused, "the schema does not exist in this database"),
    "42501": _RIGHTS,
    "42704": _LOST,
    "23505": _MADE_MEANWHILE,
    "42710": _MADE_MEANWHILE,
    "42P01": _Cause(SourceRefused, "the table does not exist in this database"),
    "53100": _Cause(SourceUnreachable, DISK_FULL),
    "53300": _Cause(SourceUnreachable, "no connection slot is free: raise max_connections or max_wal_senders"),
    "53400": _Cause(
        SourceRefused,
        "no replication slot is free: drop an unused one, or raise max_replication_slots and restart",
        "cdc slot list",
    ),
    "55006": _Cause(SlotHeld, "another process reads the slot; it is released when that process ends"),
    "55P03": _Cause(SourceUnreachable, "another session holds the lock"),
    "57014": _Cause(SourceUnreachable, "the statement timed out"),
    "58P01": _LOST,
    "08": _UNREACHABLE,
    "40": _Cause(SourceUnreachable, "conflict with another session; retrying"),
    "53": _Cause(SourceUnreachable, "the server is short of disk, memory or connections"),
    "57P": _Cause(SourceUnreachable, "the server is starting, is shutting down or ended the session"),
}
"""Looked up by the exact code first, then by its prefix."""

_INVALIDATED: Final = (
    "can no longer access replication slot",  # 18
    "cannot read from logical replication slot",  # 15 to 17
    "can no longer get changes from replication slot",  # 15 to 17, over SQL
)

_BY_TEXT: Final[tuple[tuple[tuple[str, ...], _Cause], ...]] = (
    (("unsupported startup parameter", "replication connections are not"), _Cause(SourceRefused, DIRECT)),
    (("permission denied to start WAL sender", "must be superuser or replication role"), _RIGHTS),
    (("connection option", "invalid sslmode value", "invalid ssl_"), _Cause(ConfigError, "correct source.dsn")),
    (("no pg_hba.conf entry", "pg_hba.conf rejects"), _ROLE),
    (("password authentication failed",), _Cause(SourceRefused, REJECTED)),
    (("no password supplied",), _Cause(SourceRefused, UNSUPPLIED)),
    (("password", "SASL", "SCRAM"), _Cause(SourceRefused, _PASSWORD)),
    (("SSL", "TLS", "certificate", "channel binding"), _Cause(SourceRefused, _TLS)),
    (("authentication", "is not permitted to log in"), _ROLE),
    (("database",), _NO_DATABASE),
    (("role",), _Cause(SourceRefused, "the role in source.dsn does not exist on this server")),
    # Only with target_session_attrs: wait for the primary while a standby is being promoted.
    (("session is read-only", "server is in hot standby mode"), _Cause(SourceUnreachable, _NO_PRIMARY)),
    (("too many connections", "too many clients", "standby connections"), _BY_STATE["53300"]),
)
_MISSING: Final = ("does not exist", "no such database", "no such user")


def translate(error: psycopg.Error, doing: str, **facts: object) -> TailraceError:
    """Return the Tailrace error for `error`; the caller raises it from `error`.

    Args:
        error: the psycopg error.
        doing: the infinitive of what failed, e.g. ``create slot "cdc_shop"``.
        **facts: attributes for the log; `hint` and `command` replace the general ones.
    """
    state = error.sqlstate
    if state is None:
        return _connection_error(str(error), doing, facts)
    diag = error.diag
    return translate_sqlstate(state, diag.message_primary or "", diag.message_detail or "", doing, **facts)


def translate_sqlstate(sqlstate: str, message: str, detail: str, doing: str, **facts: object) -> TailraceError:
    """Like `translate`, from the fields of an ErrorResponse (a raw `pq` result)."""
    cause = _cause(sqlstate, message)
    # Messages of class 22 and 23 quote values of rows.
    said = "" if sqlstate[:2] in {"22", "23"} else f": {message.strip()}"
    if cause.kind in {SourceGap, SlotHeld} and detail:
        said += f" ({detail.strip()})"
    if cause.kind is SlotHeld:
        facts.setdefault("pid", _pid(message))
    return _build(cause, f"cannot {doing}{said or f': SQLSTATE {sqlstate}'}", {"sqlstate": sqlstate, **facts})


def _cause(sqlstate: str, message: str) -> _Cause:
    if sqlstate == "55000":
        if any(text in message for text in _INVALIDATED):
            return _LOST
        if message == "recovery is in progress":
            return _BY_STATE["25006"]
        return _Cause(SourceRefused, "a server setting does not allow it", "cdc doctor")
    if sqlstate == "08P01" and "startup parameter" in message:
        return _Cause(SourceRefused, DIRECT)
    for length in (5, 3, 2):
        if sqlstate[:length] in _BY_STATE:
            return _BY_STATE[sqlstate[:length]]
    return _Cause(SourceRefused, "see the server's log")


def _connection_error(text: str, doing: str, facts: dict[str, object]) -> TailraceError:
    said = " ".join(text.split("\n", maxsplit=1)[0].split())
    for prefix in ("connection failed: ", "connection is bad: "):
        said = said.removeprefix(prefix)
    cause = next((cause for words, cause in _BY_TEXT if _says(said, words)), _UNREACHABLE)
    return _build(cause, f"cannot {doing}: {said}", facts)


def _says(said: str, words: tuple[str, ...]) -> bool:
    if words in {("database",), ("role",)}:
        return any(f'{words[0]} "' in said and missing in said for missing in _MISSING)
    return any(word in said for word in words)


def _pid(message: str) -> int | None:
    """Return the holder's pid from 'replication slot "x" is active for PID 123'."""
    digits = message.rpartition(" ")[2]
    return int(digits) if digits.isdigit() else None


def _build(cause: _Cause, message: str, facts: dict[str, object]) -> TailraceError:
    hint = str(facts.pop("hint", "") or cause.hint)
    command = str(facts.pop("command", "") or cause.command)
    return cause.kind(message, hint=hint, command=command, **facts)
