"""Renders the script that a DBA runs: role, rights, publication, slot. Pure: facts in, SQL out.

The script can be run again. Identifiers and texts are quoted, and text in comments cannot break out of them,
whatever a name contains. If the source cannot be read yet, because this script creates the role, the part about
tables is left for a second run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg.conninfo import conninfo_to_dict

from cdc.config.settings import Config
from cdc.doctor.finding import Finding, Level
from cdc.doctor.source_facts import SourceFacts
from cdc.doctor.sql_text import ident, literal, name_of
from cdc.replication.generated_columns import publishing
from cdc.replication.publication import create_statement, to_add, unfit
from cdc.replication.table_shape import SourceTable


def script(config: Config, facts: SourceFacts | None, findings: Sequence[Finding] = (), *, repair: str = "") -> str:
    """Return the whole script.

    Args:
        config: the configuration.
        facts: None when the source cannot be reached.
        findings: the doctor's findings.
        repair: the command that a start requires first. Then the script creates no slot, which would hide the loss.
    """
    role, database = _names(config, facts)
    tables = [] if facts is None else facts.published
    parts = [
        _head(config, database),
        _settings(facts),
        "begin;\nset local lock_timeout = '10s';",
        _role(role, facts),
        "" if facts is not None and facts.role.superuser else _grants(role, database, tables, facts),
        _decisions(findings),
        _publication(config, tables, facts),
        "commit;",
        _slot(config, repair),
        _tail(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _names(config: Config, facts: SourceFacts | None) -> tuple[str, str]:
    if facts is not None:
        return facts.role.name, facts.database
    given = conninfo_to_dict(config.source.dsn.reveal())
    role = str(given.get("user") or "cdc")
    return role, str(given.get("dbname") or role)


def _head(config: Config, database: str) -> str:
    return "\n".join(
        (
            f"-- Tailrace: prepares PostgreSQL for pipeline {config.name}. You can run this script again.",
            f"-- Run it in database {database!r} as a superuser, or as the owner of its tables with CREATEROLE:",
            "--   psql --set ON_ERROR_STOP=1 --file tailrace.sql ...",
        )
    )


def _settings(facts: SourceFacts | None) -> str:
    if facts is not None and facts.settings.get("wal_level") == "logical":
        return ""
    lines = ("-- The WAL has row changes only with wal_level = logical; a change needs a restart.",)
    statement = "alter system set wal_level = 'logical';"
    return "\n".join((*lines, statement if facts is not None else f"-- {statement}"))


def _role(role: str, facts: SourceFacts | None) -> str:
    if facts is not None and facts.role.superuser:
        return _comment(
            f"Role {role!r} is a superuser and needs no grants. A dedicated role is safer: "
            "name it in source.dsn and print this script again."
        )
    body = (
        "begin\n"
        f"    if not exists (select from pg_catalog.pg_roles where rolname = {literal(role)}) then\n"
        f"        create role {ident(role)} with login replication password 'CHANGE ME';\n"
        "    else\n"
        f"        alter role {ident(role)} with login replication;\n"
        "    end if;\n"
        "end"
    )
    return f"-- The role that capture connects as.\n{_do(body)}"


def _grants(role: str, database: str, tables: Sequence[SourceTable], facts: SourceFacts | None) -> str:
    lines = [f"grant connect on database {ident(database)} to {ident(role)};"]
    schemas = sorted({table.namespace for table in tables})
    lines += [f"grant usage on schema {ident(schema)} to {ident(role)};" for schema in schemas]
    if tables:
        names = ",\n    ".join(name_of(table) for table in tables)
        lines.append(f"grant select on\n    {names}\n    to {ident(role)};")
    if facts is not None and any(may.filtered for may in facts.rights.values()):
        lines.append(f"alter role {ident(role)} bypassrls;  -- otherwise row level security hides rows from it")
    why = "-- Streaming needs no right on a table; copying existing rows and reading large values again do."
    return "\n".join((why, *lines))


def _decisions(findings: Sequence[Finding]) -> str:
    """Return the findings that need a decision, as comments."""
    open_points = [f for f in findings if f.table and f.sql and f.level is not Level.OK]
    if not open_points:
        return ""
    lines = ["-- Tables that need a decision; uncomment the statements you choose."]
    for finding in open_points:
        lines += [_comment(finding.message), _comment(finding.sql, indent="  ")]
    return "\n".join(lines)


def _publication(config: Config, tables: Sequence[SourceTable], facts: SourceFacts | None) -> str:
    name = config.publication
    if facts is None:
        return _comment(
            f"Publication {name!r}: run `cdc doctor --sql` again when the role can connect; "
            "the script then lists the tables."
        )
    if not tables:
        return _comment(f"Publication {name!r}: no table matches source.tables yet.")
    if facts.publication is None:
        body = (
            "begin\n"
            f"    if not exists (select from pg_catalog.pg_publication where pubname = {literal(name)}) then\n"
            f"        {create_statement(name, tables, facts.version_num)}\n"
            "    end if;\n"
            "end"
        )
        return f"-- The published tables.\n{_do(body)}"
    statement = unfit(facts.publication, tables)[1]
    generated = publishing(facts.publication, tables, facts.version_num)
    statements = [
        *([statement] if statement else []),
        *to_add(facts.publication, name, tables),
        *([generated] if generated else []),
    ]
    return "\n".join(("-- The published tables.", *statements)) if statements else ""


def _slot(config: Config, repair: str) -> str:
    name = config.slot
    if repair:
        return _comment(f"This script creates no slot: repair the log first, which creates one. Run: {repair}")
    failover = ", failover => true" if config.source.failover else ""
    return "\n".join(
        (
            "-- The slot is last: PostgreSQL keeps WAL for it from now on, so start capture soon.",
            f"select pg_catalog.pg_create_logical_replication_slot({literal(name)}, 'pgoutput'{failover})",
            f"where not exists (select from pg_catalog.pg_replication_slots where slot_name = {literal(name)});",
        )
    )


def _tail() -> str:
    return "-- Then set in cdc.toml:  [source]  create = false"


def _do(body: str) -> str:
    """Return an anonymous block; its tag does not occur in the body."""
    tag = next(tag for tag in _tags() if tag not in body)
    return f"do {tag}\n{body}\n{tag};"


def _tags() -> Iterator[str]:
    yield "$tailrace$"
    for number in range(1_000_000):
        yield f"$tailrace{number}$"


def _comment(text: str, indent: str = "") -> str:
    """Turn every line of `text` into a comment, whatever its line endings."""
    return "\n".join(f"-- {indent}{line}" for line in text.splitlines())
