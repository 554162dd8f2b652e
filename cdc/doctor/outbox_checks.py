"""Checks of the outbox: its table, columns, rights, and the requirements of pruning. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.config.outbox_settings import Outbox
from cdc.config.settings import Config
from cdc.doctor.finding import Finding, Group, Level
from cdc.doctor.source_facts import OutboxFacts, SourceFacts
from cdc.doctor.sql_text import ident, name_of
from cdc.errors import SourceRefused
from outbox.row_form import row_form


def check_outbox(facts: SourceFacts, config: Config) -> list[Finding]:
    """Run all checks; none without `[outbox]`."""
    if config.outbox is None:
        return []
    if facts.outbox is None:
        text = f"{config.outbox.table} does not exist yet; capture takes logical messages, and the table once it exists"
        return [_finding(config.outbox, Level.WARNING, "outbox_missing", text, command="cdc migrate up")]
    found = [*_table(facts.outbox, config.outbox), *_rights(facts, facts.outbox, config.outbox)]
    if not found:
        text = f"events of {config.outbox.table} go to {config.outbox.topic.replace('{name}', config.name)}"
        found = [_finding(config.outbox, Level.OK, "outbox", text)]
    return found


def _table(facts: OutboxFacts, outbox: Outbox) -> Iterator[Finding]:
    table = facts.table
    if table.problem:
        text = (
            f"{table.table} cannot be captured: {table.problem}; once it is published, PostgreSQL rejects every DELETE"
        )
        yield _finding(outbox, Level.ERROR, "outbox_key", text)
    try:
        row_form(table.relation(None), outbox.columns, outbox.extra)
    except SourceRefused as error:
        yield _finding(outbox, Level.ERROR, "outbox_columns", error.message, command=error.command)
    if outbox.prune == "drop" and not table.partitioned:
        text = f'{table.table} is not partitioned, but [outbox] prune = "drop" drops partitions'
        yield _finding(outbox, Level.ERROR, "outbox_prune", text, command='[outbox] prune = "delete"')


def _rights(facts: SourceFacts, outbox: OutboxFacts, settings: Outbox) -> Iterator[Finding]:
    table, role = outbox.table, ident(facts.role.name)
    if not outbox.can_select and settings.existing == "route":
        text = f"role {facts.role.name!r} may not read {table.table}, so its existing rows cannot be routed"
        sql = f"grant usage on schema {ident(table.namespace)} to {role};\ngrant select on {name_of(table)} to {role};"
        yield _finding(settings, Level.ERROR, "outbox_rights", text, sql=sql)
    if settings.prune == "delete" and not outbox.can_delete:
        text = f"role {facts.role.name!r} has no DELETE right on {table.table}, so its rows cannot be pruned"
        sql = f"grant select, delete on {name_of(table)} to {role};"
        yield _finding(settings, Level.WARNING, "outbox_prune_rights", text, sql=sql)
    if settings.prune == "drop" and not outbox.owned:
        text = f"role {facts.role.name!r} does not own {table.table}, so it cannot drop its partitions"
        yield _finding(
            settings, Level.WARNING, "outbox_prune_rights", text, sql=f"grant {ident(outbox.owner)} to {role};"
        )


def _finding(outbox: Outbox, level: Level, check: str, message: str, *, sql: str = "", command: str = "") -> Finding:
    return Finding(
        group=Group.TABLES, level=level, check=check, message=message, sql=sql, command=command, table=outbox.table
    )
