"""The fuzzer's tables as a lake has them: types and values of its columns.

Each text of PostgreSQL is encoded as capture does, and decoded as a cut does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc.encode.values import EncodeOptions, resolve
from cdc.model.progress_record import SchemaColumn, SchemaRecord
from sinks.warehouse.lake.manifest import TableState
from sinks.warehouse.log.decoding import cast
from sinks.warehouse.log.lake_columns import lake_table
from sinks.warehouse.spark.frames import frame_of_rows
from sinks.warehouse.views.column_types import types_stored
from sinks.warehouse.views.meaning.lake_types import Types, types_of
from tests.sqlfuzz.on_postgres import Raised
from tests.sqlfuzz.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.sqlfuzz.on_postgres import Postgres


def lake_types(postgres: Postgres) -> Types:
    """Return PostgreSQL's types of the tables' columns, as a manifest of a lake would have them."""
    states = {}
    for table in TABLES:
        record = _record(table, postgres.modifiers(table))
        columns = types_stored(record, lake_table(record))
        states[f"mirror/public.{table}"] = TableState(version=0, schema_id="00000000", columns=columns)
    return types_of(states)


def lake_frame(spark: SparkSession, postgres: Postgres, table: str) -> DataFrame:
    """Return the rows of a table of PostgreSQL in the lake's types."""
    from pyspark.sql import functions as fn

    record = _record(table, postgres.modifiers(table))
    found = lake_table(record)
    answer = postgres.answer(f"select * from {table} order by id")
    assert not isinstance(answer, Raised), answer.message
    encoders = [resolve(column.type_oid, {}, EncodeOptions(), column.type_modifier).encode for column in record.columns]
    texts = [
        [
            _text(None if text is None else (encode or bytes)(text.encode()))
            for encode, text in zip(encoders, row, strict=True)
        ]
        for row in answer.rows
    ]
    names = [column.name for column in found.columns]
    columns = [pa.array([row[place] for row in texts], pa.string()) for place in range(len(names))]
    read = frame_of_rows(spark, pa.Table.from_arrays(columns, names=names))
    return read.select(
        *(cast(fn.col(column.name), column, {}, fn.lit(""), None).alias(column.name) for column in found.columns)
    )


def _record(table: str, columns: Sequence[tuple[str, int, int]]) -> SchemaRecord:
    encodings = [resolve(oid, {}, EncodeOptions(), modifier) for _, oid, modifier in columns]
    found = tuple(
        SchemaColumn(
            name=name,
            type=encoding.name,
            type_oid=oid,
            type_modifier=modifier,
            encoding=encoding.encoding,
            key=name == "id",
        )
        for (name, oid, modifier), encoding in zip(columns, encodings, strict=True)
    )
    return SchemaRecord(
        table=f"public.{table}",
        topic=f"fuzz.public.{table}",
        schema_id="00000000",
        epoch=1,
        lsn=1,
        replica_identity="default",
        key=("id",),
        columns=found,
    )


def _text(encoded: bytes | None) -> str | None:
    """Return the content of a JSON string, or the text of other JSON."""
    if encoded is None:
        return None
    return str(json.loads(encoded)) if encoded[:1] == b'"' else encoded.decode()
