"""Settings of the outbox, the section `[outbox]`. `cdc.config.outbox_check` checks how they fit together."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from cdc.config.section import Section

AGGREGATE: Final = "{aggregate_type}"
PIPELINE: Final = "{name}"


class Outbox(Section, frozen=True):
    """Events of an outbox: rows that applications insert, and logical messages. The section enables it."""

    table: Annotated[str, Meta(pattern=r"^[^.]+\.[^.]+$")] = "outbox.outbox"
    """schema.table of the outbox. Its rows are published as events, not as rows of a table."""
    prefix: str = "outbox"
    """Prefix of logical messages that are published as events too. Empty: none."""
    topic: str = "{name}.events.{aggregate_type}"
    """Topic of events. `{name}` is the name of the pipeline, `{aggregate_type}` the type of the aggregate. Every
    character of the type except letters, digits and `_` becomes `-` and two hex digits.
    """
    columns: dict[str, str] = {}
    """Field -> column name in a table of your own, for example {aggregate_id = "entity"}. Fields: id, aggregate_type,
    aggregate_id, type, payload, payload_bytes, version, content_type, headers, ordering_key, created_at. Debezium's
    aggregatetype and aggregateid are recognized.
    """
    extra: dict[str, str] = {}
    """Further columns to publish with an event: "header" or "header:NAME", "envelope" or "envelope:NAME". With an
    envelope, the value is an object of `payload` and these columns.
    """
    debezium: dict[str, str] = {}
    """Options of Debezium's EventRouter under their own names, for example {"table.field.event.key" = "entity"}. An
    unsupported option is rejected, and the message names the alternative.
    """
    partitions: Annotated[int, Meta(ge=0, le=10000)] = 0
    """Number of partitions of event topics that Tailrace creates. 0: as kafka.partitions."""
    retention_s: Annotated[int, Meta(ge=0)] = 604_800
    """Seconds for which event topics that Tailrace creates keep events. 0: forever."""
    types_max: Annotated[int, Meta(ge=1, le=10_000)] = 500
    """Largest number of event topics. Events of further aggregate types are refused: otherwise a program that writes
    ids into the type would create a topic for each id.
    """
    null_payload: Literal["tombstone", "refuse"] = "tombstone"
    """An event without a payload: `tombstone` publishes a record without a value, `refuse` refuses the event."""
    on_update: Literal["ignore", "stop"] = "ignore"
    """An UPDATE of a row, which was published already: `ignore` counts it and continues, `stop` stops capture."""
    existing: Literal["route", "skip"] = "route"
    """Rows that are in the table when capture first reads it: `route` publishes them as events, `skip` treats them as
    processed.
    """
    publish_table: bool = False
    """Capture the table's rows like those of any other table too, if source.tables selects it."""
    prune: Literal["off", "delete", "drop"] = "off"
    """Remove events from the table once they are in Kafka. `delete` deletes rows. `drop` drops partitions and creates
    the next ones.
    """
    keep_s: Annotated[int, Meta(ge=0)] = 3600
    """Seconds for which events stay in the table before they are pruned, by created_at."""
    prune_interval_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """Seconds between checks for events that can be pruned."""
    prune_rows: Annotated[int, Meta(ge=1, le=100_000)] = 5000
    """Largest number of rows that one statement deletes. Ten statements are one transaction."""
    partitions_ahead: Annotated[int, Meta(ge=1, le=100)] = 7
    """Number of days for which partitions are created ahead, if the table has one per day."""
