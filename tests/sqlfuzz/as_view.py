"""The same query as a view: read, bound and translated by the product, and computed by Spark over tables of a lake.

Most queries read the tables from memory and run with settings for small data. `product` shows the tables as Delta
tables of several files, read as a lake is, and restores the settings that a sink has.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from cdc.errors import ViewRefused
from sinks.warehouse.delta.version_frame import frame_of
from sinks.warehouse.spark.sql_guard import guarded
from sinks.warehouse.views.definition import BoundView, bind, parse_view
from sinks.warehouse.views.view_errors import check_columns
from tests.sqlfuzz.lake_tables import lake_frame, lake_types
from tests.sqlfuzz.moments import day_text, moment_text
from tests.sqlfuzz.on_postgres import Raised
from tests.sqlfuzz.tables import TABLES
from tests.sqlfuzz.try_eval import TRY_EVAL, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.sqlfuzz.on_postgres import Postgres

_FILE_ROWS: Final = 5  # few, so that the statistics of a file say something
_READ_MAX: Final = 5000  # views that are kept
_FILE: Final = Path("fuzzed.sql")
_HEADER: Final = "-- dialect: postgres\n-- collation: C\n-- time zones: same\n"
_DETAILS: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\d+")
_ITEM: Final = re.compile(r"select `\w+`\.`id`, (?P<item>.*) as `x`(?P<rest> from `\w+` as `\w+`)", re.DOTALL)
_EXCLUDED: Final = "spark.sql.optimizer.excludedRules"
_SMALL: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    _EXCLUDED: "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
}
"""A local table is then a table like any other: its rows are not computed while the query is optimised."""


class Views:
    """A Spark session with the fuzzer's tables."""

    def __init__(self, spark: SparkSession, postgres: Postgres, folder: Path) -> None:
        # pyspark logs each error of a query with the stack of the JVM, and most of them are expected here.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        self._spark = spark
        self._product = {name: spark.conf.get(name, None) for name in _SMALL}
        register(spark)
        self._stored: dict[str, DataFrame] = {}
        self._held: dict[str, DataFrame] = {}
        for table in TABLES:
            made = lake_frame(spark, postgres, table)
            place = str(folder / table)
            rows, name = made.toArrow(), f"mirror/public.{table}"
            for first in range(0, max(rows.num_rows, 1), _FILE_ROWS):
                write_deltalake(place, rows.slice(first, _FILE_ROWS), mode="append")
            self._stored[name] = frame_of(spark, folder, table, DeltaTable(place).version())
            self._held[name] = spark.createDataFrame(rows, schema=made.schema)
        self._frames: Mapping[str, DataFrame] = self._held
        self._names: dict[str, str] = {}
        self._read: dict[str, BoundView | str] = {}
        self._types = lake_types(postgres)
        self._small = dict(_SMALL)
        if self._product[_EXCLUDED]:
            self._small[_EXCLUDED] += f",{self._product[_EXCLUDED]}"
        self._set(self._small)

    def close(self) -> None:
        """Drop the temporary views and restore the session's settings."""
        self._set(self._product)
        for name in self._names:
            self._spark.catalog.dropTempView(name)

    @contextmanager
    def product(self) -> Iterator[None]:
        """Compute views as a sink does."""
        self._set(self._product)
        self._show(self._stored)
        yield
        self._show(self._held)
        self._set(self._small)

    def read(self, sql: str) -> BoundView | str:
        """Read and bind a view; return why it is refused, without its details."""
        if sql not in self._read:
            if len(self._read) >= _READ_MAX:
                self._read.clear()
            self._read[sql] = self._bound(sql)
        return self._read[sql]

    def _bound(self, sql: str) -> BoundView | str:
        try:
            (bound,) = bind([parse_view(_FILE, _HEADER + sql)], list(self._held), self._types)
        except ViewRefused as error:
            return _reason(str(error))
        return bound

    def rows(self, view: BoundView) -> list[tuple[Any, ...]] | Raised:
        """Compute a view."""
        self._offer(view)
        try:
            frame = guarded(self._spark, view.sql)
            check_columns(view, frame)
            return _rows(frame)
        except ViewRefused as error:
            return Raised("refused", _reason(str(error)))
        except PySparkException as error:
            return _raised(error)
        except Py4JJavaError as error:
            return Raised("py4j", _cause(error))

    def is_nullable(self, view: BoundView) -> bool:
        """Whether Spark takes the column `x` for one that may be null."""
        self._offer(view)
        return self._spark.sql(view.sql).schema["x"].nullable

    def cells(self, views: Sequence[BoundView]) -> list[tuple[Any, ...]] | Raised:
        """Compute the column `x` of many views over the same table in one query.

        Each row has the key and, for each view, None where the expression raises, and else a dict with its value.
        """
        items: list[str] = []
        rest = ""
        for view in views:
            match = _ITEM.fullmatch(view.sql)
            if match is None:
                return Raised("another form", view.sql)
            self._offer(view)
            items.append(f"{TRY_EVAL}(named_struct('v', {match['item']})) as x{len(items)}")
            rest = match["rest"]
        try:
            return _rows(self._spark.sql(f"select id, {', '.join(items)}{rest}"))
        except PySparkException as error:
            return _raised(error)
        except Py4JJavaError as error:
            return Raised("py4j", _cause(error))

    def limit(self, rows: Mapping[str, Sequence[int]]) -> None:
        """Show only these rows of some tables, by id; no tables end the limit."""
        frames = dict(self._held)
        for table, ids in rows.items():
            name = f"mirror/public.{table}"
            frames[name] = frames[name].filter(_chosen(ids))
        self._show(frames)

    def _offer(self, view: BoundView) -> None:
        for name, table in view.tables.items():
            if name not in self._names:
                self._names[name] = table
                self._frames[table].createOrReplaceTempView(name)

    def _show(self, frames: Mapping[str, DataFrame]) -> None:
        self._frames = frames
        for name, table in self._names.items():
            frames[table].createOrReplaceTempView(name)

    def _set(self, settings: Mapping[str, str | None]) -> None:
        for name, value in settings.items():
            if value is None:
                self._spark.conf.unset(name)
            else:
                self._spark.conf.set(name, value)


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    # toArrow() checks the batches against the frame's schema, in which a value within a null is not nullable.
    collected: Any = frame
    batches = collected._collect_as_arrow()
    if not batches:
        return []
    return list(zip(*(_values(column) for column in pa.Table.from_batches(batches).columns), strict=True))


def _raised(error: PySparkException) -> Raised:
    condition = error.getCondition() or ""
    message = str(error).splitlines()[0]
    return Raised(error.getSqlState() or "", message if condition in {"", "USER_RAISED_EXCEPTION"} else condition)


def _cause(error: Py4JJavaError) -> str:
    """Return the first error, of which pyspark did not make one of its own."""
    found = error.java_exception
    while (deeper := found.getCause()) is not None:
        found = deeper
    return str(found.toString()).splitlines()[0]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values. A string of Spark may be no UTF-8, and a time may have a year that Python lacks."""
    if pa.types.is_struct(column.type) and column.type.names == ["v"]:
        values = _values(pa.chunked_array([chunk.field(0) for chunk in column.chunks], column.type.field(0).type))
        present = column.is_valid().to_pylist()
        return [{"v": value} if valid else None for value, valid in zip(values, present, strict=True)]
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
    return _DETAILS.sub("_", re.sub(r"^\S*fuzzed\.sql(, line \d+)?(, column \d+)?: ", "", message))
