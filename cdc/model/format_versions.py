"""Declares every durable format: where it is stored, its version, and what a reader does with a newer one. Pure data.

docs/reference/durable-formats.md is generated from this table. `constant` names the code that owns the number;
tests/unit/cdc/test_format_versions.py compares both. A format gets a new version when an earlier reader would misread
it; a field that such a reader may ignore needs none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FIRST: Final = "0.1.0"


class Format(NamedTuple):
    """A durable format.

    Attributes:
        name: what it is.
        place: topic, key, file or table; ``shop`` stands for the pipeline, ``S`` for a sink.
        version: of the current writer.
        constant: ``module:NAME`` of that version in the code; empty if the form has no number of its own.
        since: the release that wrote this version first.
        field: where the number is.
        writer, readers: programs.
        newer: what a reader does with a newer version.
        golden: names of its golden records below tests/golden/<release>; empty for a form without one.
    """

    name: str
    place: str
    version: int
    constant: str
    since: str
    field: str
    writer: str
    readers: str
    newer: str
    golden: tuple[str, ...] = ()


_ALWAYS: Final = "`version`"
_ABSENT: Final = "`version`, left out for 1"
_PROGRESS: Final = "stops: ProgressDamaged, exit 3"
_SINK: Final = "stops: SinkUnfit, exit 3"
_LAKE: Final = "stops: LakeDamaged, exit 3; never continues from an older cut"
_RECORD: Final = "cdc.model.progress_record"

FORMATS: Final = (
    Format("position", "`shop.__progress`, key `shop`", 1, f"{_RECORD}:PROGRESS_VERSION", FIRST, _ALWAYS,
           "capture", "capture, commands, sinks", _PROGRESS, ("progress",)),
    Format("identity of source and topics", "`shop.__progress`, key `shop/identity`", 1, f"{_RECORD}:PROGRESS_VERSION",
           FIRST, _ALWAYS, "capture", "capture, commands", _PROGRESS, ("identity",)),
    Format("snapshot of a table", "`shop.__progress`, key `shop/snapshot/<table>`", 1,
           "cdc.model.snapshot_record:SNAPSHOT_VERSION", FIRST, _ALWAYS, "capture", "capture, commands", _PROGRESS,
           ("snapshot",)),
    Format("handled signals", "`shop.__progress`, key `shop/signals`", 1, "cdc.model.signal_record:SIGNALS_VERSION",
           FIRST, _ALWAYS, "capture", "capture, commands", _PROGRESS, ("signals",)),
    Format("catalog facts", "`shop.__progress`, keys `shop/catalog`, `shop/catalog/<table>`", 1,
           "cdc.model.table_facts:CATALOG_VERSION", FIRST, _ALWAYS, "capture", "capture, `cdc ddl`", _PROGRESS,
           ("catalog", "catalog-table")),
    Format("accepted findings", "`shop.__progress`, key `shop/accepted/<table>`", 1,
           "cdc.model.table_facts:CATALOG_VERSION", FIRST, _ALWAYS, "`cdc ddl accept`", "capture, `cdc ddl`",
           _PROGRESS, ("accepted",)),
    Format("outbox state", "`shop.__progress`, key `shop/outbox`", 1, "cdc.model.outbox_record:OUTBOX_VERSION", FIRST,
           _ALWAYS, "capture", "capture", _PROGRESS, ("outbox",)),
    Format("audit position", "`shop.__progress`, key `shop/audit`", 1, "cdc.model.audit_record:AUDIT_VERSION", FIRST,
           _ALWAYS, "the audit", "the audit", _PROGRESS, ("audit",)),
    Format("sentinel", "`shop.__progress`, key `shop/sentinel`", 1, "", FIRST, "none: the bytes are a nonce",
           "capture", "capture, which compares the bytes", "any bytes are valid"),
    Format("last stop", "`shop.__progress`, key `shop/stop`", 1, "cdc.model.stop_record:STOP_VERSION", "0.2.0",
           _ALWAYS, "capture", "`cdc why`", "treated as absent: `cdc why` uses other evidence", ("stop",)),
    Format("cut index", "`shop.__cuts`", 1, f"{_RECORD}:CUT_VERSION", FIRST, _ALWAYS, "capture",
           "capture, sinks, the audit, commands", _PROGRESS, ("cut",)),
    Format("cut index of views", "`shop.__cuts.S`", 1, f"{_RECORD}:CUT_VERSION", FIRST, _ALWAYS, "the lake",
           "the lake, waiting clients", _PROGRESS, ("view-cut",)),
    Format("row schema", "`shop.__schema`", 1, f"{_RECORD}:SCHEMA_VERSION", FIRST, _ABSENT, "capture, the lake",
           "capture, sinks, commands", _PROGRESS, ("schema",)),
    Format("signal", "`shop.__signals`", 1, "", FIRST, "none: unknown fields are refused", "`cdc snapshot`, operators",
           "capture", "answers that the signal is invalid; nothing is done", ("signal",)),
    Format("action of an operator", "`shop.__actions`", 1, "cdc.control.action_record:ACTION_VERSION", "0.2.0",
           _ABSENT, "commands, HTTP", "`cdc actions`, the page", "counted as not readable", ("action",)),
    Format("event", "data topics", 1, "", FIRST, "`source.version`; schema records name the format", "capture",
           "sinks, readers", "sinks of the previous release are stopped first, see [upgrade](../howto/upgrade.md)"),
    Format("offset metadata", "consumer group `shop.sink.S`", 1, "sinks.state.offset_metadata:MARK_VERSION", FIRST,
           _ABSENT, "search and cache sinks", "the same", _SINK, ("mark",)),
    Format("pause, claim, partitions read", "`shop.__blocked.S`, keys with `control`", 1,
           "sinks.state.state_topic:CONTROL_VERSION", FIRST, _ABSENT, "sinks, commands", "the same", _SINK,
           ("pause", "paused", "claim", "read")),
    Format("report of a worker", '`shop.__blocked.S`, `{"control":"heartbeat"}`', 1,
           "cdc.model.sink_report:REPORT_VERSION", FIRST, _ABSENT, "sinks", "`cdc sink`, capture, the page",
           "treated as absent: the state is UNKNOWN", ("report",)),
    Format("blocked key, retry request", "`shop.__blocked.S`, keys `blocked` and `retry`", 1,
           "sinks.deadletters.blocked_keys:STATE_VERSION", FIRST, _ALWAYS, "search and cache sinks, `cdc dlq`",
           "the same", "block: stops, SinkUnfit, exit 3; request: not carried out, the key stays blocked",
           ("block", "retry")),
    Format("dead letter", "`shop.__dlq.S`", 1, "", FIRST, "the names of its first eight headers",
           "search and cache sinks", "the same, `cdc dlq`", _SINK, ("dead-letter",)),
    Format("index of a search sink", "`_meta` of the index", 1, "sinks.search.indices:META_VERSION", FIRST, _ALWAYS,
           "search sinks", "the same", _SINK),
    Format("positions of a search sink", "index `shop.S-positions`", 1, "", FIRST,
           "none: OpenSearch refuses unknown fields", "search sinks", "the same",
           "belongs to the version of the index"),
    Format("tables of a cache", "`cdc:tables:shop:S` in the store", 1, "sinks.cache.target:FORM_VERSION", FIRST,
           _ABSENT, "cache sinks", "the same", _SINK),
    Format("positions of a cache", "`cdc:positions:shop:S` in the store", 1, "", FIRST,
           "none: one number for each partition", "cache sinks", "the same", "belongs to the version of the tables"),
    Format("published cut of a lake", "`_cuts/<cut>.json`, `_cuts/current.json`", 1,
           "sinks.warehouse.lake.manifest:MANIFEST_VERSION", FIRST, _ALWAYS, "the lake", "the lake, readers", _LAKE,
           ("manifest",)),
    Format("open cut of a lake", "`_cuts/pending.json`", 1, "sinks.warehouse.lake.manifest:MANIFEST_VERSION", FIRST,
           _ALWAYS, "the lake", "the lake", _LAKE, ("pending",)),
    Format("request to swap a view", "`_cuts/wish-<view>.json`", 1, "sinks.warehouse.views.generations:SWAP_VERSION",
           FIRST, _ABSENT, "`cdc views swap`", "the lake", _LAKE, ("swap",)),
    Format("text of a view", "`_cuts/<sha>.sql`", 1, "", FIRST, "none: the name is the hash of the text", "the lake",
           "the lake", "any text is valid"),
    Format("tables of the outbox", "schema `outbox`, table `tailrace_migration`", 5, "", FIRST,
           "the id of the newest migration", "`python -m outbox.migrate`", "applications, capture",
           "`outbox.migrate` refuses a revision that it does not know; `pre` migrations fit the previous release"),
    Format("exported state", "file of `cdc state export`", 1, "cdc.model.state_file:STATE_FILE_VERSION", "0.2.0",
           _ALWAYS, "`cdc state export`", "`cdc state import`", "refused: UsageError, exit 2"),
    Format("resume token", "wherever an application stores it", 1, "cdc.inspect.resume_token:TOKEN_VERSION", "0.2.0",
           _ALWAYS, "`cdc tail --ordered`, `cdc.client.ordered`", "the same", "refused: UsageError, exit 2"),
)  # fmt: skip
