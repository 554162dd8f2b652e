"""Settings of the source database, the section `[source]`; see `cdc.config.settings`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cdc.config.secret import Secret
from cdc.config.section import Section


class Source(Section, frozen=True):
    """The PostgreSQL database to capture."""

    dsn: Secret
    """libpq connection string or URL, including libpq's TLS settings."""
    password_file: str | None = None
    """File whose first line is the password. It is read for every new connection. TAILRACE_SOURCE_PASSWORD overrides
    it. Without a password, libpq reads PGPASSFILE or ~/.pgpass.
    """
    password_command: tuple[str, ...] = ()
    """Program and arguments that print the password, run without a shell for every new connection, for example for
    identity tokens of a cloud. It has 15 seconds. TAILRACE_SOURCE_PASSWORD overrides it.
    """
    tables: tuple[str, ...] = ("public.*",)
    """Tables to capture: shell patterns of schema.table. A leading `!` excludes. The last match wins."""
    keyless: tuple[str, ...] = ()
    """Patterns of tables without a key to capture anyway. Their topics are not compacted and their records have no key.
    """
    keys: dict[str, tuple[str, ...]] = {}
    """schema.table -> key columns, if they are not those of the primary key. The table needs a unique index on these
    columns and REPLICA IDENTITY FULL.
    """
    slot: str = ""
    """Name of the replication slot. Empty: `cdc_<name>`."""
    publication: str = ""
    """Name of the publication. Empty: `cdc_<name>`."""
    create: bool = True
    """Create slot and publication, and add tables to the publication. Set it to false if an administrator does this."""
    origin: Literal["any", "none"] = "any"
    """`none` skips changes that were written by logical replication or by another program with a replication origin.
    Use it to avoid a loop if two databases feed each other (PostgreSQL 16 or later).
    """
    slot_create_timeout_s: Annotated[float, Meta(gt=0, le=86400)] = 60.0
    """Seconds to wait for open write transactions when the slot is created."""
    on_truncate: Literal["delete", "stop", "ignore"] = "delete"
    """TRUNCATE sends no row events. `delete` publishes a delete for every key in the topic. `stop` stops capture before
    the TRUNCATE. `ignore` continues and leaves the old keys.
    """
    failover: bool = False
    """Synchronize the slot to standbys, so that capture continues after one is promoted (PostgreSQL 17 or later).
    howto/failover.md lists what primary and standby need.
    """
    on_wal_pressure: Literal["alarm", "drop_slot"] = "alarm"
    """Reaction to WAL that piles up for the slot. `alarm` only reports it. `drop_slot` also drops the slot at
    source.wal_drop_bytes: that saves the server's disk but loses changes, and capture ends in GAP.
    """
    wal_alarm_bytes: Annotated[int, Meta(ge=1 << 20)] = 16 << 30
    """Limit in bytes on the WAL retained for the slot, if max_slot_wal_keep_size sets none. Alarms are raised when 50,
    25 and 10 % of it are left.
    """
    wal_drop_bytes: Annotated[int, Meta(ge=0)] = 0
    """Bytes of retained WAL at which `drop_slot` drops the slot. Required with `drop_slot`."""
    wal_check_s: Annotated[float, Meta(gt=0, le=60)] = 10.0
    """Seconds between checks of the retained WAL. The checks continue while capture waits."""
    transaction_alarm_s: Annotated[float, Meta(gt=0)] = 600.0
    """Age in seconds at which an open write transaction is reported. The slot retains WAL from its beginning on."""
