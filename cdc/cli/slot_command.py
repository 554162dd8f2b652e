"""`cdc slot`: lists replication slots, creates and drops one, and repairs the log with a new slot."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.table import Table
from rich.text import Text

from cdc.cli import output, wait_notice
from cdc.cli.command_options import config_option, configuration, json_option
from cdc.clock import SystemClock
from cdc.config.settings import Config
from cdc.errors import SourceRefused, UsageError
from cdc.model import units

if TYPE_CHECKING:
    from cdc.replication.blockers import Blocker
    from cdc.replication.connect import Connection
    from cdc.replication.slot import SlotFacts
    from cdc.startup.repair import Repair

_NAMED_MAX: Final = 5
_WAL_STYLES: Final = {"reserved": "green", "extended": "yellow", "unreserved": "red", "lost": "bold red"}


@click.group("slot")
def group() -> None:
    """List, create, drop and recreate replication slots.

    PostgreSQL keeps WAL for every slot.
    """


@group.command("list")
@config_option
@json_option
def list_command(config_path: Path | None, as_json: bool) -> None:
    """List all slots of the server and mark the pipeline's own."""
    from cdc.replication.slot import list_slots

    config = configuration(config_path)
    with _connection(config) as connection:
        slots = list_slots(connection)
    if as_json:
        output.show_json({"slots": [_document(slot, config) for slot in slots]})
        return
    if not any(slot.name == config.slot for slot in slots):
        output.note(f"slot {config.slot} does not exist yet; `cdc run` or `cdc slot create` creates it")
    if slots:
        output.show_table(_table(slots, config))


@group.command("create")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    help="Seconds to wait for open transactions  [default: source.slot_create_timeout_s].",
)
@config_option
@json_option
def create_command(timeout_s: float | None, config_path: Path | None, as_json: bool) -> None:
    """Create the slot of the configuration.

    PostgreSQL first waits for all open write transactions to end; the command names them.
    """
    from cdc.replication.slot import CreationWatch, create_slot, slot_facts

    config = configuration(config_path)
    with _connection(config) as connection, _connection(config) as second:
        if slot_facts(connection, config.slot).exists:
            raise SourceRefused(f"slot {config.slot!r} already exists", command="cdc slot list", slot=config.slot)
        watch = CreationWatch(second, _print_blockers, threading.Event())
        wait_s, failover = timeout_s or config.source.slot_create_timeout_s, config.source.failover
        at = create_slot(connection, config.slot, wait_s, watch, failover=failover)
        slot = slot_facts(connection, config.slot)
    if as_json:
        output.show_json({"created": _document(slot, config), "consistent_lsn": str(at)})
    else:
        output.done(f"created slot {slot.name}; its stream has every transaction committed after {at}")


@group.command("drop")
@click.argument("name", required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
@json_option
def drop_command(name: str | None, yes: bool, config_path: Path | None, as_json: bool) -> None:
    """Drop the slot NAME (default: the slot of the configuration).

    Changes that are not captured yet are lost.
    """
    from cdc.replication.slot import drop_slot, held, slot_facts

    config = configuration(config_path)
    name = name or config.slot
    with _connection(config) as connection:
        slot = slot_facts(connection, name)
        if not slot.exists:
            raise SourceRefused(f"slot {name!r} does not exist", command="cdc slot list", slot=name)
        if slot.active_pid is not None:
            raise held(slot)
        output.note(_loss_of_drop(slot, ours=name == config.slot))
        if not output.confirm(f"Drop slot {name}?", yes=yes):
            raise UsageError(
                "nothing was dropped", hint="answer y, or pass --yes", command=f"cdc slot drop {name} --yes"
            )
        drop_slot(connection, name)
    if as_json:
        output.show_json({"dropped": _document(slot, config)})
    else:
        output.done(f"dropped slot {name}")


@group.command("recreate")
@click.option("--resnapshot", is_flag=True, help="Read every table again into its topic; required.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    help="Seconds to wait for open transactions  [default: source.slot_create_timeout_s].",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option
@json_option
def recreate_command(
    resnapshot: bool, timeout_s: float | None, yes: bool, config_path: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Create a new slot and repair the log from the tables.

    Use it after a GAP, for a restored database, or after a topic was deleted. Stop capture first. The log continues in
    a new epoch in the same topics; a deleted topic is created again. The next start of capture reads every table with a
    key, and deletes from its topic the keys that are no longer in the table. Tables without a key stay as they are:
    rows they lack stay missing.
    """
    from cdc.replication.slot import CreationWatch
    from cdc.startup.repair import Repair

    config = configuration(config_path)
    again = "cdc slot recreate --resnapshot --yes"
    if not resnapshot:
        raise UsageError(
            "a new slot alone leaves the log without the commits before it",
            hint="the tables must be read again as well",
            command="cdc slot recreate --resnapshot",
        )
    with closing(Repair(config, SystemClock())) as repair, _connection(config) as second:
        for line in _repair_lines(repair):
            output.note(line)
        if not output.confirm(f"Recreate slot {config.slot} and read {_tables(repair.keyed)} again?", yes=yes):
            raise UsageError("nothing was changed", hint="answer y, or pass --yes", command=again)
        watch = CreationWatch(second, _print_blockers, threading.Event())
        done = repair.run(timeout_s or config.source.slot_create_timeout_s, watch)
        if as_json:
            output.show_json(
                {
                    "recreated": _document(done.slot, config),
                    "epoch": done.epoch,
                    "known_to": str(repair.known_to),
                    "resumes_at": str(done.at),
                    "resnapshot": repair.keyed,
                    "keyless": repair.keyless,
                    "left": repair.left,
                    "lost_topics": repair.lost,
                }
            )
        else:
            output.done(f"the log continues at {done.at} in epoch {done.epoch}; `cdc run` reads the tables")


def _repair_lines(repair: Repair) -> Iterator[str]:
    """Yield lines about what will happen, and what cannot be repaired."""
    for other in repair.others:
        yield f"the source is not the one of the log: {other}"
    if repair.slot.usable:
        yield f"slot {repair.slot.name} is not lost; its changes are given up, and the tables are read instead"
    if repair.lost:
        yield f"topics that were deleted or recreated; they start empty: {_listed(repair.lost)}"
    yield f"the log is complete up to {repair.known_to}; of later commits it gets the result, not each change"
    if repair.keyless:
        yield f"tables without a key, whose missing rows stay missing: {_listed(repair.keyless)}"
    if repair.left:
        yield f"tables that are no longer captured; their topics stay as they are: {_listed(repair.left)}"


def _tables(names: Sequence[str]) -> str:
    return "1 table" if len(names) == 1 else f"{len(names)} tables"


def _listed(tables: Sequence[str]) -> str:
    more = f" and {len(tables) - _NAMED_MAX} more" if len(tables) > _NAMED_MAX else ""
    return ", ".join(map(output.plain, tables[:_NAMED_MAX])) + more


def _loss_of_drop(slot: SlotFacts, *, ours: bool) -> str:
    if slot.invalidation:
        return f"slot {slot.name} is already lost ({slot.invalidation}); dropping it loses nothing more"
    behind = f" ({units.size(slot.lag_bytes)} of WAL so far)" if slot.lag_bytes is not None else ""
    consequence = "capture stops in state GAP at its next start" if ours else "it must start over"
    return f"changes after {slot.confirmed_flush_lsn or slot.restart_lsn}{behind} are lost to its reader: {consequence}"


def _print_blockers(blockers: Sequence[Blocker]) -> None:
    if blockers:
        output.note("waiting for " + "; ".join(blocker.what for blocker in blockers))


@contextmanager
def _connection(config: Config) -> Iterator[Connection]:
    from cdc.replication.connect import connect

    with output.waiting(wait_notice.source(config)):
        connection = connect(config.source.dsn, application_name=f"cdc {config.name} slot")
    try:
        yield connection
    finally:
        connection.close()


def _table(slots: Sequence[SlotFacts], config: Config) -> Table:
    made = output.table(
        "", "slot", "database", "plugin", "reader", "confirmed", "behind", "keeps", "safe for", "wal",
        right=("behind", "keeps", "safe for"),
    )  # fmt: skip
    for slot in slots:
        wal = slot.wal_status or ""
        made.add_row(
            Text("→" if slot.name == config.slot else "", style="green"),
            output.plain(slot.name),
            output.plain(slot.database or "physical"),
            slot.plugin or "",
            _reader(slot),
            str(slot.confirmed_flush_lsn or ""),
            units.size(slot.lag_bytes),
            units.size(slot.retained_bytes),
            units.size(slot.safe_wal_size) or ("" if slot.invalidation else "ever"),
            Text(f"{wal}: {slot.invalidation}" if slot.invalidation else wal, style=_WAL_STYLES.get(wal, "")),
        )
    return made


def _reader(slot: SlotFacts) -> str:
    if slot.active_pid is not None:
        return f"pid {slot.active_pid}"
    if slot.inactive_since is None:
        return "none"
    return f"none for {_ago((datetime.now(UTC) - slot.inactive_since).total_seconds())}"


def _ago(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _document(slot: SlotFacts, config: Config) -> dict[str, object]:
    return {
        "name": slot.name,
        "ours": slot.name == config.slot,
        "slot_type": slot.slot_type,
        "plugin": slot.plugin,
        "database": slot.database,
        "active_pid": slot.active_pid,
        "restart_lsn": str(slot.restart_lsn) if slot.restart_lsn is not None else None,
        "confirmed_flush_lsn": str(slot.confirmed_flush_lsn) if slot.confirmed_flush_lsn is not None else None,
        "lag_bytes": slot.lag_bytes,
        "retained_bytes": slot.retained_bytes,
        "safe_wal_size": slot.safe_wal_size,
        "wal_status": slot.wal_status,
        "invalidation": slot.invalidation or None,
        "inactive_since": slot.inactive_since.isoformat() if slot.inactive_since is not None else None,
        "failover": slot.failover,
    }
