"""Declares every setting of cdc.toml with default, range and description; docs/reference/config.md shows them.

The values are frozen, and `cdc.config.load` builds them once. Pass the section that a part needs, not the whole Config.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cdc.config.outbox_settings import Outbox
from cdc.config.secret import Secret
from cdc.config.section import Section
from cdc.config.sink_settings import Applied, Cache, Plugin, Search, Sink, Warehouse
from cdc.config.snapshot_settings import Signals, Snapshot
from cdc.config.source_settings import Source

__all__ = [
    "Applied",
    "Audit",
    "Cache",
    "Capture",
    "Config",
    "Ddl",
    "Encode",
    "Http",
    "Kafka",
    "Outbox",
    "Plugin",
    "Port",
    "Registry",
    "Search",
    "Section",
    "Signals",
    "Sink",
    "Snapshot",
    "Source",
    "Toast",
    "Warehouse",
]

Port = Annotated[int, Meta(ge=0, le=65535)]


class Kafka(Section, frozen=True):
    """The Kafka cluster that holds the topics."""

    bootstrap: Annotated[str, Meta(description="Brokers as host:port, separated by commas.")]
    partitions: Annotated[
        int,
        Meta(
            ge=1,
            le=10000,
            description="Number of partitions of topics that Tailrace creates. Choose it before the first start: "
            "an existing topic keeps its number, because a key must stay in its partition.",
        ),
    ] = 4
    replication_factor: Annotated[
        int, Meta(ge=1, le=32767, description="Replication factor of topics that Tailrace creates.")
    ] = 3
    allow_unreplicated: Annotated[
        bool,
        Meta(
            description="Accept a replication factor below 3, for a single broker in development. `cdc init "
            "--local` sets it."
        ),
    ] = False
    create_topics: Annotated[
        bool, Meta(description="Create missing topics. If false, every topic must exist before the start.")
    ] = True
    compaction_lag_max_s: Annotated[
        int,
        Meta(
            ge=0,
            le=315_360_000,
            description="Seconds within which deleted and replaced rows leave a compacted topic of rows that "
            "Tailrace creates (`max.compaction.lag.ms`). Lower it to meet a deadline for deleting data; at least "
            "86400. 0: no limit.",
        ),
    ] = 604_800
    options: Annotated[
        dict[str, Secret],
        Meta(
            description="Any librdkafka option. Append `_file` to the name of an option to read its value from a "
            "file, or set TAILRACE_KAFKA_OPTION_<OPTION>."
        ),
    ] = {}


class Capture(Section, frozen=True):
    """How changes are grouped into Kafka transactions. The defaults suit most systems."""

    batch_rows_max: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="Number of rows after which a Kafka transaction ends at the next commit."),
    ] = 20_000
    batch_bytes_max: Annotated[
        int,
        Meta(
            ge=65_536,
            le=1 << 30,
            description="Number of bytes after which a Kafka transaction ends at the next commit.",
        ),
    ] = 12 << 20
    batch_age_max_s: Annotated[
        float,
        Meta(
            gt=0,
            le=30,
            description="Seconds after which a Kafka transaction ends at the next commit. It limits the latency "
            "under load.",
        ),
    ] = 1.0
    oversize: Annotated[
        Literal["stop", "omit"],
        Meta(
            description="A row that is larger than its topic accepts: `stop` stops capture, `omit` leaves out its "
            "largest columns and lists them in the event."
        ),
    ] = "stop"
    row_bytes_max: Annotated[
        int,
        Meta(
            ge=1024,
            le=1 << 30,
            description="Largest record in bytes, also `max.message.bytes` of topics that Tailrace creates. Raise "
            "it if rows are larger.",
        ),
    ] = 16 << 20
    transactions: Annotated[
        bool,
        Meta(
            description="Publish begin and end of each source transaction to `<name>.transaction`, and add the "
            "transaction and the event's order in it to each event. Debezium's provide.transaction.metadata."
        ),
    ] = False
    messages: Annotated[bool, Meta(description="Publish messages of pg_logical_emit_message to `<name>.message`.")] = (
        False
    )
    heartbeat_interval_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds between records in `<name>.heartbeat`, which show the position of capture even "
            "if nothing changes. 0: no heartbeat.",
        ),
    ] = 0.0
    heartbeat_query: Annotated[
        str,
        Meta(
            description="SQL statement to run on the source at each heartbeat, with qualified names, for example "
            "`select pg_logical_emit_message(true, 'heartbeat', '')`. `cdc_heartbeat_seconds` is then the "
            "end-to-end lag."
        ),
    ] = ""
    catalog_check_s: Annotated[
        float,
        Meta(
            gt=0,
            le=10,
            description="Seconds between checks of slot and publication. Capture acknowledges only WAL that a "
            "successful check has covered.",
        ),
    ] = 2.0


class Encode(Section, frozen=True):
    """How records and their values are written. Debezium's names for value options are accepted too, see types.md."""

    format: Annotated[
        Literal["json", "flat", "avro"],
        Meta(
            description="Format of records. `json`: Debezium's envelope. `flat`: the row alone, a delete is a "
            "tombstone. `avro`: Debezium's envelope in Avro, needs `[registry]`. A topic keeps its format; another "
            "format needs another `name`."
        ),
    ] = "json"
    numeric: Annotated[Literal["string", "number"], Meta(description="How to write numeric and decimal.")] = "string"
    int64: Annotated[
        Literal["number", "string"],
        Meta(description="How to write bigint. Use `string` for JavaScript, which is exact only up to 2^53."),
    ] = "number"
    time: Annotated[
        Literal["iso", "micros"],
        Meta(
            description="How to write date, time and timestamp. `iso`: ISO 8601. `micros`: days since 1970-01-01, "
            "microseconds since midnight, microseconds since 1970-01-01. Types with a time zone are always ISO "
            "8601."
        ),
    ] = "iso"
    bytea: Annotated[
        Literal["hex", "base64", "base64url"],
        Meta(description="How to write bytea. `hex` is PostgreSQL's output, with `\\x`."),
    ] = "hex"
    interval: Annotated[
        Literal["iso", "parts"],
        Meta(
            description="How to write interval. `iso`: ISO 8601. `parts`: an object of `months`, `days` and "
            "`micros`, which PostgreSQL keeps apart."
        ),
    ] = "iso"
    json: Annotated[
        Literal["string", "value"],
        Meta(
            description="How to write json and jsonb. `string`: a string that holds the JSON text. `value`: the "
            "JSON value itself."
        ),
    ] = "string"
    hstore: Annotated[
        Literal["text", "json"],
        Meta(description="How to write hstore. `text`: PostgreSQL's output. `json`: an object."),
    ] = "text"
    compatibility: Annotated[
        Literal["none", "debezium"],
        Meta(
            description="`debezium` writes every value as Debezium's PostgreSQL connector does in JSON, and "
            "accepts the connector's options under their own names. Only with the formats json and flat, without "
            "sinks and `cdc verify`."
        ),
    ] = "none"
    debezium: Annotated[
        dict[str, str],
        Meta(
            description="Debezium's options for values, with `compatibility`. Prefer the options' own names in "
            '`[encode]`, for example `"decimal.handling.mode" = "string"`.'
        ),
    ] = {}


class Registry(Section, frozen=True):
    """The schema registry for `encode.format = "avro"`: any registry with Confluent's API."""

    url: Annotated[
        str,
        Meta(
            description="Addresses of the registry, separated by commas. Apicurio's address ends in /apis/ccompat/v7."
        ),
    ] = ""
    options: Annotated[
        dict[str, Secret],
        Meta(
            description="Options of confluent_kafka's registry client, for example `basic.auth.user.info` or "
            "`ssl.ca.location`. Append `_file` to the name of an option to read its value from a file, or set "
            "TAILRACE_REGISTRY_OPTION_<OPTION>."
        ),
    ] = {}


class Toast(Section, frozen=True):
    """Large values (TOAST) that an update did not change: PostgreSQL does not send them."""

    mode: Annotated[
        Literal["reselect", "omit"],
        Meta(
            description="`reselect` reads the value from the table and lists the column in `source.reselected`. "
            "`omit` leaves the column out of `after` and lists it in `source.unchanged`. Rows of tables with "
            "REPLICA IDENTITY FULL are always complete."
        ),
    ] = "reselect"
    tables: Annotated[
        dict[str, Literal["reselect", "omit"]],
        Meta(
            description='Pattern of schema.table -> mode, for example {"public.docs_*" = "omit"}. The last match wins.'
        ),
    ] = {}


class Ddl(Section, frozen=True):
    """Reaction to DDL that changes existing rows: PostgreSQL sends no events for them."""

    policy: Annotated[
        Literal["resnapshot", "warn", "stop"],
        Meta(
            description="Reaction to a finding. `resnapshot` reads the table again; if that cannot repair it, or "
            'with snapshot.mode = "never", it acts like `warn`. `warn` reports the finding in log, metrics and '
            "`cdc status`. `stop` stops capture. A warning or a stop lasts until `cdc ddl accept`."
        ),
    ] = "resnapshot"
    tables: Annotated[
        dict[str, Literal["resnapshot", "warn", "stop"]],
        Meta(
            description='Pattern of schema.table -> policy, for example {"public.orders_*" = "stop"}. The last '
            "match wins."
        ),
    ] = {}


class Audit(Section, frozen=True):
    """Reading the topics back during capture, to recompute what the cut index records."""

    enabled: Annotated[
        bool, Meta(description="Run the audit in the daemon all the time. `cdc audit` runs it on demand.")
    ] = False
    on_finding: Annotated[
        Literal["stop", "warn"],
        Meta(
            description="`stop` stops capture in state DIVERGED. `warn` reports the finding in log, metrics and "
            "/status, and capture continues."
        ),
    ] = "stop"
    interval_s: Annotated[
        float, Meta(gt=0, le=3600, description="Seconds between reads of the cut index when everything is compared.")
    ] = 5.0
    bytes_per_s_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 40,
            description="Limit on the bytes of records that are read back per second. Lower it to spare the "
            "brokers. 0: no limit.",
        ),
    ] = 16 << 20


class Http(Section, frozen=True):
    """The HTTP endpoints of the daemon."""

    listen: Annotated[str, Meta(description="host:port of /livez, /readyz, /metrics and /status. Empty: no HTTP.")] = (
        "127.0.0.1:8087"
    )
    ready_needs_sinks: Annotated[
        bool, Meta(description="With `cdc run --with-sinks`, answer 200 on /readyz only if every sink is ready too.")
    ] = False
    token: Annotated[
        Secret | None,
        Meta(
            description="Bearer token for protected data, also on the endpoints of sinks. Without it, answers of "
            "/sinks/<sink>/wait leave out the keys of blocked rows."
        ),
    ] = None
    token_file: Annotated[str | None, Meta(description="File whose first line is the token.")] = None


class Config(Section, frozen=True):
    """The whole cdc.toml."""

    name: Annotated[
        str,
        Meta(
            pattern="^[a-z][a-z0-9_]{0,39}$",
            description="Prefix of topics, slot, publication and transactional id. Never change it.",
        ),
    ]
    source: Source
    kafka: Kafka
    capture: Capture = Capture()
    encode: Encode = Encode()
    registry: Registry = Registry()
    toast: Toast = Toast()
    snapshot: Snapshot = Snapshot()
    signals: Signals = Signals()
    ddl: Ddl = Ddl()
    audit: Audit = Audit()
    http: Http = Http()
    outbox: Outbox | None = None
    sinks: Annotated[dict[str, Sink], Meta(description="One table per sink, for example [sinks.lake].")] = {}

    @property
    def slot(self) -> str:
        """Name of the replication slot."""
        return self.source.slot or f"cdc_{self.name}"

    @property
    def publication(self) -> str:
        """Name of the publication."""
        return self.source.publication or f"cdc_{self.name}"

    @property
    def transactional_id(self) -> str:
        """Kafka's transactional id of the capture producer."""
        return f"{self.name}.capture"
