"""Settings of the outbox, the section `[outbox]`. `cdc.config.outbox_check` checks how they fit together."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from cdc.config.section import Section

AGGREGATE: Final = "{aggregate_type}"
PIPELINE: Final = "{name}"


class Outbox(Section, frozen=True):
    """Events of an outbox: rows that applications insert, and logical messages. The section enables it."""

    table: Annotated[
        str,
        Meta(
            pattern=r"^[^.]+\.[^.]+$",
            description="schema.table of the outbox. Its rows are published as events, not as rows of a table.",
        ),
    ] = "outbox.outbox"
    prefix: Annotated[
        str, Meta(description="Prefix of logical messages that are published as events too. Empty: none.")
    ] = "outbox"
    topic: Annotated[
        str,
        Meta(
            description="Topic of events. `{name}` is the name of the pipeline, `{aggregate_type}` the type of "
            "the aggregate. Every character of the type except letters, digits and `_` becomes `-` and two hex "
            "digits."
        ),
    ] = "{name}.events.{aggregate_type}"
    columns: Annotated[
        dict[str, str],
        Meta(
            description='Field -> column name in a table of your own, for example {aggregate_id = "entity"}. '
            "Fields: id, aggregate_type, aggregate_id, type, payload, payload_bytes, version, content_type, "
            "headers, ordering_key, created_at. Debezium's aggregatetype and aggregateid are recognized."
        ),
    ] = {}
    extra: Annotated[
        dict[str, str],
        Meta(
            description='Further columns to publish with an event: "header" or "header:NAME", "envelope" or '
            '"envelope:NAME". With an envelope, the value is an object of `payload` and these columns.'
        ),
    ] = {}
    debezium: Annotated[
        dict[str, str],
        Meta(
            description="Options of Debezium's EventRouter under their own names, for example "
            '{"table.field.event.key" = "entity"}. An unsupported option is rejected, and the message names the '
            "alternative."
        ),
    ] = {}
    partitions: Annotated[
        int,
        Meta(
            ge=0,
            le=10000,
            description="Number of partitions of event topics that Tailrace creates. 0: as kafka.partitions.",
        ),
    ] = 0
    retention_s: Annotated[
        int, Meta(ge=0, description="Seconds for which event topics that Tailrace creates keep events. 0: forever.")
    ] = 604_800
    types_max: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Largest number of event topics. Events of further aggregate types are refused: otherwise "
            "a program that writes ids into the type would create a topic for each id.",
        ),
    ] = 500
    null_payload: Annotated[
        Literal["tombstone", "refuse"],
        Meta(
            description="An event without a payload: `tombstone` publishes a record without a value, `refuse` "
            "refuses the event."
        ),
    ] = "tombstone"
    on_update: Annotated[
        Literal["ignore", "stop"],
        Meta(
            description="An UPDATE of a row, which was published already: `ignore` counts it and continues, "
            "`stop` stops capture."
        ),
    ] = "ignore"
    existing: Annotated[
        Literal["route", "skip"],
        Meta(
            description="Rows that are in the table when capture first reads it: `route` publishes them as "
            "events, `skip` treats them as processed."
        ),
    ] = "route"
    publish_table: Annotated[
        bool,
        Meta(description="Capture the table's rows like those of any other table too, if source.tables selects it."),
    ] = False
    prune: Annotated[
        Literal["off", "delete", "drop"],
        Meta(
            description="Remove events from the table once they are in Kafka. `delete` deletes rows. `drop` drops "
            "partitions and creates the next ones."
        ),
    ] = "off"
    keep_s: Annotated[
        int, Meta(ge=0, description="Seconds for which events stay in the table before they are pruned, by created_at.")
    ] = 3600
    prune_interval_s: Annotated[
        float, Meta(gt=0, le=3600, description="Seconds between checks for events that can be pruned.")
    ] = 5.0
    prune_rows: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Largest number of rows that one statement deletes. Ten statements are one transaction.",
        ),
    ] = 5000
    partitions_ahead: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Number of days for which partitions are created ahead, if the table has one per day.",
        ),
    ] = 7
