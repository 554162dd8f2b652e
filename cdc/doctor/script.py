"""The script a DBA runs once: role, rights, publication, slot. Pure: what is known in, SQL out.

It may be run twice, and whatever names hold, they stay names: identifiers and texts are quoted, comments have no
line of anybody else's. Where the source cannot be looked at yet (the role that looks is made by this very script),
the part that needs its tables is left for a second run.
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
    """The whole script. `facts` is None when the source cannot be reached; `findings` are what the doctor said.

    `repair` is the command that a start asks for first: then no slot is created here, which would hide what is lost.
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
            f"-- Tailrace: what pipeline {config.name} needs of PostgreSQL. It may be run again.",
            f"-- Run it in database {database!r} as a superuser, or as owner of its tables with CREATEROLE:",
            "--   psql --set ON_ERROR_STOP=1 --file tailrace.sql ...",
        )
    )


def _settings(facts: SourceFacts | None) -> str:
    if facts is not None and facts.settings.get("wal_level") == "logical":
        return ""
    lines = ("-- Row changes are only in the WAL with wal_level = logical; it needs a restart.",)
    statement = "alter system set wal_level = 'logical';"
    return "\n".join((*lines, statement if facts is not None else f"-- {statement}"))


def _role(role: str, facts: SourceFacts | None) -> str:
    if facts is not None and facts.role.superuser:
        return _comment(
            f"Role {role!r} is a superuser and needs no rights. A role of its own in source.dsn would be safer: "
            "name it there and print this script again."
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
    return f"-- The role capture connects as.\n{_do(body)}"


def _grants(role: str, database: str, tables: Sequence[SourceTable], facts: SourceFacts | None) -> str:
    lines = [f"grant connect on database {ident(database)} to {ident(role)};"]
    schemas = sorted({table.namespace for table in tables})
    lines += [f"grant usage on schema {ident(schema)} to {ident(role)};" for schema in schemas]
    if tables:
        names = ",\n    ".join(name_of(table) for table in tables)
        lines.append(f"grant select on\n    {names}\n    to {ident(role)};")
    if facts is not None and any(may.filtered for may in facts.rights.values()):
        lines.append(f"alter role {ident(role)} bypassrls;  -- row level security would hide rows from it")
    why = "-- Streaming needs no right on a table; copying what is there, and reading large values again, does."
    return "\n".join((why, *lines))


def _decisions(findings: Sequence[Finding]) -> str:
    """What only a person can choose, as comments."""
    open_points = [f for f in findings if f.table and f.sql and f.level is not Level.OK]
    if not open_points:
        return ""
    lines = ["-- Tables that want a decision; take out the dashes of what you choose."]
    for finding in open_points:
        lines += [_comment(finding.message), _comment(finding.sql, indent="  ")]
    return "\n".join(lines)


def _publication(config: Config, tables: Sequence[SourceTable], facts: SourceFacts | None) -> str:
    name = config.publication
    if facts is None:
        return _comment(
            f"The publication {name!r}: run `cdc doctor --sql` again once the role can connect, "
            "and it lists the tables."
        )
    if not tables:
        return _comment(f"The publication {name!r}: no table matches source.tables yet.")
    if facts.publication is None:
        body = (
            "begin\n"
            f"    if not exists (select from pg_catalog.pg_publication where pubname = {literal(name)}) then\n"
            f"        {create_statement(name, tables, facts.version_num)}\n"
            "    end if;\n"
            "end"
        )
        return f"-- What is published.\n{_do(body)}"
    statement = unfit(facts.publication, tables)[1]
    generated = publishing(facts.publication, tables, facts.version_num)
    statements = [
        *([statement] if statement else []),
        *to_add(facts.publication, name, tables),
        *([generated] if generated else []),
    ]
    return "\n".join(("-- What is published.", *statements)) if statements else ""


def _slot(config: Config, repair: str) -> str:
    name = config.slot
    if repair:
        return _comment(f"No slot is created here: the log must be repaired first, which creates it. Run: {repair}")
    failover = ", failover => true" if config.source.failover else ""
    return "\n".join(
        (
            "-- The slot comes last: PostgreSQL keeps WAL for it from now on, so start capture soon.",
            f"select pg_catalog.pg_create_logical_replication_slot({literal(name)}, 'pgoutput'{failover})",
            f"where not exists (select from pg_catalog.pg_replication_slots where slot_name = {literal(name)});",
        )
    )


def _tail() -> str:
    return "-- Then, in cdc.toml:  [source]  create = false"


def _do(body: str) -> str:
    """An anonymous block; its tag is one the body does not hold."""
    tag = next(tag for tag in _tags() if tag not in body)
    return f"do {tag}\n{body}\n{tag};"


def _tags() -> Iterator[str]:
    yield "$tailrace$"
    for number in range(1_000_000):
        yield f"$tailrace{number}$"


def _comment(text: str, indent: str = "") -> str:
    """Every line of it a comment, whatever ends a line."""
    return "\n".join(f"-- {indent}{line}" for line in text.splitlines())
