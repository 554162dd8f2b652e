"""Checks of the server and of the role in source.dsn; each function is one check. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cdc.doctor.finding import Finding, Group, Level
from cdc.doctor.source_facts import SourceFacts
from cdc.doctor.source_summary import error, ok, warning
from cdc.doctor.sql_text import ident

MAJOR_MIN: Final = 15
MAJOR_TESTED: Final = 18

# Released on 2025-08-14. Before, decoding could miss that a table joined the publication while other transactions were
# open, or run out of memory distributing invalidations, and a checkpoint could remove WAL that a slot still needed
# (https://www.postgresql.org/docs/release/17.6/, and the same notes of 16.10 and 15.14).
MINOR_SAFE: Final = {15: 14, 16: 10, 17: 6, 18: 0}

_TIMEOUT_LOW_S: Final = 3.0  # we send a status every third of it, and a busy machine may be a second late
_KEEP_LOW_MB: Final = 1024  # a busy server writes this much in a minute
_RESTART: Final = "-- then restart PostgreSQL"
_RELOAD: Final = "select pg_reload_conf();"


def check_server(facts: SourceFacts) -> list[Finding]:
    """Run all checks, in the order in which they are printed."""
    return [finding for check in _CHECKS for finding in check(facts)]


def check_version(facts: SourceFacts) -> list[Finding]:
    """Accept supported major versions, and minor versions without known bugs."""
    major, minor = divmod(facts.version_num, 10000)
    version = f"PostgreSQL {facts.settings.get('server_version', f'{major}.{minor}')}"
    if major < MAJOR_MIN:
        return [error("version", f"{version} is not supported; use {MAJOR_MIN} to {MAJOR_TESTED}")]
    if major > MAJOR_TESTED:
        return [
            warning("version", f"{version} is newer than the versions Tailrace was tested with (up to {MAJOR_TESTED})")
        ]
    if minor < MINOR_SAFE[major]:
        text = (
            f"{version} has bugs that lose changes: decoding may miss that a table joined the publication, and WAL "
            f"that a slot needs may be removed; update to {major}.{MINOR_SAFE[major]} or later"
        )
        return [warning("version", text)]
    return [ok("version", f"{version}, database {facts.database!r}, role {facts.role.name!r}")]


def check_primary(facts: SourceFacts) -> list[Finding]:
    """Refuse a standby, on which no publication can be created."""
    if not facts.in_recovery:
        return []
    text = "this server is a standby; capture needs the primary"
    return [error("primary", text, command='source.dsn = "... target_session_attrs=primary"')]


def check_wal_level(facts: SourceFacts) -> list[Finding]:
    """Require wal_level = logical, without which the WAL has no row changes."""
    level = facts.settings.get("wal_level", "")
    if level == "logical":
        return [ok("wal_level", "wal_level is logical")]
    return [
        error(
            "wal_level",
            f"wal_level is {level}; it must be logical",
            f"alter system set wal_level = 'logical';\n{_RESTART}",
        )
    ]


def check_slots_free(facts: SourceFacts) -> list[Finding]:
    """Require a free slot; the pipeline's own slot counts as free."""
    most = int(facts.settings.get("max_replication_slots", "0"))
    if facts.slot.exists or facts.slots_used < most:
        return [ok("max_replication_slots", f"{facts.slots_used} of {most} replication slots are used")]
    text = f"all {most} replication slots are used (max_replication_slots)"
    sql = f"alter system set max_replication_slots = {most + 5};\n{_RESTART}"
    return [error("max_replication_slots", text, sql, command="cdc slot list")]


def check_senders_free(facts: SourceFacts) -> list[Finding]:
    """Require a free walsender for the stream."""
    most = int(facts.settings.get("max_wal_senders", "0"))
    if facts.senders_used < most or facts.slot.active_pid is not None:
        return [ok("max_wal_senders", f"{facts.senders_used} of {most} walsenders are used")]
    text = f"all {most} walsenders are used (max_wal_senders)"
    return [error("max_wal_senders", text, f"alter system set max_wal_senders = {most + 5};\n{_RESTART}")]


def check_sender_timeout(facts: SourceFacts) -> list[Finding]:
    """Check that the timeout detects dead readers and tolerates slow ones."""
    timeout_s = float(facts.settings.get("wal_sender_timeout", "60"))
    sql = f"alter system set wal_sender_timeout = '60s';\n{_RELOAD}"
    if timeout_s == 0:
        text = "wal_sender_timeout is off: if the daemon's machine dies, its walsender holds the slot until you end it"
        return [warning("wal_sender_timeout", text, sql)]
    if timeout_s < _TIMEOUT_LOW_S:
        text = f"wal_sender_timeout is {timeout_s:g} s: PostgreSQL may disconnect a busy but healthy daemon"
        return [warning("wal_sender_timeout", text, sql)]
    return []


def check_keep_size(facts: SourceFacts) -> list[Finding]:
    """Report the risk of no limit, and of a low one."""
    keep_mb = int(facts.settings.get("max_slot_wal_keep_size", "-1"))
    if keep_mb == -1:
        text = (
            "max_slot_wal_keep_size is not set: while capture is down, PostgreSQL keeps WAL until its disk is full; "
            "with a limit the slot is lost instead"
        )
        sql = f"alter system set max_slot_wal_keep_size = '64GB';  -- what the disk can spare\n{_RELOAD}"
        return [warning("max_slot_wal_keep_size", text, sql)]
    if keep_mb < _KEEP_LOW_MB:
        text = f"max_slot_wal_keep_size is {keep_mb} MB: the slot is lost after a short stop of capture"
        sql = f"alter system set max_slot_wal_keep_size = '64GB';  -- what the disk can spare\n{_RELOAD}"
        return [warning("max_slot_wal_keep_size", text, sql)]
    return [ok("max_slot_wal_keep_size", f"the slot may retain {keep_mb / 1024:.0f} GB of WAL before it is lost")]


def check_idle_timeout(facts: SourceFacts) -> list[Finding]:
    """Report that PostgreSQL 18 may invalidate a slot that no process reads."""
    timeout_s = float(facts.settings.get("idle_replication_slot_timeout", "0"))
    if not timeout_s:
        return []
    text = f"the slot is lost when capture is down for {timeout_s / 60:g} min (idle_replication_slot_timeout)"
    sql = f"alter system set idle_replication_slot_timeout = 0;\n{_RELOAD}"
    return [warning("idle_replication_slot_timeout", text, sql)]


def check_encoding(facts: SourceFacts) -> list[Finding]:
    """Warn about SQL_ASCII, whose bytes may be in any encoding."""
    if facts.settings.get("server_encoding") != "SQL_ASCII":
        return []
    return [warning("server_encoding", "the database encoding is SQL_ASCII: text that is not UTF-8 stops capture")]


def check_role(facts: SourceFacts) -> list[Finding]:
    """Check the role's server-wide rights, and that a replication connection is accepted."""
    found = []
    role = ident(facts.role.name)
    if not facts.role.replication:
        text = f"role {facts.role.name!r} has no REPLICATION attribute, so it can neither create a slot nor stream"
        found.append(error("role_replication", text, f"alter role {role} replication;"))
    elif facts.replication_error is not None:
        refused = facts.replication_error
        found.append(error("replication_connection", f"{refused.message}; {refused.hint}", command=refused.command))
    else:
        found.append(ok("replication_connection", "replication connections are accepted"))
    if facts.pooled:
        text = "source.dsn leads to a connection pooler; point it at PostgreSQL itself, which replication needs"
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
