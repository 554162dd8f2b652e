"""Selects the topics of outbox events for the lake, and builds the rows of their archives.

In ``<name>.events.<aggregate_type>`` the key is the id of an aggregate, the headers include ``id``, ``type`` and
``version``, and the payload is any bytes. There is no schema and no row to update, so the lake keeps an archive only.
Its columns:

    _key, _key_bytes            aggregate id
    _payload, _payload_bytes    the payload unchanged; both are null if there was none
    _id, _type, _version        the first header of that name, as text
    _headers                    all headers in order: key, value, bytes
    _timestamp, _partition, _offset

A value that is not UTF-8 is null as text and kept in the column of bytes, which is null otherwise. So nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from sinks.warehouse.lake.cut_position import CutPosition
from sinks.warehouse.lake.table_naming import unescaped

_SPACE: Final = "events"
_NAMED: Final = ("id", "type", "version")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.string()), ("bytes", pa.binary())])
COLUMNS: Final = pa.schema(
    [
        ("_key", pa.string()),
        ("_key_bytes", pa.binary()),
        ("_payload", pa.string()),
        ("_payload_bytes", pa.binary()),
        *[(f"_{name}", pa.string()) for name in _NAMED],
        ("_headers", pa.list_(_HEADER)),
        ("_timestamp", pa.timestamp("us", tz="UTC")),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
    ]
)
"""Columns of an archive in Arrow's types: the types that Spark returns depend on the plan."""


def event_topics(name: str, end: CutPosition, tables: Collection[str]) -> dict[str, str]:
    """Return topic -> ``events.<aggregate_type>``, which table patterns select, of every event topic up to a position.

    Args:
        name: of the pipeline.
        end: the position.
        tables: topics of captured tables, because a schema may be named events as well.
    """
    prefix = f"{name}.{_SPACE}."
    found = {topic: f"{_SPACE}.{unescaped(topic.removeprefix(prefix))}" for topic, _ in end.accounts}
    # A captured table whose schema record was lost is not an event topic. That damage is reported elsewhere.
    return {
        topic: named
        for topic, named in found.items()
        if topic.startswith(prefix) and topic not in tables and named not in end.complete
    }


def archived(raw: DataFrame) -> pa.Table:
    """Return the rows of an archive from records of one topic with headers (`sinks.warehouse.log.span_batch`)."""
    return archive_frame(raw).toArrow().cast(COLUMNS)


def archive_frame(raw: DataFrame) -> DataFrame:
    """Return the same rows as a frame; lazy."""
    headers = fn.col("headers")
    return raw.select(
        _text(fn.col("key")).alias("_key"),
        _bytes(fn.col("key")).alias("_key_bytes"),
        _text(fn.col("value")).alias("_payload"),
        _bytes(fn.col("value")).alias("_payload_bytes"),
        *[_text(_first(headers, name)).alias(f"_{name}") for name in _NAMED],
        fn.transform(
            headers,
            lambda header: fn.struct(
                header["key"].alias("key"),
                _text(header["value"]).alias("value"),
                _bytes(header["value"]).alias("bytes"),
            ),
        ).alias("_headers"),
        fn.col("timestamp").alias("_timestamp"),
        fn.col("partition").alias("_partition"),
        fn.col("offset").alias("_offset"),
    )


def _text(value: Column) -> Column:
    return fn.try_validate_utf8(value.cast("string"))


def _bytes(value: Column) -> Column:
    return fn.when(~fn.is_valid_utf8(value.cast("string")), value)


def _first(headers: Column, name: str) -> Column:
    return fn.get(fn.filter(headers, lambda header: header["key"] == name), fn.lit(0))["value"]
