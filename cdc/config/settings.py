"""Declares every setting of cdc.toml with default, range and description; docs/reference/config.md shows them.

The values are frozen, and `cdc.config.load` builds them once. Pass the section that a part needs, not the whole Config.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from cdc.config.notify_settings import Notify
from cdc.config.objective_settings import Objective
from cdc.config.otel_settings import Otel
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
    "Notify",
    "Objective",
    "Otel",
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

    bootstrap: str
    """Brokers as host:port, separated by commas."""
    partitions: Annotated[int, Meta(ge=1, le=10000)] = 4
    """Number of partitions of topics that Tailrace creates. Choose it before the first start: an existing topic keeps
    its number, because a key must stay in its partition.
    """
    replication_factor: Annotated[int, Meta(ge=1, le=32767)] = 3
    """Replication factor of topics that Tailrace creates."""
    allow_unreplicated: bool = False
    """Accept a replication factor below 3, for a single broker in development. `cdc init --local` sets it."""
    create_topics: bool = True
    """Create missing topics. If false, every topic must exist before the start."""
    compaction_lag_max_s: Annotated[int, Meta(ge=0, le=315_360_000)] = 604_800
    """Seconds within which deleted and replaced rows leave a compacted topic of rows that Tailrace creates
    (`max.compaction.lag.ms`). Lower it to meet a deadline for deleting data; at least 86400. 0: no limit.
    """
    oauth_command: tuple[str, ...] = ()
    """Program and arguments that print an OAuth token for SASL/OAUTHBEARER, as JSON or as a JSON Web Token. Run without
    a shell, and again before the token expires. It has 15 seconds. Sets `sasl.mechanism`, and `security.protocol` to
    SASL_SSL unless `options` has it.
    """
    options: dict[str, Secret] = {}
    """Any librdkafka option. Append `_file` to the name of an option to read its value from a file, `_command` to run
    a program that prints it, or set TAILRACE_KAFKA_OPTION_<OPTION>.
    """


class Capture(Section, frozen=True):
    """How changes are grouped into Kafka transactions. The defaults suit most systems."""

    batch_rows_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Number of rows after which a Kafka transaction ends at the next commit."""
    batch_bytes_max: Annotated[int, Meta(ge=65_536, le=1 << 30)] = 8 << 20
    """Number of bytes after which a Kafka transaction ends at the next commit."""
    batch_age_max_s: Annotated[float, Meta(gt=0, le=30)] = 1.0
    """Seconds after which a Kafka transaction ends at the next commit. It limits the latency under load."""
    oversize: Literal["stop", "omit"] = "stop"
    """A row that is larger than its topic accepts: `stop` stops capture, `omit` leaves out its largest columns and
    lists them in the event.
    """
    row_bytes_max: Annotated[int, Meta(ge=1024, le=1 << 30)] = 16 << 20
    """Largest record in bytes, also `max.message.bytes` of topics that Tailrace creates. Raise it if rows are larger.
    """
    transactions: bool = False
    """Publish begin and end of each source transaction to `<name>.transaction`, and add the transaction and the event's
    order in it to each event. Debezium's provide.transaction.metadata.
    """
    messages: bool = False
    """Publish messages of pg_logical_emit_message to `<name>.message`."""
    heartbeat_interval_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Seconds between records in `<name>.heartbeat`, which show the position of capture even if nothing changes. 0: no
    heartbeat.
    """
    heartbeat_query: str = ""
    """SQL statement to run on the source at each heartbeat, with qualified names, for example `select
    pg_logical_emit_message(true, 'heartbeat', '')`. `cdc_heartbeat_seconds` is then the end-to-end lag.
    """
    catalog_check_s: Annotated[float, Meta(gt=0, le=10)] = 2.0
    """Seconds between checks of slot and publication. Capture acknowledges only WAL that a successful check has
    covered.
    """
    objective: Objective | None = None
    """Freshness objective of the log, the table `[capture.objective]`."""


class Encode(Section, frozen=True):
    """How records and their values are written. Debezium's names for value options are accepted too, see types.md."""

    format: Literal["json", "flat", "avro"] = "json"
    """Format of records. `json`: Debezium's envelope. `flat`: the row alone, a delete is a tombstone. `avro`:
    Debezium's envelope in Avro, needs `[registry]`. A topic keeps its format; another format needs another `name`.
    """
    numeric: Literal["string", "number"] = "string"
    """How to write numeric and decimal."""
    int64: Literal["number", "string"] = "number"
    """How to write bigint. Use `string` for JavaScript, which is exact only up to 2^53."""
    time: Literal["iso", "micros"] = "iso"
    """How to write date, time and timestamp. `iso`: ISO 8601. `micros`: days since 1970-01-01, microseconds since
    midnight, microseconds since 1970-01-01. Types with a time zone are always ISO 8601.
    """
    bytea: Literal["hex", "base64", "base64url"] = "hex"
    """How to write bytea. `hex` is PostgreSQL's output, with `\\x`."""
    interval: Literal["iso", "parts"] = "iso"
    """How to write interval. `iso`: ISO 8601. `parts`: an object of `months`, `days` and `micros`, which PostgreSQL
    keeps apart.
    """
    json: Literal["string", "value"] = "string"
    """How to write json and jsonb. `string`: a string that holds the JSON text. `value`: the JSON value itself."""
    hstore: Literal["text", "json"] = "text"
    """How to write hstore. `text`: PostgreSQL's output. `json`: an object."""
    compatibility: Literal["none", "debezium"] = "none"
    """`debezium` writes every value as Debezium's PostgreSQL connector does in JSON, and accepts the connector's
    options under their own names. Only with the formats json and flat, without sinks and `cdc verify`.
    """
    debezium: dict[str, str] = {}
    """Debezium's options for values, with `compatibility`. Prefer the options' own names in `[encode]`, for example
    `"decimal.handling.mode" = "string"`.
    """


class Registry(Section, frozen=True):
    """The schema registry for `encode.format = "avro"`: any registry with Confluent's API."""

    url: str = ""
    """Addresses of the registry, separated by commas. Apicurio's address ends in /apis/ccompat/v7."""
    options: dict[str, Secret] = {}
    """Options of confluent_kafka's registry client, for example `basic.auth.user.info` or `ssl.ca.location`. Append
    `_file` to the name of an option to read its value from a file, `_command` to run a program that prints it, or set
    TAILRACE_REGISTRY_OPTION_<OPTION>.
    """


class Toast(Section, frozen=True):
    """Large values (TOAST) that an update did not change: PostgreSQL does not send them."""

    mode: Literal["reselect", "omit"] = "reselect"
    """`reselect` reads the value from the table and lists the column in `source.reselected`. `omit` leaves the column
    out of `after` and lists it in `source.unchanged`. Rows of tables with REPLICA IDENTITY FULL are always complete.
    """
    tables: dict[str, Literal["reselect", "omit"]] = {}
    """Pattern of schema.table -> mode, for example {"public.docs_*" = "omit"}. The last match wins."""


class Ddl(Section, frozen=True):
    """Reaction to DDL that changes existing rows: PostgreSQL sends no events for them."""

    policy: Literal["resnapshot", "warn", "stop"] = "resnapshot"
    """Reaction to a finding. `resnapshot` reads the table again; if that cannot repair it, or with snapshot.mode =
    "never", it acts like `warn`. `warn` reports the finding in log, metrics and `cdc status`. `stop` stops capture. A
    warning or a stop lasts until `cdc ddl accept`.
    """
    tables: dict[str, Literal["resnapshot", "warn", "stop"]] = {}
    """Pattern of schema.table -> policy, for example {"public.orders_*" = "stop"}. The last match wins."""


class Audit(Section, frozen=True):
    """Reading the topics back during capture, to recompute what the cut index records."""

    enabled: bool = False
    """Run the audit in the daemon all the time. `cdc audit` runs it on demand."""
    on_finding: Literal["stop", "warn"] = "stop"
    """`stop` stops capture in state DIVERGED. `warn` reports the finding in log, metrics and /status, and capture
    continues.
    """
    interval_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """Seconds between reads of the cut index when everything is compared."""
    bytes_per_s_max: Annotated[int, Meta(ge=0, le=1 << 40)] = 16 << 20
    """Limit on the bytes of records that are read back per second. Lower it to spare the brokers. 0: no limit."""


class Http(Section, frozen=True):
    """The HTTP endpoints of the daemon."""

    listen: str = "127.0.0.1:8087"
    """host:port of /livez, /readyz, /metrics and /status. Empty: no HTTP."""
    ready_needs_sinks: bool = False
    """With `cdc run --with-sinks`, answer 200 on /readyz only if every sink is ready too."""
    token: Secret | None = None
    """Bearer token for /actions, and for protected data, also on the endpoints of sinks. Without it, /actions answers
    403, and answers of /sinks/<sink>/wait leave out the keys of blocked rows.
    """
    token_file: str | None = None
    """File whose first line is the token."""
    hosts: tuple[str, ...] = ()
    """Host names by which clients reach the endpoints, besides IP addresses, localhost and the name of the machine. A
    request for another name gets 421. If empty, only a server that listens on loopback refuses other names.
    """
    tls_certificate: str = ""
    """PEM file with the certificate and its chain. Then all endpoints, also those of sinks, use HTTPS. It is loaded
    again when it changes.
    """
    tls_key: str = ""
    """PEM file with the private key, without a password. Empty: it is in the file of the certificate."""


class Config(Section, frozen=True):
    """The whole cdc.toml."""

    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,39}$")]
    """Prefix of topics, slot, publication and transactional id. Never change it."""
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
    otel: Otel = Otel()
    outbox: Outbox | None = None
    notify: dict[str, Notify] = {}
    """One table per receiver of messages, for example [notify.ops]."""
    sinks: dict[str, Sink] = {}
    """One table per sink, for example [sinks.lake]."""

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
