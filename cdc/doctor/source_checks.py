"""Checks of slot and publication; `check_source` also runs those of the server. Pure: facts in, findings out."""

from __future__ import annotations

from typing import Final

from cdc.config.settings import Config
from cdc.doctor.finding import Finding
from cdc.doctor.server_checks import check_server
from cdc.doctor.source_facts import SourceFacts
from cdc.doctor.source_summary import error, ok, warning
from cdc.doctor.sql_text import ident, literal
from cdc.model import units
from cdc.model.failover import FAILOVER_SINCE, failover_problems
from cdc.replication.publication import missing, to_add, unfit
from cdc.replication.slot import creation_statement

_SAFE_LOW_BYTES: Final = 256 << 20
_BLOCKER_OLD_S: Final = 10.0  # younger transactions usually end before `cdc run` creates the slot


def check_source(facts: SourceFacts, config: Config) -> list[Finding]:
    """Run all checks of the source, in the order in which they are printed."""
    return [
        *check_server(facts),
        *check_slot(facts, config),
        *check_idle(facts),
        *check_failover(facts, config),
        *check_publication(facts, config),
    ]


def check_slot(facts: SourceFacts, config: Config) -> list[Finding]:
    """Check that an existing slot is usable, or that a missing one can be created."""
    slot = facts.slot
    if not slot.exists:
        return _check_new_slot(facts, config)
    drop = f"select pg_drop_replication_slot({literal(slot.name)});  -- loses its changes"
    if slot.being_made:
        return [ok("slot", f"slot {slot.name!r} is being created by pid {slot.active_pid}")]
    # Another program may need such a slot: no statement that drops it.
    if slot.plugin != "pgoutput" or slot.temporary:
        kind = "is temporary" if slot.temporary else f"uses {slot.plugin or 'no plugin'} instead of pgoutput"
        return [error("slot", f"slot {slot.name!r} {kind}: choose another name with source.slot")]
    if slot.database != facts.database:
        text = f"slot {slot.name!r} belongs to database {slot.database!r}: choose another name with source.slot"
        return [error("slot", text)]
    if slot.invalidation:
        text = (
            f"slot {slot.name!r} is lost ({slot.invalidation}): changes since "
            f"{slot.confirmed_flush_lsn} can no longer be read from it"
        )
        return [error("slot", text, command="cdc slot drop")]
    if slot.two_phase:
        return [error("slot", f"slot {slot.name!r} has two_phase on, which is not supported; recreate it", drop)]
    if slot.wal_status == "unreserved" or (slot.safe_wal_size is not None and slot.safe_wal_size < _SAFE_LOW_BYTES):
        left = f"{max(0, slot.safe_wal_size or 0) / (1 << 20):.0f} MB"
        return [warning("slot", f"slot {slot.name!r} is about to be lost: {left} of WAL left; start capture now")]
    reader = f", read by pid {slot.active_pid}" if slot.active_pid is not None else ", not read by any process"
    behind = f"{(slot.lag_bytes or 0) / (1 << 20):.1f} MB behind"
    return [ok("slot", f"slot {slot.name!r} is at {slot.confirmed_flush_lsn}, {behind}{reader}")]


def check_idle(facts: SourceFacts) -> list[Finding]:
    """Warn about a slot that no process reads and that PostgreSQL will invalidate for it."""
    timeout_s = float(facts.settings.get("idle_replication_slot_timeout", "0"))
    slot = facts.slot
    if not timeout_s or slot.inactive_s is None or not slot.usable or slot.active_pid is not None:
        return []
    text = (
        f"no process has read slot {slot.name!r} for {slot.inactive_s:.0f} s; it is lost at the first checkpoint in "
        f"{max(0.0, timeout_s - slot.inactive_s):.0f} s (idle_replication_slot_timeout): start capture now"
    )
    return [warning("slot_idle", text)]


def check_failover(facts: SourceFacts, config: Config) -> list[Finding]:
    """Check what source.failover needs of server and slot."""
    if not config.source.failover:
        return []
    major = facts.version_num // 10000
    if major < FAILOVER_SINCE:
        text = f"source.failover needs PostgreSQL {FAILOVER_SINCE} or later, which synchronises slots; this is {major}"
        return [error("failover", text, command="failover = false")]
    if not facts.slot.exists:
        return []
    problems = failover_problems(facts.failover)
    if not problems:
        names = _some([standby.name for standby in facts.failover.standbys])
        return [ok("failover", f"the slot is synchronised, and the stream stays behind {names}")]
    return [warning("failover", problem) for problem in problems]


def check_publication(facts: SourceFacts, config: Config) -> list[Finding]:
    """Check that all changes of all tables are published, or that `cdc run` may change the publication so."""
    name, publication = config.publication, facts.publication
    wanted = [table for table in facts.tables if not table.problem]
    statements = to_add(publication, name, wanted, facts.version_num) if wanted else []
    problem, statement = unfit(publication, []) if publication is not None else ("", "")
    if problem:
        return [error("publication", f"publication {name!r} {problem}", statement)]
    found = []
    problem, statement = unfit(publication, wanted) if publication is not None else ("", "")
    if problem:
        apart = [table.table for table in wanted if table.partitioned]
        if len(apart) == len(wanted):
            return [error("publication", f"publication {name!r} {problem}", statement)]
        found.append(warning("publication", f"publication {name!r} {problem}: {_some(apart)} left out", statement))
        wanted = [table for table in wanted if not table.partitioned]
    if statements:
        lacking = missing(publication, wanted)
        what = f"lacks {_some([t.table for t in lacking])}" if publication else "does not exist"
        refused = _cannot_publish(facts, config)
        if refused:
            some = publication is not None and len(lacking) < len(wanted)
            level, then = (warning, ": the others are captured") if some else (error, "")
            text = f"publication {name!r} {what}, and {refused}{then}"
            found.append(level("publication", text, "\n".join(statements)))
        else:
            what, verb = (what, "adds") if publication else ("does not exist yet", "creates")
            found.append(
                ok("publication", f"publication {name!r} {what}; `cdc run` {verb} {'them' if publication else 'it'}")
            )
    elif publication is not None:
        found.append(ok("publication", f"publication {name!r} has all of {units.count(len(wanted), 'table')}"))
    if publication is not None and not publication.truncate and config.source.on_truncate != "ignore":
        text = f"publication {name!r} does not publish TRUNCATE: truncated rows would stay in the topics"
        sql = f"alter publication {ident(name)} set (publish = 'insert, update, delete, truncate');"
        found.append(warning("publication_truncate", text, sql))
    if publication is not None and publication.filtered:
        names = [t.table for t in facts.tables if t.oid in publication.filtered]
        text = f"publication {name!r} has row filters on {_some(names)}: the log lacks the other rows"
        found.append(warning("publication_filter", text))
    return found


def _check_new_slot(facts: SourceFacts, config: Config) -> list[Finding]:
    name = facts.slot.name
    if not config.source.create:
        sql = creation_statement(name, failover=config.source.failover)
        return [error("slot", f"slot {name!r} does not exist, and source.create is false", sql)]
    found = [ok("slot", f"slot {name!r} does not exist yet; `cdc run` creates it")]
    old = [blocker for blocker in facts.blockers if blocker.pid is None or blocker.age_s >= _BLOCKER_OLD_S]
    for blocker in old:
        text = f"an open write transaction holds up the new slot: {blocker.what}"
        found.append(warning("blocking_transaction", text, blocker.remedy))
    return found


def _cannot_publish(facts: SourceFacts, config: Config) -> str:
    """Return why `cdc run` could not create or extend the publication; empty when it could."""
    if not config.source.create:
        return "source.create is false"
    if facts.role.superuser:
        return ""
    if facts.publication is None and not facts.role.can_create:
        return f"role {facts.role.name!r} has no CREATE on the database"
    if facts.publication is not None and not facts.publication.owned:
        return f"it is owned by {facts.publication.owner!r}"
    foreign = [t.table for t in missing(facts.publication, [t for t in facts.tables if not t.problem])
               if t.oid in facts.rights and not facts.rights[t.oid].owned]  # fmt: skip
    return f"role {facts.role.name!r} does not own {_some(foreign)}" if foreign else ""


def _some(names: list[str], most: int = 5) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
