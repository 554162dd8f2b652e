"""Checks of the server and of the role we connect as. Pure: facts in, findings out. Each function is one check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cdc.doctor.finding import Finding, Group, Level
from cdc.doctor.source_facts import SourceFacts
from cdc.doctor.source_summary import error, ok, warning
from cdc.doctor.sql_text import ident

MAJOR_MIN: Final = 15
MAJOR_TESTED: Final = 18

# All of 2025-08-14. Before, decoding could miss that a table had joined the publication when other transactions were
# open, or run out of memory passing such news on, and WAL a slot still needed could be removed at a checkpoint
# (https://www.postgresql.org/docs/release/17.6/, and the same notes of 16.10 and 15.14).
MINOR_SAFE: Final = {15: 14, 16: 10, 17: 6, 18: 0}

_TIMEOUT_LOW_S: Final = 3.0  # a status is sent every third of it, and a busy machine may be late by a second
_KEEP_LOW_MB: Final = 1024  # less is gone in a minute of a busy server
_RESTART: Final = "-- then restart PostgreSQL"
_RELOAD: Final = "select pg_reload_conf();"


def check_server(facts: SourceFacts) -> list[Finding]:
    """All checks, in the order they are printed."""
    return [finding for check in _CHECKS for finding in check(facts)]


def check_version(facts: SourceFacts) -> list[Finding]:
    """Majors we know, minors without the bugs we know."""
    major, minor = divmod(facts.version_num, 10000)
    version = f"PostgreSQL {facts.settings.get('server_version', f'{major}.{minor}')}"
    if major < MAJOR_MIN:
        return [error("version", f"{version} is too old: {MAJOR_MIN} to {MAJOR_TESTED} are supported")]
    if major > MAJOR_TESTED:
        return [warning("version", f"{version} is newer than what Tailrace was tested with ({MAJOR_TESTED})")]
    if minor < MINOR_SAFE[major]:
        text = (
            f"{version} has bugs that lose changes: decoding may miss that a table joined the publication, and WAL a "
            f"slot needs may be removed; update to {major}.{MINOR_SAFE[major]} or later"
        )
        return [warning("version", text)]
    return [ok("version", f"{version}, database {facts.database!r}, role {facts.role.name!r}")]


def check_primary(facts: SourceFacts) -> list[Finding]:
    """A standby takes no publication."""
    if not facts.in_recovery:
        return []
    text = "this server is a standby; capture needs the primary"
    return [error("primary", text, command='source.dsn = "... target_session_attrs=primary"')]


def check_wal_level(facts: SourceFacts) -> list[Finding]:
    """Row changes are only in the WAL with wal_level = logical."""
    level = facts.settings.get("wal_level", "")
    if level == "logical":
        return [ok("wal_level", "wal_level is logical")]
    return [
        error(
            "wal_level",
            f"wal_level is {level}, must be logical",
            f"alter system set wal_level = 'logical';\n{_RESTART}",
        )
    ]


def check_slots_free(facts: SourceFacts) -> list[Finding]:
    """A slot of ours that exists counts as free."""
    most = int(facts.settings.get("max_replication_slots", "0"))
    if facts.slot.exists or facts.slots_used < most:
        return [ok("max_replication_slots", f"{facts.slots_used} of {most} replication slots are used")]
    text = f"all {most} replication slots are used (max_replication_slots)"
    sql = f"alter system set max_replication_slots = {most + 5};\n{_RESTART}"
    return [error("max_replication_slots", text, sql, command="cdc slot list")]


def check_senders_free(facts: SourceFacts) -> list[Finding]:
    """One walsender streams for us."""
    most = int(facts.settings.get("max_wal_senders", "0"))
    if facts.senders_used < most or facts.slot.active_pid is not None:
        return [ok("max_wal_senders", f"{facts.senders_used} of {most} walsenders are used")]
    text = f"all {most} walsenders are used (max_wal_senders)"
    return [error("max_wal_senders", text, f"alter system set max_wal_senders = {most + 5};\n{_RESTART}")]


def check_sender_timeout(facts: SourceFacts) -> list[Finding]:
    """It must find dead readers, and let living ones be late."""
    timeout_s = float(facts.settings.get("wal_sender_timeout", "60"))
    sql = f"alter system set wal_sender_timeout = '60s';\n{_RELOAD}"
    if timeout_s == 0:
        text = "wal_sender_timeout is off: a daemon whose machine died holds the slot until somebody ends its walsender"
        return [warning("wal_sender_timeout", text, sql)]
    if timeout_s < _TIMEOUT_LOW_S:
        text = f"wal_sender_timeout is {timeout_s:g} s: a busy machine may be cut off for being late"
        return [warning("wal_sender_timeout", text, sql)]
    return []


def check_keep_size(facts: SourceFacts) -> list[Finding]:
    """Both no limit and a low one have a price; say which."""
    keep_mb = int(facts.settings.get("max_slot_wal_keep_size", "-1"))
    if keep_mb == -1:
        text = (
            "max_slot_wal_keep_size is not set: while capture is down PostgreSQL keeps WAL until its disk is full; "
            "with a limit the slot is lost instead"
        )
        sql = f"alter system set max_slot_wal_keep_size = '64GB';  -- what the disk can spare\n{_RELOAD}"
        return [warning("max_slot_wal_keep_size", text, sql)]
    if keep_mb < _KEEP_LOW_MB:
        text = f"max_slot_wal_keep_size is {keep_mb} MB: a short stop of capture loses the slot"
        sql = f"alter system set max_slot_wal_keep_size = '64GB';  -- what the disk can spare\n{_RELOAD}"
        return [warning("max_slot_wal_keep_size", text, sql)]
    return [ok("max_slot_wal_keep_size", f"the slot may hold back {keep_mb / 1024:.0f} GB of WAL before it is lost")]


def check_idle_timeout(facts: SourceFacts) -> list[Finding]:
    """PostgreSQL 18 can drop slots that nobody reads."""
    timeout_s = float(facts.settings.get("idle_replication_slot_timeout", "0"))
    if not timeout_s:
        return []
    text = f"idle_replication_slot_timeout: the slot is lost when capture is down for {timeout_s / 60:g} min"
    sql = f"alter system set idle_replication_slot_timeout = 0;\n{_RELOAD}"
    return [warning("idle_replication_slot_timeout", text, sql)]


def check_encoding(facts: SourceFacts) -> list[Finding]:
    """SQL_ASCII promises nothing about its bytes."""
    if facts.settings.get("server_encoding") != "SQL_ASCII":
        return []
    return [warning("server_encoding", "the database is SQL_ASCII: a text that is not UTF-8 stops capture")]


def check_role(facts: SourceFacts) -> list[Finding]:
    """What the role may do on the server, and whether a replication connection gets through."""
    found = []
    role = ident(facts.role.name)
    if not facts.role.replication:
        text = f"role {facts.role.name!r} has no REPLICATION attribute: it can neither make a slot nor stream"
        found.append(error("role_replication", text, f"alter role {role} replication;"))
    elif facts.replication_error is not None:
        refused = facts.replication_error
        found.append(error("replication_connection", f"{refused.message}; {refused.hint}", command=refused.command))
    else:
        found.append(ok("replication_connection", "a replication connection gets through"))
    if facts.pooled:
        text = (
            "a pooler is between: point source.dsn at PostgreSQL itself, as replication needs a connection of its own"
        )
        level = Level.ERROR if facts.replication_error is not None else Level.WARNING
        found.append(Finding(group=Group.SOURCE, level=level, check="pooler", message=text))
    return found


_CHECKS: Final[tuple[Callable[[SourceFacts], list[Finding]], ...]] = (
    check_version,
    check_primary,
    check_wal_level,
    check_slots_free,
    check_senders_free,
    check_sender_timeout,
    check_keep_size,
    check_idle_timeout,
    check_encoding,
    check_role,
)
