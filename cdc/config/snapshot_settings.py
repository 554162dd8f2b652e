"""Sections [snapshot] and [signals]: reading the tables that are there, and being asked to."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cdc.config.section import Section
from cdc.patterns import chosen


class Snapshot(Section, frozen=True):
    """Rows that were in the tables before capture began."""

    mode: Annotated[
        Literal["initial", "never"],
        Meta(
            description="initial: read every table that was never read, while the stream flows; never: only what "
            "changes is captured"
        ),
    ] = "initial"
    tables: Annotated[
        dict[str, Literal["initial", "never"]],
        Meta(description='pattern of schema.table -> its mode, as {"public.clicks" = "never"}; the last match wins'),
    ] = {}
    workers: Annotated[int, Meta(ge=1, le=32, description="chunks that are read at once, each with a connection")] = 2
    chunk_bytes: Annotated[
        int,
        Meta(
            ge=8192,
            le=64 << 20,
            description="of a table that are read at once; more is hardly faster and takes memory",
        ),
    ] = 8 << 20
    rows_per_s_max: Annotated[
        int,
        Meta(ge=0, le=100_000_000, description="rows that are read in a second, of all tables together; 0: no limit"),
    ] = 0
    copy_max_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="seconds for copying the tables without a key, for which capture waits once: it is one Kafka "
            "transaction, so the broker's `transaction.max.timeout.ms` (15 min) must be a minute more",
        ),
    ] = 600

    def wants(self, table: str) -> bool:
        """Whether the rows that ``schema.table`` has before it is captured are to be in the log."""
        return chosen(table, self.tables, self.mode) == "initial"


class Signals(Section, frozen=True):
    """Records in `<name>.__signals`, by which programs and `cdc snapshot` steer snapshots."""

    enabled: Annotated[
        bool,
        Meta(
            description="read the topic and act on it; false: records stay there and are acted on once it is true again"
        ),
    ] = True
    per_second_max: Annotated[
        float,
        Meta(
            ge=0,
            le=1_000_000,
            description="records acted on in a second, after a burst of 20; the others wait in the topic; 0: no limit",
        ),
    ] = 10.0
