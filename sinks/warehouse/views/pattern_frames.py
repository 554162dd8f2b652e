"""Computes the relations that replace clauses `MATCH_RECOGNIZE`, in Spark's tasks.

Spark computes all expressions over single rows and their neighbours, then a task matches whole partitions, then Spark
computes the measures. The text of both queries is a user's, so both are checked as the text of the view is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
from pyspark import cloudpickle

from cdc.errors import ViewRefused
from sinks.warehouse.lake.table_naming import quoted
from sinks.warehouse.patterns import conditions, matcher, program, task, trail
from sinks.warehouse.patterns.refusal import PatternRefused
from sinks.warehouse.patterns.statement import Statement, partition_column
from sinks.warehouse.patterns.task import FAULT, ROW, Task, matching, result_column, value_column
from sinks.warehouse.planner.relations import WEIGHT
from sinks.warehouse.spark.arrow_tasks import in_python
from sinks.warehouse.spark.sql_guard import guarded
from sinks.warehouse.views.row_patterns import BoundPattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

Register: TypeAlias = "Callable[[str, DataFrame], None]"
"""Makes a frame readable under a name until the inputs are closed."""

_LIST: Final = "__list"
_HINT: Final = "make the conditions or the pattern more specific, or the partitions smaller"

# Python workers on other machines have pyspark and pyarrow, but not this package.
for _module in (conditions, matcher, program, task, trail):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]


def pattern_frame(
    spark: SparkSession, pattern: BoundPattern, source: str, key: Sequence[str], name: str, register: Register
) -> DataFrame:
    """Return the rows of a clause; lazy.

    Args:
        spark: the session.
        pattern: the clause.
        source: the temporary view that it reads.
        key: columns that no two rows of it share, in any case; empty if none are known.
        name: of the result, from which names of temporary views are made.
        register: makes them.

    Raises:
        ViewRefused: the clause does not fit to the columns' types; or its SQL would do more than read the rows.
        PySparkException: Spark does not understand its expressions.
    """
    columns = spark.table(source).dtypes
    statement = pattern.statement
    rows = guarded(spark, statement.rows_sql(quoted(source), columns, key))
    by_name = dict(rows.dtypes)
    kinds = [by_name[value_column(index)] for index in range(len(statement.columns.sqls))]
    try:
        statement = statement.typed(kinds)
        sql = statement.matches_sql(quoted(f"{name}__m"), columns)
    except PatternRefused as error:
        raise ViewRefused(error.message, hint=error.hint) from error
    register(f"{name}__m", _matched(rows, statement, kinds))
    return guarded(spark, sql)


def _matched(rows: DataFrame, statement: Statement, kinds: Sequence[str]) -> DataFrame:
    """Return the rows of the matches, by partition."""
    from pyspark.sql import functions as fn
    from pyspark.sql.types import ArrayType, StructField, StructType

    keys = [partition_column(index) for index in range(len(statement.clause.partition))]
    values = [name for name in rows.columns if name not in keys]
    lists = rows.groupBy(*keys).agg(fn.collect_list(fn.struct(*values)).alias(_LIST))
    fields = []
    for index, result in enumerate(statement.results):
        column = statement.result_column(result)
        kind = (
            rows.schema[value_column(column)].dataType if column >= 0 else _spark(statement.result_kind(result, kinds))
        )
        fields.append(StructField(result_column(index), kind))
    if statement.clause.all_rows:
        fields.append(StructField(ROW, rows.schema[ROW].dataType))
    if not fields:
        fields.append(StructField(result_column(0), _spark("bigint")))
    match = in_python(matching(task_of(statement, kinds)), ArrayType(StructType(fields)))
    return lists.select(*keys, match(_LIST).alias(_LIST)).select(*keys, fn.inline(_LIST))


def task_of(statement: Statement, kinds: Sequence[str]) -> Task:
    """Return what a task matches; `kinds` are the types of the columns of expressions over one row."""
    clause = statement.clause
    return Task(
        program=statement.program,
        variables=clause.variables,
        conditions=tuple((one.of_row, one.of_match) for one in statement.conditions),
        aggregates=statement.aggregates,
        measured=statement.measured,
        results=statement.results,
        types=tuple(_arrow(statement.result_kind(one, kinds)) for one in statement.results),
        skip=clause.skip,
        all_rows=clause.all_rows,
        within=statement.within,
        read=statement.read,
        shown=statement.partitions,
    )


def _spark(kind: str) -> DataType:
    """Return the type of an aggregate or a name."""
    from pyspark.sql.types import DecimalType, DoubleType, LongType, StringType

    if kind.startswith("decimal"):
        return DecimalType(*map(int, re.findall(r"\d+", kind)))
    return LongType() if kind == "bigint" else DoubleType() if kind == "double" else StringType()


def _arrow(kind: str) -> pa.DataType:
    """Return the type of an aggregate or a name in Arrow."""
    if kind.startswith("decimal"):
        return pa.decimal128(*map(int, re.findall(r"\d+", kind)))
    return pa.int64() if kind == "bigint" else pa.float64() if kind == "double" else pa.string()


def both_sides(new: DataFrame, gone: DataFrame) -> DataFrame:
    """Return images of a change: rows that came with `WEIGHT` 1, and rows that went with -1."""
    from pyspark.sql import functions as fn

    return new.withColumn(WEIGHT, fn.lit(1)).unionAll(gone.withColumn(WEIGHT, fn.lit(-1)))


def rows_among(rows: DataFrame, keys: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows whose columns have the values of one of the keys; a null equals a null."""
    places = [f"k{index}" for index in range(len(columns))]
    asked = keys.toDF(*places)
    matches = [rows[quoted(name)].eqNullSafe(asked[place]) for name, place in zip(columns, places, strict=True)]
    return rows.join(asked.hint("broadcast"), reduce(and_, matches), "left_semi")


@contextmanager
def patterns_readable(
    spark: SparkSession, patterns: Mapping[str, BoundPattern], keys: Mapping[str, Sequence[str]], mark: str = ""
) -> Iterator[None]:
    """Make what replaces clauses readable in a block, over temporary views that are there.

    Args:
        spark: the session.
        patterns: name -> clause.
        keys: temporary view -> columns that no two of its rows share.
        mark: behind the name of each temporary view.

    Raises:
        ViewRefused, PySparkException: see `pattern_frame`.
    """
    made: list[str] = []

    def register(name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        made.append(name)

    try:
        for name, pattern in patterns.items():
            key = keys.get(pattern.source, ())
            register(name + mark, pattern_frame(spark, pattern, pattern.source + mark, key, name + mark, register))
        yield
    finally:
        for name in made:
            spark.catalog.dropTempView(name)


def fault_of(error: Exception) -> tuple[str, str] | None:
    """Return message and hint if a clause of a view caused an error of Spark; None for any other error."""
    found = re.search(f"{re.escape(FAULT)}(.*?){re.escape(FAULT)}", str(error), re.DOTALL)
    return None if found is None else (f"MATCH_RECOGNIZE: {' '.join(found[1].split())}", _HINT)
