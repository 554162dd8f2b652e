"""Settings of snapshots and of signals, the sections `[snapshot]` and `[signals]`; see `cdc.config.settings`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cdc.config.section import Section
from cdc.patterns import chosen


class Snapshot(Section, frozen=True):
    """Reading the rows that were in the tables before capture began."""

    mode: Literal["initial", "never"] = "initial"
    """`initial` reads every table that was never read, while changes stream. `never` captures changes only."""
    tables: dict[str, Literal["initial", "never"]] = {}
    """Pattern of schema.table -> mode, for example {"public.clicks" = "never"}. The last match wins."""
    workers: Annotated[int, Meta(ge=1, le=32)] = 2
    """Number of chunks that are read at once, each over its own connection. More workers read faster and put more load
    on the source.
    """
    chunk_bytes: Annotated[int, Meta(ge=8192, le=64 << 20)] = 8 << 20
    """Bytes of a table that are read at once. Larger chunks need more memory and are hardly faster."""
    rows_per_s_max: Annotated[int, Meta(ge=0, le=100_000_000)] = 0
    """Limit on the rows read per second, over all tables. Set it if the snapshot slows down other work. 0: no limit."""
    commit_latency_max_ms: Annotated[int, Meta(ge=0, le=600_000)] = 500
    """Snapshots slow down while a commit on the source takes longer, in milliseconds. It is measured by committing an
    empty logical message every two seconds, only while a snapshot reads. 0: off, and nothing is written.
    """
    standby_lag_max_s: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    """Snapshots slow down while a physical standby is further behind, in seconds. Needs `pg_read_all_stats`. 0: off."""
    standbys_ignored: tuple[str, ...] = ()
    """Values of `application_name` of standbys that do not count, such as one that is delayed on purpose."""
    io_waits_max_percent: Annotated[int, Meta(ge=0, le=100)] = 75
    """Snapshots slow down while more of the active client sessions wait for I/O or internal locks, in percent, from 8
    active sessions on. Needs `pg_read_all_stats`. 0: off.
    """
    copy_max_s: Annotated[int, Meta(ge=1, le=86_400)] = 600
    """Time limit in seconds for copying the tables without a key. Capture waits once for this copy. It is one Kafka
    transaction, so the broker's `transaction.max.timeout.ms` (15 min by default) must be a minute longer.
    """

    def wants(self, table: str) -> bool:
        """Return whether the rows that ``schema.table`` has before it is captured go into its topic."""
        return chosen(table, self.tables, self.mode) == "initial"


class Signals(Section, frozen=True):
    """Records in `<name>.__signals`, with which programs and `cdc snapshot` control snapshots."""

    enabled: bool = True
    """Read the signals topic and act on its records. If false, records wait in the topic until it is true again."""
    per_second_max: Annotated[float, Meta(ge=0, le=1_000_000)] = 10.0
    """Number of signals processed per second, after a burst of 20. The others wait in the topic. 0: no limit."""
