"""The same query as a view: read, bound and translated by the product, and computed by Spark over tables of a lake.

The tables have the types and values that a lake would have: each text of PostgreSQL is encoded as capture does,
decoded as a cut does, and written to a Parquet file.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from cdc.encode.values import EncodeOptions, resolve
from cdc.errors import ViewRefused
from cdc.model.progress_record import SchemaColumn, SchemaRecord
from sinks.warehouse.driver import types_stored
from sinks.warehouse.lake.manifest import TableState
from sinks.warehouse.log.decoding import cast
from sinks.warehouse.log.lake_columns import LakeTable, lake_table
from sinks.warehouse.spark.frames import frame_of_rows
from sinks.warehouse.spark.sql_guard import guarded
from sinks.warehouse.views.definition import BoundView, bind, parse_view
from sinks.warehouse.views.meaning.lake_types import Types, types_of
from sinks.warehouse.views.view_errors import check_columns
from tests.sqlfuzz.moments import day_text, moment_text
from tests.sqlfuzz.on_postgres import Raised
from tests.sqlfuzz.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.sqlfuzz.on_postgres import Postgres

_FILE: Final = Path("fuzzed.sql")
_HEADER: Final = "-- dialect: postgres\n"
_DETAILS: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\d+")


class Views:
    """A Spark session with the fuzzer's tables."""

    def __init__(self, spark: SparkSession, postgres: Postgres, folder: Path) -> None:
        # pyspark logs each error of a query with the stack of the JVM, and most of them are expected here.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        self._spark = spark
        self._frames: dict[str, DataFrame] = {}
        for table in TABLES:
            record = _record(table, postgres.modifiers(table))
            made = _frame(spark, postgres, lake_table(record), record)
            place = str(folder / table)
            made.coalesce(1).write.parquet(place)
            self._frames[f"mirror/public.{table}"] = spark.read.schema(made.schema).parquet(place)
        self._limited: dict[str, DataFrame] = {}
        self._types = _types(postgres)

    def read(self, sql: str) -> BoundView | str:
        """Read and bind a view; return why it is refused, without its details."""
        try:
            (bound,) = bind([parse_view(_FILE, _HEADER + sql)], list(self._frames), self._types)
        except ViewRefused as error:
            return _reason(str(error))
        return bound

    def rows(self, view: BoundView) -> list[tuple[Any, ...]] | Raised:
        """Compute a view."""
        for name, table in view.tables.items():
            (self._limited.get(table) or self._frames[table]).createOrReplaceTempView(name)
        try:
            frame = guarded(self._spark, view.sql)
            check_columns(view, frame)
            table = frame.toArrow()
        except ViewRefused as error:
            return Raised("refused", _reason(str(error)))
        except PySparkException as error:
            return Raised(error.getSqlState() or "", error.getCondition() or str(error).splitlines()[0])
        except Py4JJavaError as error:
            return Raised("py4j", _cause(error))
        finally:
            for name in view.tables:
                self._spark.catalog.dropTempView(name)
        columns = [_values(column) for column in table.columns]
        return list(zip(*columns, strict=True))

    def limit(self, rows: Mapping[str, Sequence[int]]) -> None:
        """Show only these rows of some tables, by id; no tables end the limit."""
        frames = {f"mirror/public.{table}": ids for table, ids in rows.items()}
        self._limited = {table: self._frames[table].where(_chosen(ids)) for table, ids in frames.items()}


def _cause(error: Py4JJavaError) -> str:
    """Return the first error, of which pyspark did not make one of its own."""
    found = error.java_exception
    while (deeper := found.getCause()) is not None:
        found = deeper
    return str(found.toString()).splitlines()[0]


def _types(postgres: Postgres) -> Types:
    """Return PostgreSQL's types of the tables' columns, as a manifest of a lake would have them."""
    states = {}
    for table in TABLES:
        record = _record(table, postgres.modifiers(table))
        columns = types_stored(record, lake_table(record))
        states[f"mirror/public.{table}"] = TableState(version=0, schema_id="00000000", columns=columns)
    return types_of(states)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values. A string of Spark may be no UTF-8, and a time may have a year that Python lacks."""
    if pa.types.is_date32(column.type) or pa.types.is_timestamp(column.type):
        width, text = (pa.int32(), day_text) if pa.types.is_date32(column.type) else (pa.int64(), moment_text)
        return [None if one is None else text(one) for one in column.cast(width).to_pylist()]
    if not pa.types.is_string(column.type):
        return list(column.to_pylist())
    found = column.cast(pa.binary()).to_pylist()
    return [None if one is None else one.decode(errors="backslashreplace") for one in found]


def _chosen(ids: Sequence[int]) -> str:
    return f"id in ({', '.join(map(str, ids)) or 'null'})"


def _reason(message: str) -> str:
    """Return a message without file, line and values, so that equal reasons can be counted."""
    return _DETAILS.sub("_", re.sub(r"^\S*fuzzed\.sql(, line \d+)?: ", "", message))


def _record(table: str, columns: Sequence[tuple[str, str, int, int]]) -> SchemaRecord:
    found = tuple(
        SchemaColumn(
            name=name,
            type=kind,
            type_oid=oid,
            type_modifier=modifier,
            encoding=resolve(oid, {}, EncodeOptions(), modifier).encoding,
            key=name == "id",
        )
        for name, kind, oid, modifier in columns
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


def _frame(spark: SparkSession, postgres: Postgres, table: LakeTable, record: SchemaRecord) -> DataFrame:
    """Return the rows of a table of PostgreSQL in the lake's types."""
    from pyspark.sql import functions as fn

    answer = postgres.answer(f"select * from {table.table} order by id")
    assert not isinstance(answer, Raised), answer.message
    encoders = [resolve(column.type_oid, {}, EncodeOptions(), column.type_modifier).encode for column in record.columns]
    texts = [
        [
            _text(None if text is None else (encode or bytes)(text.encode()))
            for encode, text in zip(encoders, row, strict=True)
        ]
        for row in answer.rows
    ]
    names = [column.name for column in table.columns]
    columns = [pa.array(column, pa.string()) for column in zip(*texts, strict=True)]
    read = frame_of_rows(spark, pa.Table.from_arrays(columns, names=names))
    return read.select(
        *(cast(fn.col(column.name), column, {}, fn.lit(""), None).alias(column.name) for column in table.columns)
    )


def _text(encoded: bytes | None) -> str | None:
    """Return the content of a JSON string, or the text of other JSON."""
    if encoded is None:
        return None
    return str(json.loads(encoded)) if encoded[:1] == b'"' else encoded.decode()
