"""Settings of sinks, the tables `[sinks.NAME]` of cdc.toml; see `cdc.config.settings`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from cdc.config.secret import Secret
from cdc.config.section import Section


class Warehouse(Section, frozen=True, tag_field="kind", tag="warehouse"):
    """A sink of kind `warehouse`: lake tables that Spark maintains."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            description="Folder of the lake, relative to the working directory, or its address in an object "
            "store, for example s3://bucket/lake.",
        ),
    ]
    tables: Annotated[
        tuple[str, ...], Meta(description="Captured tables to keep: shell patterns as in source.tables.")
    ] = ("*.*",)
    history: Annotated[
        tuple[str, ...], Meta(description="Patterns of tables whose every version is kept too (SCD2).")
    ] = ()
    event_time: Annotated[
        dict[str, str],
        Meta(
            description="Table of `history` -> column with the time from which a version is valid, for `read_history`."
        ),
    ] = {}
    views: Annotated[str, Meta(description="Folder of *.sql files, one view per file. Empty: no views.")] = ""
    types: Annotated[
        dict[str, dict[str, str]],
        Meta(
            description='Table -> column -> type in Spark\'s notation, for example {"public.t" = {total = "string"}}.'
        ),
    ] = {}
    interval_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds from the beginning of one cut to that of the next. Longer intervals need less CPU.",
        ),
    ] = 1.0
    events_max: Annotated[
        int,
        Meta(
            ge=1, le=100_000_000, description="Largest number of changes in one cut. The rest goes into the next cut."
        ),
    ] = 500_000
    bytes_max: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 40,
            description="Largest number of bytes of keys and values that are decoded at once. A cut takes no "
            "more; a larger transaction is applied in pieces. 0: an eighth of `memory`.",
        ),
    ] = 0
    master: Annotated[str, Meta(description="Spark master. That of spark-submit takes precedence.")] = "local[*]"
    memory: Annotated[
        str, Meta(pattern="^[1-9][0-9]*[mg]$", description="Heap of the Spark driver, for example 512m or 4g.")
    ] = "2g"
    spark: Annotated[
        dict[str, Secret],
        Meta(description="Any Spark setting. Append `_file` to the name of a setting to read its value from a file."),
    ] = {}
    storage: Annotated[
        dict[str, Secret],
        Meta(
            description="Options of the object store, as the deltalake package names them. Spark uses those of S3 "
            "too. Append `_file` to the name of an option to read its value from a file, or set "
            "TAILRACE_SINK_<SINK>_STORAGE_<OPTION>."
        ),
    ] = {}
    keep_cuts: Annotated[int, Meta(ge=2, le=1_000_000, description="Number of newest cuts that remain readable.")] = (
        1000
    )
    keep_hours: Annotated[
        float,
        Meta(
            ge=0, le=8784, description="Hours for which one cut per minute remains readable beyond keep_cuts. 0: none."
        ),
    ] = 0.0
    listen: Annotated[
        str, Meta(description="host:port of the sink's own /livez, /readyz, /metrics and /status. Empty: no HTTP.")
    ] = ""


class Applied(Section, frozen=True, kw_only=True):
    """Common settings of sinks that apply one key at a time (`sinks/runner/runner.py`)."""

    tables: Annotated[
        tuple[str, ...], Meta(description="Captured tables to keep: shell patterns as in source.tables.")
    ] = ("*.*",)
    options: Annotated[
        dict[str, Secret],
        Meta(
            description="Options of the store's client. Append `_file` to the name of an option to read its value "
            "from a file, or set TAILRACE_SINK_<SINK>_OPTION_<OPTION>."
        ),
    ] = {}
    parallel: Annotated[
        int, Meta(ge=1, le=64, description="Number of concurrent requests. A key is in at most one of them.")
    ] = 4
    request_records: Annotated[int, Meta(ge=1, le=100_000, description="Largest number of keys in one request.")] = (
        2_000
    )
    request_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            le=1 << 30,
            description="Largest number of bytes of values in one request. A larger value is sent alone.",
        ),
    ] = 5 << 20
    on_refused: Annotated[
        Literal["park", "stop"],
        Meta(
            description="A record that the store will never accept: `park` stores it as a dead letter, `stop` "
            "stops the sink."
        ),
    ] = "park"
    parked_keys_max: Annotated[
        int,
        Meta(ge=0, le=10_000_000, description="Largest number of parked keys in a partition before the sink stops."),
    ] = 10_000
    listen: Annotated[
        str, Meta(description="host:port of the sink's own /livez, /readyz, /metrics and /status. Empty: no HTTP.")
    ] = ""


class Search(Applied, frozen=True, kw_only=True, tag_field="kind", tag="search"):
    """A sink of kind `search`: an OpenSearch index for each table."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^https?://[^/@\s]+/?$",
            description="Address without a password, for example http://localhost:9200. If absent, "
            "TAILRACE_SEARCH_URL is used.",
        ),
    ]
    json: Annotated[
        Literal["string", "object", "flat_object"],
        Meta(
            description="How to index json and jsonb. `string`: text that matches as a whole. `object`: an "
            "object, each name of which becomes a field. `flat_object`: one field for the whole value. `fields` "
            "overrides it for a column."
        ),
    ] = "string"
    fields: Annotated[
        dict[str, dict[str, dict[str, Any]]],
        Meta(
            description="Table -> column -> field of the mapping instead of the generated one, for example "
            '{"public.t" = {name = {type = "text", analyzer = "english"}}}.'
        ),
    ] = {}
    index: Annotated[
        dict[str, Any],
        Meta(
            description="Settings of indices that Tailrace creates, for example number_of_shards, "
            "number_of_replicas or analysis."
        ),
    ] = {}
    refresh_interval_s: Annotated[
        float, Meta(ge=0.1, le=3600, description="Seconds until searches see an applied change.")
    ] = 1.0
    gc_deletes_s: Annotated[
        int,
        Meta(
            ge=60,
            le=604_800,
            description="Seconds for which an index remembers the version of a deleted document. Keep it above "
            "the longest time for which a worker may be frozen: a worker that continues later would bring the "
            "document back.",
        ),
    ] = 3600


class Cache(Applied, frozen=True, kw_only=True, tag_field="kind", tag="cache"):
    """A sink of kind `cache`: keys in Redis or Valkey."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^rediss?://[^/@\s]+(/\d+)?$",
            description="Address without a password, for example redis://localhost/0. If absent, "
            "TAILRACE_CACHE_URL is used.",
        ),
    ]
    mode: Annotated[
        Literal["value", "hash", "invalidate"],
        Meta(
            description="`value` stores a row as JSON text, `hash` as a hash of its columns. `invalidate` only "
            "deletes the key when the row changes."
        ),
    ] = "value"
    keys: Annotated[
        dict[str, str],
        Meta(description='Pattern of schema.table -> key template, for example {"public.t" = "t:{id}"}.'),
    ] = {}
    ttl_s: Annotated[
        float, Meta(ge=0, le=1e9, description="Seconds for which a row stays after its last change. 0: forever.")
    ] = 0
    tombstone_s: Annotated[
        float,
        Meta(
            ge=60,
            le=1e9,
            description="Seconds for which the version of a deleted row stays. Keep it longer than any replay.",
        ),
    ] = 691_200
    evictable: Annotated[bool, Meta(description="Accept missing rows: the store may evict keys when it is full.")] = (
        False
    )


class Plugin(Applied, frozen=True, kw_only=True, tag_field="kind", tag="plugin"):
    """A sink whose `kind` another installed package provides (docs/contributing/add-a-sink.md)."""

    plugin: str
    """The `kind` in the file; `cdc.config.sink_plugins` sets it."""


Sink: TypeAlias = Warehouse | Search | Cache | Plugin
