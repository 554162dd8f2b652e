"""Every setting of cdc.toml: default, unit, range, reason. docs/reference/config.md is generated from here.

Frozen; built once by `cdc.config.load`; hand on the section a part needs, not the whole.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from cdc.config.outbox_settings import Outbox
from cdc.config.secret import Secret
from cdc.config.section import Section
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
    """The Kafka cluster that holds the log."""

    bootstrap: Annotated[str, Meta(description="host:port, several separated by commas")]
    partitions: Annotated[
        int, Meta(ge=1, le=10000, description="of topics we create; a key never moves afterwards")
    ] = 4
    replication_factor: Annotated[int, Meta(ge=1, le=32767, description="of topics we create")] = 3
    allow_unreplicated: Annotated[
        bool, Meta(description="accept a replication factor below 3; `cdc init --local` sets it")
    ] = False
    create_topics: Annotated[bool, Meta(description="false: every topic must exist already")] = True
    compaction_lag_max_s: Annotated[
        int,
        Meta(
            ge=0,
            le=315_360_000,
            description="`max.compaction.lag.ms` of compacted topics with rows that we create, in seconds: within it "
            "deleted and replaced rows leave the topic; 0: no bound, else at least 86400",
        ),
    ] = 604_800
    options: Annotated[
        dict[str, Secret],
        Meta(
            description="any librdkafka option; `<option>_file` reads it from a file, "
            "TAILRACE_KAFKA_OPTION_<OPTION> from the environment"
        ),
    ] = {}


class Capture(Section, frozen=True):
    """How the stream is cut into Kafka transactions. The defaults suit nearly everybody."""

    batch_rows_max: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="rows after which a Kafka transaction ends at the next commit"),
    ] = 20_000
    batch_bytes_max: Annotated[
        int,
        Meta(ge=65_536, le=1 << 30, description="bytes after which a Kafka transaction ends at the next commit"),
    ] = 12 << 20
    batch_age_max_s: Annotated[
        float,
        Meta(gt=0, le=30, description="seconds after which a Kafka transaction ends at the next commit"),
    ] = 1.0
    oversize: Annotated[
        Literal["stop", "omit"],
        Meta(description="a row larger than the topic takes: stop, or leave its largest columns out and say so"),
    ] = "stop"
    row_bytes_max: Annotated[
        int,
        Meta(
            ge=1024,
            le=1 << 30,
            description="largest record we publish; also `max.message.bytes` of our topics",
        ),
    ] = 16 << 20
    transactions: Annotated[
        bool,
        Meta(
            description="write beginning and end of each source transaction to `<name>.transaction`, and into each "
            "event its place in it; Debezium's provide.transaction.metadata"
        ),
    ] = False
    messages: Annotated[bool, Meta(description="write messages of pg_logical_emit_message to `<name>.message`")] = False
    heartbeat_interval_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="seconds between records on `<name>.heartbeat` that say how far capture is, also when nothing "
            "changes; 0: none",
        ),
    ] = 0.0
    heartbeat_query: Annotated[
        str,
        Meta(
            description="a statement to run on the source at each heartbeat, names qualified, as `select "
            "pg_logical_emit_message(true, 'heartbeat', '')`: `cdc_heartbeat_seconds` then is the end-to-end lag"
        ),
    ] = ""
    catalog_check_s: Annotated[
        float,
        Meta(
            gt=0,
            le=10,
            description="seconds between checks of slot and publication; nothing is "
            "acknowledged that a good check has not covered",
        ),
    ] = 2.0


class Encode(Section, frozen=True):
    """How records and their values look. Debezium's names for values are taken too, see types.md."""

    format: Annotated[
        Literal["json", "flat", "avro"],
        Meta(
            description="json: Debezium's envelope; flat: the row alone, a delete is a tombstone; avro: Debezium's "
            "envelope in Avro, with `[registry]`. What a topic has it keeps: another format needs another `name`"
        ),
    ] = "json"
    numeric: Annotated[Literal["string", "number"], Meta(description="numeric and decimal")] = "string"
    int64: Annotated[Literal["number", "string"], Meta(description="bigint; JavaScript is exact to 2^53 only")] = (
        "number"
    )
    time: Annotated[
        Literal["iso", "micros"],
        Meta(
            description="date, time, timestamp: ISO 8601, or days since 1970-01-01, microseconds since midnight, "
            "microseconds since 1970-01-01; those with a time zone are ISO 8601 always"
        ),
    ] = "iso"
    bytea: Annotated[
        Literal["hex", "base64", "base64url"], Meta(description="bytea; hex as PostgreSQL prints it, with `\\x`")
    ] = "hex"
    interval: Annotated[
        Literal["iso", "parts"],
        Meta(description="ISO 8601, or an object of `months`, `days` and `micros`, which PostgreSQL keeps apart"),
    ] = "iso"
    json: Annotated[
        Literal["string", "value"],
        Meta(description="json and jsonb: a string that holds their text, or the value itself"),
    ] = "string"
    hstore: Annotated[Literal["text", "json"], Meta(description="as PostgreSQL prints it, or an object")] = "text"
    compatibility: Annotated[
        Literal["none", "debezium"],
        Meta(
            description="debezium: every value as Debezium's PostgreSQL connector writes it in JSON, with its options "
            "under their own names; formats json and flat, without sinks and `cdc verify`"
        ),
    ] = "none"
    debezium: Annotated[
        dict[str, str],
        Meta(
            description="Debezium's options for values, with `compatibility`; better written by their own names, as "
            '`"decimal.handling.mode" = "string"`'
        ),
    ] = {}


class Registry(Section, frozen=True):
    """The schema registry, for `encode.format = "avro"`: any with Confluent's API."""

    url: Annotated[
        str, Meta(description="its address, several separated by commas; Apicurio's ends in /apis/ccompat/v7")
    ] = ""
    options: Annotated[
        dict[str, Secret],
        Meta(
            description="options of confluent_kafka's client, as `basic.auth.user.info`, `ssl.ca.location`; "
            "`<option>_file` reads it from a file, TAILRACE_REGISTRY_OPTION_<OPTION> from the environment"
        ),
    ] = {}


class Toast(Section, frozen=True):
    """What an update does with large values it did not change (they are not in the stream)."""

    mode: Annotated[
        Literal["reselect", "omit"],
        Meta(
            description="reselect: read the value from the table, list the column in `source.reselected`; omit: leave "
            "it out of `after`, list it in `source.unchanged`. REPLICA IDENTITY FULL tables have it in the stream"
        ),
    ] = "reselect"
    tables: Annotated[
        dict[str, Literal["reselect", "omit"]],
        Meta(description='pattern of schema.table -> its mode, as {"public.docs_*" = "omit"}; the last match wins'),
    ] = {}


class Ddl(Section, frozen=True):
    """What DDL means for rows that are there already: PostgreSQL sends no event for them."""

    policy: Annotated[
        Literal["resnapshot", "warn", "stop"],
        Meta(
            description="of what was found: resnapshot (read the table again; where that does not mend it, or with "
            'snapshot.mode = "never", as warn), warn (log, metric, `cdc status`), or stop capture; the last two until '
            "`cdc ddl accept`"
        ),
    ] = "resnapshot"
    tables: Annotated[
        dict[str, Literal["resnapshot", "warn", "stop"]],
        Meta(description='pattern of schema.table -> its policy, as {"public.orders_*" = "stop"}; the last match wins'),
    ] = {}


class Audit(Section, frozen=True):
    """Reading the log back beside capture: what the cut index says is recomputed from the topics."""

    enabled: Annotated[bool, Meta(description="have the daemon do it all the time; `cdc audit` does it on demand")] = (
        False
    )
    on_finding: Annotated[
        Literal["stop", "warn"],
        Meta(description="stop capture (DIVERGED), or tell by log, metric and /status, and go on"),
    ] = "stop"
    interval_s: Annotated[
        float, Meta(gt=0, le=3600, description="seconds between looks at the cut index when everything is compared")
    ] = 5.0
    bytes_per_s_max: Annotated[
        int,
        Meta(ge=0, le=1 << 40, description="bytes of records that are read back in a second; 0: no limit"),
    ] = 16 << 20


class Http(Section, frozen=True):
    """The daemon's HTTP surface."""

    listen: Annotated[str, Meta(description="host:port of /livez /readyz /metrics /status; empty turns it off")] = (
        "127.0.0.1:8087"
    )
    ready_needs_sinks: Annotated[
        bool, Meta(description="with `cdc run --with-sinks`, /readyz is 200 only when every sink follows the log too")
    ] = False
    token: Annotated[
        Secret | None,
        Meta(
            description="bearer token for what is not for everyone: keys of blocked rows in answers to "
            "/sinks/<sink>/wait, which are left out without it. Also of the sinks' surfaces"
        ),
    ] = None
    token_file: Annotated[str | None, Meta(description="file whose first line is the token")] = None


class Warehouse(Section, frozen=True, tag_field="kind", tag="warehouse"):
    """A sink of kind `warehouse`: lake tables kept by Spark."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            description="folder of the lake, relative to the working directory, or its address in an object store, "
            "as s3://bucket/lake",
        ),
    ]
    tables: Annotated[
        tuple[str, ...], Meta(description="captured tables to keep: shell patterns as in source.tables")
    ] = ("*.*",)
    history: Annotated[
        tuple[str, ...], Meta(description="tables whose every version is kept as well (SCD2); patterns")
    ] = ()
    event_time: Annotated[
        dict[str, str],
        Meta(description="table of `history` -> column that says since when a version is true, for `read_history`"),
    ] = {}
    views: Annotated[str, Meta(description="folder of *.sql files, one view each; empty: none")] = ""
    types: Annotated[
        dict[str, dict[str, str]],
        Meta(description='table -> column -> type in Spark\'s words, as {"public.t" = {total = "string"}}'),
    ] = {}
    interval_s: Annotated[
        float, Meta(ge=0, le=3600, description="seconds from the beginning of one cut to that of the next")
    ] = 1.0
    events_max: Annotated[
        int,
        Meta(ge=1, le=100_000_000, description="changes in one cut; more is left for the next one"),
    ] = 500_000
    bytes_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 40,
            description="bytes of keys and values that are decoded at once: a cut takes no more, and a larger "
            "transaction is applied in pieces; 0: an eighth of `memory`",
        ),
    ] = 0
    master: Annotated[str, Meta(description="Spark master; spark-submit's own wins")] = "local[*]"
    memory: Annotated[str, Meta(pattern="^[1-9][0-9]*[mg]$", description="heap of the Spark driver")] = "2g"
    spark: Annotated[
        dict[str, Secret], Meta(description="any Spark setting; `<setting>_file` reads it from a file")
    ] = {}
    storage: Annotated[
        dict[str, Secret],
        Meta(
            description="options of the object store, as the deltalake package names them; those of S3 are Spark's "
            "too. `<option>_file` reads it from a file, TAILRACE_SINK_<SINK>_STORAGE_<OPTION> from the environment"
        ),
    ] = {}
    keep_cuts: Annotated[
        int, Meta(ge=2, le=1_000_000, description="newest cuts that can still be read, all of them")
    ] = 1000
    keep_hours: Annotated[
        float,
        Meta(ge=0, le=8784, description="hours for which one cut a minute can be read beyond keep_cuts; 0: none"),
    ] = 0.0
    listen: Annotated[
        str, Meta(description="host:port of the sink's own /livez /readyz /metrics /status; empty: none")
    ] = ""


class Applied(Section, frozen=True, kw_only=True):
    """What sinks that apply one key at a time have in common (`sinks/runner/runner.py`)."""

    tables: Annotated[
        tuple[str, ...], Meta(description="captured tables to keep: shell patterns as in source.tables")
    ] = ("*.*",)
    options: Annotated[
        dict[str, Secret],
        Meta(
            description="options of the store's client; `<option>_file` reads it from a file, "
            "TAILRACE_SINK_<SINK>_OPTION_<OPTION> from the environment"
        ),
    ] = {}
    parallel: Annotated[
        int, Meta(ge=1, le=64, description="requests under way at a time; a key is in one of them only")
    ] = 4
    request_records: Annotated[int, Meta(ge=1, le=100_000, description="keys in one request, at most")] = 2_000
    request_bytes: Annotated[
        int, Meta(ge=1024, le=1 << 30, description="bytes of values in one request; a larger value goes alone")
    ] = 5 << 20
    on_refused: Annotated[
        Literal["park", "stop"],
        Meta(description="a record the store will never take: park it as a dead letter, or stop"),
    ] = "park"
    parked_keys_max: Annotated[
        int, Meta(ge=0, le=10_000_000, description="keys that may be parked in a partition before it stops")
    ] = 10_000
    listen: Annotated[
        str, Meta(description="host:port of the sink's own /livez /readyz /metrics /status; empty: none")
    ] = ""


class Search(Applied, frozen=True, kw_only=True, tag_field="kind", tag="search"):
    """A sink of kind `search`: an OpenSearch index for each table."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^/@\s]+/?$",
            description="address without a password, as http://localhost:9200; left out: TAILRACE_SEARCH_URL",
        ),
    ]
    json: Annotated[
        Literal["string", "object", "flat_object"],
        Meta(
            description="json and jsonb: text that is found as a whole; an object each of whose names becomes a field; "
            "or one field for all of it. `fields` chooses for a column"
        ),
    ] = "string"
    fields: Annotated[
        dict[str, dict[str, dict[str, Any]]],
        Meta(
            description='table -> column -> field of the mapping in place of the generated one, as {"public.t" = '
            '{name = {type = "text", analyzer = "english"}}}'
        ),
    ] = {}
    index: Annotated[
        dict[str, Any],
        Meta(description="settings of indices we make, as number_of_shards, number_of_replicas, analysis"),
    ] = {}
    refresh_interval_s: Annotated[
        float, Meta(ge=0.1, le=3600, description="seconds until searches see what was applied")
    ] = 1.0
    gc_deletes_s: Annotated[
        int,
        Meta(
            ge=60,
            le=604_800,
            description="seconds for which an index remembers the version of a deleted document: above the longest "
            "time for which a worker may be frozen and then go on, or what it holds brings the document back",
        ),
    ] = 3600


class Cache(Applied, frozen=True, kw_only=True, tag_field="kind", tag="cache"):
    """A sink of kind `cache`: keys in Redis or Valkey."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^rediss?://[^/@\s]+(/\d+)?$",
            description="address without a password, as redis://localhost/0; left out: TAILRACE_CACHE_URL",
        ),
    ]
    mode: Annotated[
        Literal["value", "hash", "invalidate"],
        Meta(description="a row as JSON text, as a hash of its columns, or only taken away when it changes"),
    ] = "value"
    keys: Annotated[
        dict[str, str], Meta(description='pattern of schema.table -> key template, as {"public.t" = "t:{id}"}')
    ] = {}
    ttl_s: Annotated[
        float, Meta(ge=0, le=1e9, description="seconds a row stays after its last change; 0: for good")
    ] = 0
    tombstone_s: Annotated[
        float, Meta(ge=60, le=1e9, description="seconds the version of a deleted row stays: longer than any replay")
    ] = 691_200
    evictable: Annotated[bool, Meta(description="rows may be missing: the store may evict keys when it is full")] = (
        False
    )


class Plugin(Applied, frozen=True, kw_only=True, tag_field="kind", tag="plugin"):
    """A sink whose `kind` another installed package provides (docs/contributing/add-a-sink.md)."""

    plugin: str
    """The `kind` in the file; `cdc.config.sink_plugins` sets it."""


Sink: TypeAlias = Warehouse | Search | Cache | Plugin


class Config(Section, frozen=True):
    """cdc.toml as a whole."""

    name: Annotated[
        str,
        Meta(
            pattern="^[a-z][a-z0-9_]{0,39}$",
            description="prefix of topics, slot, publication and transactional id; never change it",
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
    sinks: Annotated[dict[str, Sink], Meta(description="one table each: [sinks.lake]")] = {}

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
