"""The migrations of this release: which there are, when each is due, and the SQL of them. No connection.

Knows nothing of the service.
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
LOCK_TIMEOUT_MS: Final = 2_000  # what a writer may have to wait behind us; most pools give up after 30 s
ATTEMPTS: Final = 60


@dataclass(frozen=True, slots=True)
class Settings:
    """What is deployed, and how patiently.

    Attributes:
        names: schema and tables.
        partitioned: the outbox by day; None: as it is, and not where it is made.
        publication: which publication outbox and heartbeat are added to; empty: none.
        lock_timeout_ms: how long one attempt waits for a lock, and others behind it.
        attempts: how often a migration is tried.
    """

    names: Names = field(default_factory=Names)
    partitioned: bool | None = None
    publication: str = ""
    lock_timeout_ms: int = LOCK_TIMEOUT_MS
    attempts: int = ATTEMPTS


@dataclass(frozen=True, slots=True)
class Revision:
    """A migration: its id, when it runs, what it says of itself, and which tables it drops on the way down."""

    id: str
    phase: Phase
    title: str
    drops: tuple[str, ...]


def folder() -> Path:
    """Where the migrations lie: in the wheel beside this file, in the repository at its root."""
    here = Path(__file__).resolve().parent
    shipped = here / "_migrations"
    return shipped if shipped.is_dir() else here.parent / "migrations"


def settings_of(context: MigrationContext) -> Settings:
    """What a migration deploys; for the migrations themselves."""
    assert context.config is not None
    return cast("Settings", context.config.attributes["settings"])


def revisions() -> list[Revision]:
    """Every migration of this release, in the order in which they are applied."""
    scripts = ScriptDirectory(str(folder()))
    return [
        Revision(one.revision, one.module.phase, (one.doc or "").split("\n")[0], _tables_of(one.module))
        for one in reversed(list(scripts.walk_revisions()))
    ]


def due(pending: list[Revision], phase: Phase | None) -> list[Revision]:
    """What `up` applies of what is pending: all, or before a deployment all up to the first ``post``. Pure.

    After a deployment (``post``) it is all: what should have run before runs too.
    """
    if phase != "pre":
        return pending
    posts = [number for number, one in enumerate(pending) if one.phase == "post"]
    return pending[: posts[0]] if posts else pending


def script(settings: Settings, *, since: str = "base", phase: Phase | None = None) -> str:
    """The statements that `up` would run on a database at revision `since`, for a DBA to read and run."""
    known = revisions()
    pending = known if since == "base" else above(tuple(known), since)[::-1]
    wanted = due(list(pending), phase)
    out = io.StringIO()
    schema = quoted(settings.names.schema)
    out.write(f"-- Run as the role that is to own the tables. Stops at the first error: psql -v ON_ERROR_STOP=1\n"
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
    """Alembic's configuration; with `out` its statements are written there."""
    config = Config(output_buffer=out)
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["settings"] = settings
    return config


def _tables_of(module: Any) -> tuple[str, ...]:
    return tuple(getattr(module, "drops", ()))


def above(applied: tuple[Revision, ...], target: str) -> list[Revision]:
    """Those after `target`, newest first. Raises MigrationRefused for a target that is not among them."""
    ids = [one.id for one in applied]
    if target != "base" and target not in ids:
        raise MigrationRefused(
            f"revision {target} is not applied", hint=f"base, or one of {', '.join(ids)}" if ids else "nothing is"
        )
    return list(reversed(applied[0 if target == "base" else ids.index(target) + 1 :]))
