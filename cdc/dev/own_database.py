"""Checks the user's own database before anything starts, and removes slot and publication at the end."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cdc.config.load import load, parse
from cdc.config.secret import Secret
from cdc.config.settings import Config
from cdc.dev.chosen_parts import Parts
from cdc.dev.dev_config import SLOT_PREFIX, Addresses, OwnSource, own_config
from cdc.doctor.examine import examine_source
from cdc.doctor.finding import Finding
from cdc.doctor.gather import gather
from cdc.doctor.new_config import captured, left_out, suggested_name, table_lines, without_password
from cdc.doctor.toml_text import toml_string
from cdc.errors import SlotHeld, SourceRefused, SourceUnreachable, TailraceError, UsageError
from cdc.replication.connect import Connection, connect, translate
from cdc.replication.slot import drop_slot, held, slot_facts

_PASSWORD: Final = "TAILRACE_SOURCE_PASSWORD"  # noqa: S105 - the name of a variable
_PASSWORD_FILE: Final = "source_password"  # noqa: S105 - the name of a file
_APPLICATION: Final = "cdc dev"
_FREED_S: Final = 10.0  # until the server notices that the killed reader of a slot is gone
_POLL_S: Final = 0.2
_NOWHERE: Final = Addresses(
    bootstrap="127.0.0.1:1", search="http://127.0.0.1:1", cache="redis://127.0.0.1:1", port=0, sink_ports={}
)


@dataclass(frozen=True, slots=True)
class OwnDatabase:
    """The user's database, as `read_own` found it.

    Attributes:
        password: empty if libpq finds one itself, or needs none.
        tables: number of tables to capture.
        left_out: tables that cannot be captured, each with its reason.
    """

    source: OwnSource
    password: Secret
    tables: int
    left_out: tuple[str, ...]
    findings: tuple[Finding, ...]


def read_own(dsn: Secret, folder: Path, environ: Mapping[str, str]) -> OwnDatabase:
    """Read the catalog and run the checks of `cdc doctor` on it. Changes nothing.

    `folder` will hold the files of the run. Raises: SourceUnreachable, SourceRefused, UsageError, ConfigError.
    """
    try:
        inside = conninfo_to_dict(dsn.reveal())
    except psycopg.ProgrammingError:  # its message may contain parts of a password
        raise UsageError(
            "--dsn is not a connection string",
            hint="expected a URL or key=value pairs, as psql takes them",
            command="cdc dev --dsn postgresql://user@host:5432/database",
        ) from None
    password = environ.get(_PASSWORD) or str(inside.get("password") or "")
    plain = without_password(dsn)
    given = {_PASSWORD: password} if password else {}
    everything = (
        f'name = "dev"\n[source]\ndsn = {toml_string(plain)}\ntables = ["*.*"]\n[kafka]\nbootstrap = "127.0.0.1:1"\n'
    )
    try:
        facts = gather(parse(everything, given, where="the command line"))
    except SourceUnreachable as error:
        error.hint = error.hint.replace("source.dsn", "--dsn")
        raise
    tables = captured(facts)
    if not tables:
        raise SourceRefused(
            f"database {facts.database!r} has no table that can be captured",
            hint="a table needs a primary key; cdc dev without --dsn runs a sample shop",
            command="cdc dev",
        )
    name = suggested_name(facts.database)
    source = OwnSource(
        name=name,
        dsn=plain,
        password_file=str(folder / _PASSWORD_FILE) if password else "",
        slot=_slot(name, folder),
        tables=table_lines(facts),
    )
    text = own_config(
        OwnSource(source.name, source.dsn, "", source.slot, source.tables),
        _NOWHERE,
        Parts((), (), outbox=False, left_out=()),
        token="none",  # noqa: S106 - the file is only parsed
        lake=Path(),
    )
    _, findings = examine_source(parse(text, given, where="the command line"))
    reasons = tuple(f"{table.table}: {reason}" for table, reason in left_out(facts))
    return OwnDatabase(source, Secret(password), len(tables), reasons, tuple(findings))


def own_config_of(folder: Path) -> Config | None:
    """Return the configuration of a run in this folder if it captured the user's own database, else None."""
    try:
        config = load(folder / "cdc.toml", {})
    except TailraceError:
        return None
    return config if config.source.slot.startswith(SLOT_PREFIX) else None


def drop_left_slot(own: OwnDatabase, dsn: Secret) -> None:
    """Drop the slot that a lost run of the same stack on this machine left. Raises SourceError."""
    connection = connect(dsn, application_name=_APPLICATION)
    try:
        _drop_slot(connection, own.source.slot)
    finally:
        connection.close()


def release(config: Config) -> bool:
    """Drop slot and publication of a run that has ended; missing ones are no error. Raises SourceError.

    Returns False if the publication stays, because another role owns it. Without a slot it costs nothing.
    """
    connection = connect(config.source.dsn, application_name=_APPLICATION)
    try:
        _drop_slot(connection, config.slot)
        try:
            connection.execute(sql.SQL("drop publication if exists {}").format(sql.Identifier(config.publication)))
        except psycopg.errors.InsufficientPrivilege:
            return False
        except psycopg.Error as error:
            raise translate(error, f"drop publication {config.publication!r}") from error
        return True
    finally:
        connection.close()


def _drop_slot(connection: Connection, name: str) -> None:
    deadline_s = time.monotonic() + _FREED_S
    while (slot := slot_facts(connection, name)).exists:
        try:
            if slot.active_pid is not None:
                raise held(slot)
            drop_slot(connection, name)
        except SlotHeld:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_POLL_S)


def _slot(name: str, folder: Path) -> str:
    """Return a name that is always the same for this database, stack and machine, and differs from all others."""
    place = hashlib.sha256(f"{socket.gethostname()}:{folder}".encode()).hexdigest()
    return f"{SLOT_PREFIX}{name}_{place[:6]}"
