"""The section `[source]`; see `cdc.config.settings`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cdc.config.secret import Secret
from cdc.config.section import Section


class Source(Section, frozen=True):
    """The PostgreSQL database that is captured."""

    dsn: Annotated[Secret, Meta(description="libpq connection string or URL; TLS settings as libpq has them")]
    password_file: Annotated[
        str | None,
        Meta(description="file whose first line is the password (else TAILRACE_SOURCE_PASSWORD, PGPASSFILE)"),
    ] = None
    tables: Annotated[
        tuple[str, ...],
        Meta(description="shell patterns of schema.table; `!` in front excludes; the last match wins"),
    ] = ("public.*",)
    keyless: Annotated[
        tuple[str, ...],
        Meta(
            description="patterns of tables without a key that are captured all the same: their topic is not "
            "compacted and its records have no key"
        ),
    ] = ()
    keys: Annotated[
        dict[str, tuple[str, ...]],
        Meta(
            description="schema.table -> key columns, where they are not those of the primary key: a unique index over "
            "them must stand, and the table be REPLICA IDENTITY FULL"
        ),
    ] = {}
    slot: Annotated[str, Meta(description="replication slot; `cdc_<name>` when empty")] = ""
    publication: Annotated[str, Meta(description="publication; `cdc_<name>` when empty")] = ""
    create: Annotated[
        bool,
        Meta(description="create slot and publication, and add tables to the publication; false: made by hand"),
    ] = True
    origin: Annotated[
        Literal["any", "none"],
        Meta(
            description="none: leave out what logical replication or another program with a replication origin wrote "
            "here, so that two databases that feed each other make no loop (PostgreSQL 16 or later)"
        ),
    ] = "any"
    slot_create_timeout_s: Annotated[
        float,
        Meta(gt=0, le=86400, description="seconds to wait for open write transactions when the slot is created"),
    ] = 60.0
    on_truncate: Annotated[
        Literal["delete", "stop", "ignore"],
        Meta(
            description="TRUNCATE has no row events: delete every key the topic has, stop capture before it, or go on "
            "and leave the old keys"
        ),
    ] = "delete"
    failover: Annotated[
        bool,
        Meta(
            description="have the slot synchronised to standbys, so that capture goes on after one is promoted "
            "(PostgreSQL 17 or later); howto/failover.md has what standby and primary need"
        ),
    ] = False
    on_wal_pressure: Annotated[
        Literal["alarm", "drop_slot"],
        Meta(
            description="when WAL piles up for the slot: only tell, or also drop the slot at source.wal_drop_bytes to "
            "save the server's disk, which loses changes: capture then ends in GAP"
        ),
    ] = "alarm"
    wal_alarm_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description="of WAL kept for the slot, where max_slot_wal_keep_size sets no limit: alarms come when 50, 25 "
            "and 10 % of it are left",
        ),
    ] = 16 << 30
    wal_drop_bytes: Annotated[
        int, Meta(ge=0, description="of WAL kept for the slot at which `drop_slot` drops it; must be set for that")
    ] = 0
    wal_check_s: Annotated[
        float, Meta(gt=0, le=60, description="seconds between looks at the WAL that is kept, also while capture waits")
    ] = 10.0
    transaction_alarm_s: Annotated[
        float,
        Meta(gt=0, description="seconds after which an open write transaction is named: WAL is kept from its begin on"),
    ] = 600.0
