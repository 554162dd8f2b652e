"""Translates Spark's errors about a view: faults in the SQL or in values belong to the view, others to Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from cdc.errors import TailraceError, ViewRefused
from sinks.warehouse.lake.table_naming import sql_name
from sinks.warehouse.views.definition import BoundView
from sinks.warehouse.views.determinism import Finding, Line
from sinks.warehouse.views.pattern_frames import fault_of
from sinks.warehouse.views.query_text import refused

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_FAULTS: Final[Mapping[str, str]] = {
    "0A": "write the query without it",
    "21": "a subquery in place of a value has more than one row: use max(...), or join it",
    "22": "a value does not fit: use try_cast, try_divide or nullif",
    "23": "two entries of a map have the same key",
    "38": "write the query without it",
    "39": "a value does not fit",
    "42": "",
    "46": "write the query without it",
    "54": "a value or the query is too large: divide it",
    "P0": "the query raises this error itself",
}
"""Classes of SQLSTATE that are faults of a view's SQL or values -> what to do."""
_OF_PATTERN: Final = re.compile(r"__rows\b|__m\d|__[cp]\d|__n\b")
"""In the text of an error about the SQL of a clause MATCH_RECOGNIZE, whose lines are not those of the file."""
_STORED: Final = frozenset(
    {
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "boolean",
        "date",
        "timestamp",
        "timestamp_ntz",
        "binary",
    }
)


def check_columns(view: BoundView, frame: DataFrame) -> None:
    """Check the result's columns: duplicate names from a ``*``, and types that tables cannot have."""
    seen: set[str] = set()
    for column in frame.schema.fields:
        if column.name.lower() in seen:
            raise _refused(view, f"two columns are named {column.name!r}", "list the columns instead of *")
        seen.add(column.name.lower())
        kind = _unstorable(column.dataType)
        if kind:
            raise _refused(
                view, f"column {column.name!r} has type {kind}, which tables of the lake do not support", "cast it"
            )


def check_types(view: BoundView, columns: Mapping[str, Mapping[str, str]]) -> None:
    """Check that inputs have the types that the view was translated for. Raises ViewRefused.

    Args:
        view: the view.
        columns: temporary view -> column, in lower case -> its Spark type.
    """
    for name, wanted in view.relies_on.items():
        for column, kind in wanted.items():
            have = columns[name].get(column.lower())
            if have != kind:
                shown = sql_name(view.tables[name]) if name in view.tables else view.views[name]
                raise _refused(view, f"{shown}.{column} is {have or 'missing'}, not {kind}", "cast it in that view")


def _unstorable(kind: DataType) -> str:
    """Return the first type within it that the lake's tables do not support; empty if there is none."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructType

    if isinstance(kind, ArrayType):
        return _unstorable(kind.elementType)
    if isinstance(kind, MapType):
        return _unstorable(kind.keyType) or _unstorable(kind.valueType)
    if isinstance(kind, StructType):
        return next((found for field in kind.fields if (found := _unstorable(field.dataType))), "")
    known = isinstance(kind, DecimalType | StringType) or kind.simpleString() in _STORED
    return "" if known else kind.simpleString()


@contextmanager
def in_file(view: BoundView) -> Iterator[None]:
    """Add the view's file to an error about its clauses `MATCH_RECOGNIZE`."""
    try:
        yield
    except ViewRefused as error:
        if "file" in error.facts or not view.patterns:
            raise
        raise _refused(view, error.message, error.hint or "") from error


def failure(view: BoundView, error: PySparkException) -> TailraceError:
    """Return the view's error for a fault in its SQL or values; any other error is Spark's and may be temporary."""
    from pyspark.errors import AnalysisException

    from sinks.warehouse.spark.spark_errors import spark_failure

    fault = fault_of(error) if view.patterns else None
    if fault is not None:
        return _refused(view, *fault)
    condition = error.getCondition() or type(error).__name__
    # Spark has errors without an SQLSTATE. If it raises one while it reads the query, trying again does not help.
    state = error.getSqlState() or ("42" if isinstance(error, AnalysisException) else "")
    if state[:2] not in _FAULTS:
        return spark_failure(f"compute view {view.name}", error)
    if not state.startswith("42"):
        # Only the condition: the message contains the value.
        return _refused(view, condition, _FAULTS[state[:2]])
    text = re.sub(r"\s*SQLSTATE:.*", "", str(error).splitlines()[0])
    for name, table in view.tables.items():
        text = text.replace(f"`{name}`", sql_name(table)).replace(name, sql_name(table))
    for name, pattern in view.patterns.items():
        text = text.replace(f"`{name}`", "MATCH_RECOGNIZE").replace(f"`{pattern.source}`", "its table")
    for name, other in view.views.items():
        text = text.replace(f"`{name}`", other).replace(name, other)
    if view.view.dialect != "spark":
        return _refused(view, text, f"cdc views sql {view.name} --spark shows the SQL that runs")
    at = re.search(r"\bline (\d+),? (pos|position:?) (\d+)", str(error))
    # Spark counts columns from 0 where it parses, and from 1 where it analyses.
    is_own = at is not None and not _OF_PATTERN.search(str(error))
    line = view.line_in_file(Line(int(at[1]), int(at[3]) + (at[2] == "pos"))) if at and is_own else Line(0)
    return _refused(view, text, "correct the query, or the table that it reads", line)


def reason_of(view: BoundView, error: ViewRefused) -> str:
    """Return why a view is left behind, with its file."""
    return error.reason if "file" in error.facts else f"{view.view.file}: {error.reason}"


def _refused(view: BoundView, message: str, hint: str, line: int = 0) -> ViewRefused:
    return refused(view.view.file, Finding(message, hint, line))
