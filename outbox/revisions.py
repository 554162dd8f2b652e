"""Lists the migrations of this release, selects those that are due, and prints their SQL. Opens no connection.

Independent of the service.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from outbox import table_partitions
from outbox.errors import MigrationRefused
from outbox.table_names import Names, quoted

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext

Phase = Literal["pre", "post"]

VERSION_TABLE: Final = "tailrace_migration"
LOCK_TIMEOUT_MS: Final = 2_000  # how long writers may queue behind a migration; most pools give up after 30 s
ATTEMPTS: Final = 60


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a deployment.

    Attributes:
        names: names of the schema and tables.
        partitioned: whether the outbox is partitioned by day; None: keep an existing outbox, create a plain one.
        publication: add outbox and heartbeat to this publication; empty: to none.
        lock_timeout_ms: how long one attempt waits for a lock; writers queue behind it.
        attempts: how often a migration is attempted.
    """

    names: Names = field(default_factory=Names)
    partitioned: bool | None = None
    publication: str = ""
    lock_timeout_ms: int = LOCK_TIMEOUT_MS
    attempts: int = ATTEMPTS


@dataclass(frozen=True, slots=True)
class Revision:
    """A migration: its id, its phase, its title, and the tables that its downgrade drops."""

    id: str
    phase: Phase
    title: str
    drops: tuple[str, ...]


def folder() -> Path:
    """Return the folder of the migrations: beside this file in the wheel, at the root of the repository."""
    here = Path(__file__).resolve().parent
    shipped = here / "_migrations"
    return shipped if shipped.is_dir() else here.parent / "migrations"


def settings_of(context: MigrationContext) -> Settings:
    """Return the settings inside a migration."""
    assert context.config is not None
    return cast("Settings", context.config.attributes["settings"])


def revisions() -> list[Revision]:
    """Return every migration of this release, in the order in which they are applied."""
    scripts = ScriptDirectory(str(folder()))
    return [
        Revision(one.revision, one.module.phase, (one.doc or "").split("\n")[0], _tables_of(one.module))
        for one in reversed(list(scripts.walk_revisions()))
    ]


def due(pending: list[Revision], phase: Phase | None) -> list[Revision]:
    """Return the pending migrations that `up` applies: with ``pre`` those before the first ``post`` one, else all.

    With ``post``, earlier ``pre`` migrations that have not run yet are included. Pure.
    """
    if phase != "pre":
        return pending
    posts = [number for number, one in enumerate(pending) if one.phase == "post"]
    return pending[: posts[0]] if posts else pending


def script(settings: Settings, *, since: str = "base", phase: Phase | None = None) -> str:
    """Return the statements that `up` runs on a database at revision `since`, for a DBA to read and run."""
    known = revisions()
    pending = known if since == "base" else above(tuple(known), since)[::-1]
    wanted = due(list(pending), phase)
    out = io.StringIO()
    schema = quoted(settings.names.schema)
    out.write(f"-- Run this as the role that will own the tables. To stop at the first error: psql -v ON_ERROR_STOP=1\n"
              f"create schema if not exists {schema};\nset lock_timeout = {settings.lock_timeout_ms};\n\n")  # fmt: skip
    if wanted:
        config = config_of(settings, out)
        command.upgrade(config, f"{since}:{wanted[-1].id}" if since != "base" else wanted[-1].id, sql=True)
    if settings.partitioned:
        for day in table_partitions.days_ahead(datetime.now(UTC).date()):
            out.write(f"{table_partitions.create_day(settings.names.schema, settings.names.outbox, day)};\n")
    if settings.publication:
        tables = ", ".join(map(settings.names.qualified, (settings.names.outbox, settings.names.heartbeat)))
        out.write(f"\nalter publication {quoted(settings.publication)} add table {tables};\n")
    return out.getvalue()


def config_of(settings: Settings, out: io.StringIO | None = None) -> Config:
    """Return Alembic's configuration; with `out`, Alembic writes its statements there."""
    config = Config(output_buffer=out)
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["settings"] = settings
    return config


def _tables_of(module: Any) -> tuple[str, ...]:
    return tuple(getattr(module, "drops", ()))


def above(applied: tuple[Revision, ...], target: str) -> list[Revision]:
    """Return the revisions above `target`, newest first. Raises MigrationRefused if `target` is not applied."""
    ids = [one.id for one in applied]
    if target != "base" and target not in ids:
        raise MigrationRefused(
            f"revision {target} is not applied",
            hint=f"expected base, or one of {', '.join(ids)}" if ids else "no revision is applied",
        )
    return list(reversed(applied[0 if target == "base" else ids.index(target) + 1 :]))
