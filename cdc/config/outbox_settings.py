"""The section `[outbox]`; see `cdc.config.settings`. What it means together is checked by `cdc.config.outbox_check`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from cdc.config.section import Section

AGGREGATE: Final = "{aggregate_type}"
PIPELINE: Final = "{name}"


class Outbox(Section, frozen=True):
    """Events of an outbox: rows that applications insert, and logical messages. There is one when the section is."""

    table: Annotated[
        str,
        Meta(
            pattern=r"^[^.]+\.[^.]+$",
            description="schema.table of the outbox. It is published, and its rows are events: it has no topic of rows",
        ),
    ] = "outbox.outbox"
    prefix: Annotated[str, Meta(description="prefix of logical messages that are events as well; empty: none is")] = (
        "outbox"
    )
    topic: Annotated[
        str,
        Meta(
            description="of events: `{name}` is that of the pipeline, `{aggregate_type}` the type of the aggregate, in "
            "which everything but letters, digits and `_` is `-` and two hex digits"
        ),
    ] = "{name}.events.{aggregate_type}"
    columns: Annotated[
        dict[str, str],
        Meta(
            description='what a column is called in a table of your own, as {aggregate_id = "entity"}: id, '
            "aggregate_type, aggregate_id, type, payload, payload_bytes, version, content_type, headers, ordering_key, "
            "created_at. Debezium's aggregatetype and aggregateid are known"
        ),
    ] = {}
    extra: Annotated[
        dict[str, str],
        Meta(
            description='further columns that go with an event: "header", "header:NAME", or "envelope", "envelope:NAME"'
            " (the value is then an object of `payload` and these)"
        ),
    ] = {}
    debezium: Annotated[
        dict[str, str],
        Meta(
            description='options of Debezium\'s EventRouter as they are, as {"table.field.event.key" = "entity"}; what '
            "cannot be had is refused with what there is instead"
        ),
    ] = {}
    partitions: Annotated[
        int, Meta(ge=0, le=10000, description="of event topics that we make; 0: as kafka.partitions")
    ] = 0
    retention_s: Annotated[
        int, Meta(ge=0, description="seconds for which event topics that we make keep events; 0: for good")
    ] = 604_800
    types_max: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="event topics at most: further aggregate types are refused, for a program that writes ids into "
            "them would make a topic for each",
        ),
    ] = 500
    null_payload: Annotated[
        Literal["tombstone", "refuse"],
        Meta(description="an event without a payload: a record without a value, or one that is refused"),
    ] = "tombstone"
    on_update: Annotated[
        Literal["ignore", "stop"],
        Meta(description="an UPDATE of a row, which is an event already: count it and go on, or stop capture"),
    ] = "ignore"
    existing: Annotated[
        Literal["route", "skip"],
        Meta(description="rows that are in the table when capture first sees it: events, or done with already"),
    ] = "route"
    publish_table: Annotated[
        bool, Meta(description="capture the table's rows as those of any other, too, if source.tables selects it")
    ] = False
    prune: Annotated[
        Literal["off", "delete", "drop"],
        Meta(
            description="take events out of the table that are in Kafka: delete rows, or drop partitions and make the "
            "next ones"
        ),
    ] = "off"
    keep_s: Annotated[
        int, Meta(ge=0, description="seconds for which events stay in the table, by created_at, before they are pruned")
    ] = 3600
    prune_interval_s: Annotated[
        float, Meta(gt=0, le=3600, description="seconds between looks for what can be pruned")
    ] = 5.0
    prune_rows: Annotated[
        int, Meta(ge=1, le=100_000, description="rows that one statement deletes at most; ten are one transaction")
    ] = 5000
    partitions_ahead: Annotated[
        int,
        Meta(ge=1, le=100, description="days whose partitions are made ahead, where the table has one a day"),
    ] = 7
