"""Settings of snapshots and of signals, the sections `[snapshot]` and `[signals]`; see `cdc.config.settings`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cdc.config.section import Section
from cdc.patterns import chosen


class Snapshot(Section, frozen=True):
    """Reading the rows that were in the tables before capture began."""

    mode: Annotated[
        Literal["initial", "never"],
        Meta(
            description="`initial` reads every table that was never read, while changes stream. `never` captures "
            "changes only."
        ),
    ] = "initial"
    tables: Annotated[
        dict[str, Literal["initial", "never"]],
        Meta(
            description='Pattern of schema.table -> mode, for example {"public.clicks" = "never"}. The last match wins.'
        ),
    ] = {}
    workers: Annotated[
        int,
        Meta(
            ge=1,
            le=32,
            description="Number of chunks that are read at once, each over its own connection. More workers read "
            "faster and put more load on the source.",
        ),
    ] = 2
    chunk_bytes: Annotated[
        int,
        Meta(
            ge=8192,
            le=64 << 20,
            description="Bytes of a table that are read at once. Larger chunks need more memory and are hardly faster.",
        ),
    ] = 8 << 20
    rows_per_s_max: Annotated[
        int,
        Meta(
            ge=0,
            le=100_000_000,
            description="Limit on the rows read per second, over all tables. Set it if the snapshot slows down "
            "other work. 0: no limit.",
        ),
    ] = 0
    copy_max_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="Time limit in seconds for copying the tables without a key. Capture waits once for this "
            "copy. It is one Kafka transaction, so the broker's `transaction.max.timeout.ms` (15 min by default) "
            "must be a minute longer.",
        ),
    ] = 600

    def wants(self, table: str) -> bool:
        """Return whether the rows that ``schema.table`` has before it is captured go into its topic."""
        return chosen(table, self.tables, self.mode) == "initial"


class Signals(Section, frozen=True):
    """Records in `<name>.__signals`, with which programs and `cdc snapshot` control snapshots."""

    enabled: Annotated[
        bool,
        Meta(
            description="Read the signals topic and act on its records. If false, records wait in the topic until "
            "it is true again."
        ),
    ] = True
    per_second_max: Annotated[
        float,
        Meta(
            ge=0,
            le=1_000_000,
            description="Number of signals processed per second, after a burst of 20. The others wait in the "
            "topic. 0: no limit.",
        ),
    ] = 10.0
