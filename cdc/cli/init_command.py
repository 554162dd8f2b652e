"""`cdc init`: reads a database and writes a cdc.toml that captures it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cdc.cli import output
from cdc.cli.command_options import config_file, json_option
from cdc.config.load import parse
from cdc.config.secret import Secret
from cdc.errors import LocalError, UsageError
from cdc.model import units

if TYPE_CHECKING:
    from cdc.doctor.new_config import NewConfig
    from cdc.doctor.source_facts import SourceFacts


@click.command("init")
@click.option("--dsn", metavar="DSN", help="PostgreSQL, e.g. postgresql://user@host/database  [default: ask].")
@click.option("--kafka", "bootstrap", metavar="HOST:PORT", help="Kafka brokers, separated by commas  [default: ask].")
@click.option("--local", is_flag=True, help="Use the servers of `cdc local up`.")
@click.option(
    "--stack", "stack_name", default="default", show_default=True, help="Stack of local servers that --local uses."
)
@click.option("--name", help="Pipeline name  [default: from the database].")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write  [default: cdc.toml].",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@json_option
def command(
    dsn: str | None,
    bootstrap: str | None,
    local: bool,
    stack_name: str,
    name: str | None,
    target: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a commented cdc.toml for a database.

    Tables with a key are captured. Tables without one are excluded by name, with what to do about each. A password
    is never written.
    """
    from cdc.doctor.new_config import NewConfig, suggested_name

    target = target or config_file(None)
    if not force:
        _refuse_overwriting(target)
    if local:
        dsn, bootstrap = _local(stack_name, dsn, bootstrap)
    dsn = dsn or _ask("--dsn", "PostgreSQL, e.g. postgresql://user@host/database")
    bootstrap = bootstrap or _ask("--kafka", "Kafka, e.g. host:9092")
    with output.waiting("reading the database"):
        facts = _read_source(dsn, bootstrap)
    new = NewConfig(name or suggested_name(facts.database), Secret(dsn), bootstrap, local, facts)
    _write(target, new, force=force)
    if as_json:
        output.show_json(_document(target, new))
    else:
        _print_summary(target, new)


def _local(stack_name: str, dsn: str | None, bootstrap: str | None) -> tuple[str, str]:
    """Return the addresses of a running local stack, unless they are given."""
    from cdc.local.stack import Stack

    stack = Stack(stack_name)
    running = {described.name for described in stack.describe() if described.condition == "running"}
    needed = {"postgres": dsn, "kafka": bootstrap}
    lacking = [server for server, given in needed.items() if given is None and server not in running]
    if lacking:
        suffix = "" if stack_name == "default" else f" --stack {stack_name}"
        raise LocalError(
            f"no local {' and no local '.join(lacking)} is running",
            hint="start the servers",
            command=f"cdc local up{suffix}",
        )
    return dsn or stack.postgres.printable_dsn, bootstrap or stack.kafka.bootstrap


def _ask(option: str, what: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError(
            f"{option} is missing",
            hint="give it, or use --local for the servers of `cdc local up`",
            command="cdc init --dsn postgresql://user@host/database --kafka host:9092",
        )
    return str(click.prompt(what, err=True))


def _read_source(dsn: str, bootstrap: str) -> SourceFacts:
    from cdc.doctor.gather import gather
    from cdc.doctor.toml_text import toml_string

    text = (
        f'name = "init"\n[source]\ndsn = {toml_string(dsn)}\ntables = ["*.*"]\n'
        f"[kafka]\nbootstrap = {toml_string(bootstrap)}\n"
    )
    password = os.environ.get("TAILRACE_SOURCE_PASSWORD")
    return gather(parse(text, {"TAILRACE_SOURCE_PASSWORD": password} if password else {}, where="the command line"))


def _refuse_overwriting(target: Path) -> None:
    if target.exists():
        raise UsageError(
            f"{target} already exists",
            hint="name another file with -o, or overwrite it with --force",
            command="cdc doctor",
        )


def _write(target: Path, new: NewConfig, *, force: bool) -> None:
    """Write the file atomically, after checking that it can be parsed."""
    from cdc.doctor.new_config import render

    text = render(new)
    parse(text, {}, where=str(target))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, encoding="utf-8")
        if force:
            unfinished.replace(target)
        else:
            # Unlike a rename, a link never replaces a file that was created meanwhile.
            target.hardlink_to(unfinished)
    except FileExistsError:
        _refuse_overwriting(target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _print_summary(target: Path, new: NewConfig) -> None:
    from cdc.doctor.new_config import captured, has_password, left_out

    tables = captured(new.facts)
    output.done(
        f"wrote {target}: {units.count(len(tables), 'table')} of database {new.facts.database!r}, pipeline {new.name!r}"
    )
    for table, reason in left_out(new.facts):
        output.note(f"  left out: {table.table}: {reason}")
    if has_password(new.dsn):
        output.note("the password is not in the file; set TAILRACE_SOURCE_PASSWORD or PGPASSFILE")
    option = "" if target == Path("cdc.toml") else f" -c {target}"
    output.note(f"next: cdc{option} doctor, then cdc{option} run")


def _document(target: Path, new: NewConfig) -> dict[str, object]:
    from cdc.doctor.new_config import captured, has_password, left_out

    return {
        "path": str(target),
        "name": new.name,
        "database": new.facts.database,
        "tables": [{"table": table.table, "key": list(table.key)} for table in captured(new.facts)],
        "left_out": [{"table": table.table, "reason": reason} for table, reason in left_out(new.facts)],
        "password_needed": has_password(new.dsn),
    }
