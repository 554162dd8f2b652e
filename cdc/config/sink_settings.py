"""Settings of sinks, the tables `[sinks.NAME]` of cdc.toml; see `cdc.config.settings`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from cdc.config.objective_settings import Objective
from cdc.config.secret import Secret
from cdc.config.section import Section


class Warehouse(Section, frozen=True, tag_field="kind", tag="warehouse"):
    """A sink of kind `warehouse`: lake tables that Spark maintains."""

    path: Annotated[str, Meta(min_length=1)]
    """Folder of the lake, relative to the working directory, or its address in an object store, for example
    s3://bucket/lake.
    """
    tables: tuple[str, ...] = ("*.*",)
    """Captured tables to keep: shell patterns as in source.tables."""
    history: tuple[str, ...] = ()
    """Patterns of tables whose every version is kept too (SCD2)."""
    event_time: dict[str, str] = {}
    """Table of `history` -> column with the time from which a version is valid, for `read_history`."""
    views: str = ""
    """Folder of *.sql files, one view per file. Empty: no views."""
    types: dict[str, dict[str, str]] = {}
    """Table -> column -> type in Spark's notation, for example {"public.t" = {total = "string"}}."""
    interval_s: Annotated[float, Meta(ge=0, le=3600)] = 1.0
    """Seconds from the beginning of one cut to that of the next. Longer intervals need less CPU."""
    events_max: Annotated[int, Meta(ge=1, le=100_000_000)] = 500_000
    """Largest number of changes in one cut. The rest goes into the next cut."""
    bytes_max: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    """Largest number of bytes of keys and values that are decoded at once. A cut takes no more; a larger transaction is
    applied in pieces. 0: an eighth of `memory`.
    """
    master: str = "local[*]"
    """Spark master. That of spark-submit takes precedence."""
    committer: Literal["auto", "local", "distributed"] = "auto"
    """What writes the tables: this process (`local`) or Spark's executors (`distributed`). `auto`: local if the Spark
    master is local. You can change it at any time.
    """
    memory: Annotated[str, Meta(pattern="^[1-9][0-9]*[mg]$")] = "2g"
    """Heap of the Spark driver, for example 512m or 4g."""
    spark: dict[str, Secret] = {}
    """Any Spark setting. Append `_file` to the name of a setting to read its value from a file."""
    storage: dict[str, Secret] = {}
    """Options of the object store, as the deltalake package names them. Spark uses those of S3 too. Append `_file` to
    the name of an option to read its value from a file, `_command` to run a program that prints it, or set
    TAILRACE_SINK_<SINK>_STORAGE_<OPTION>.
    """
    keep_cuts: Annotated[int, Meta(ge=2, le=1_000_000)] = 1000
    """Number of newest cuts that remain readable."""
    keep_hours: Annotated[float, Meta(ge=0, le=8784)] = 0.0
    """Hours for which one cut per minute remains readable beyond keep_cuts. 0: none."""
    iceberg: bool = False
    """Whether to write Iceberg metadata for every cut, so that Iceberg readers can read the lake."""
    listen: str = ""
    """host:port of the sink's own /livez, /readyz, /metrics and /status. Empty: no HTTP."""
    objective: Objective | None = None
    """Freshness objective of the sink, the table `[sinks.NAME.objective]`."""


class Applied(Section, frozen=True, kw_only=True):
    """Common settings of sinks that apply one key at a time (`sinks/runner/runner.py`)."""

    tables: tuple[str, ...] = ("*.*",)
    """Captured tables to keep: shell patterns as in source.tables."""
    options: dict[str, Secret] = {}
    """Options of the store's client. Append `_file` to the name of an option to read its value from a file, `_command`
    to run a program that prints it, or set TAILRACE_SINK_<SINK>_OPTION_<OPTION>.
    """
    parallel: Annotated[int, Meta(ge=1, le=64)] = 4
    """Number of concurrent requests. A key is in at most one of them."""
    request_records: Annotated[int, Meta(ge=1, le=100_000)] = 2_000
    """Largest number of keys in one request."""
    request_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 5 << 20
    """Largest number of bytes of values in one request. A larger value is sent alone."""
    on_refused: Literal["park", "stop"] = "park"
    """A record that the store will never accept: `park` stores it as a dead letter, `stop` stops the sink."""
    parked_keys_max: Annotated[int, Meta(ge=0, le=10_000_000)] = 10_000
    """Largest number of parked keys in a partition before the sink stops."""
    listen: str = ""
    """host:port of the sink's own /livez, /readyz, /metrics and /status. Empty: no HTTP."""
    objective: Objective | None = None
    """Freshness objective of the sink, the table `[sinks.NAME.objective]`."""


class Search(Applied, frozen=True, kw_only=True, tag_field="kind", tag="search"):
    """A sink of kind `search`: an OpenSearch index for each table."""

    url: Annotated[str, Meta(pattern=r"^https?://[^/@\s]+/?$")]
    """Address without a password, for example http://localhost:9200. If absent, TAILRACE_SEARCH_URL is used."""
    json: Literal["string", "object", "flat_object"] = "string"
    """How to index json and jsonb. `string`: text that matches as a whole. `object`: an object, each name of which
    becomes a field. `flat_object`: one field for the whole value. `fields` overrides it for a column.
    """
    fields: dict[str, dict[str, dict[str, Any]]] = {}
    """Table -> column -> field of the mapping instead of the generated one, for example {"public.t" = {name = {type =
    "text", analyzer = "english"}}}.
    """
    index: dict[str, Any] = {}
    """Settings of indices that Tailrace creates, for example number_of_shards, number_of_replicas or analysis."""
    refresh_interval_s: Annotated[float, Meta(ge=0.1, le=3600)] = 1.0
    """Seconds until searches see an applied change."""
    gc_deletes_s: Annotated[int, Meta(ge=60, le=604_800)] = 3600
    """Seconds for which an index remembers the version of a deleted document. Keep it above the longest time for which
    a worker may be frozen: a worker that continues later would bring the document back.
    """


class Cache(Applied, frozen=True, kw_only=True, tag_field="kind", tag="cache"):
    """A sink of kind `cache`: keys in Redis or Valkey."""

    url: Annotated[str, Meta(pattern=r"^rediss?://[^/@\s]+(/\d+)?$")]
    """Address without a password, for example redis://localhost/0. If absent, TAILRACE_CACHE_URL is used."""
    mode: Literal["value", "hash", "invalidate"] = "value"
    """`value` stores a row as JSON text, `hash` as a hash of its columns. `invalidate` only deletes the key when the
    row changes.
    """
    keys: dict[str, str] = {}
    """Pattern of schema.table -> key template, for example {"public.t" = "t:{id}"}."""
    ttl_s: Annotated[float, Meta(ge=0, le=1e9)] = 0
    """Seconds for which a row stays after its last change. 0: forever."""
    tombstone_s: Annotated[float, Meta(ge=60, le=1e9)] = 691_200
    """Seconds for which the version of a deleted row stays. Keep it longer than any replay."""
    evictable: bool = False
    """Accept missing rows: the store may evict keys when it is full."""


class Plugin(Applied, frozen=True, kw_only=True, tag_field="kind", tag="plugin"):
    """A sink whose `kind` another installed package provides (docs/contributing/add-a-sink.md)."""

    plugin: str
    """The `kind` in the file; `cdc.config.sink_plugins` sets it."""


Sink: TypeAlias = Warehouse | Search | Cache | Plugin
