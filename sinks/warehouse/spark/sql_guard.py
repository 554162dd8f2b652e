"""Verifies that a user's SQL only reads tables of the lake, before Spark runs any of it.

What Spark reads in a text decides, and sqlglot may read something else: for Spark, a comment that ends in a backslash
continues in the next line. So this module asks Spark's own parser and analyser. The parsed plan shows whether the text
is a command, which `SparkSession.sql` would run at once. The analysed plan names every step, function and source.
Steps are allowed by name. Functions are allowed if they are Spark's own and not listed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from cdc.errors import ViewRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUN_ON_FILES: Final = "spark.sql.runSQLOnFiles"
"""Spark's setting for ``select * from csv.`/a/file` ``. Spark ignores it in another spelling."""
_HINT: Final = "a query may only read tables and views of the lake, by their names"
_KNOWN_MAX: Final = 10_000  # texts of one session that passed the checks
_STEPS: Final = frozenset(
    {
        *("Project", "Filter", "Aggregate", "Join", "LateralJoin", "Sort", "Distinct", "Deduplicate", "Expand"),
        *("GlobalLimit", "LocalLimit", "Offset", "Tail", "Union", "Except", "Intersect", "Window", "WindowGroupLimit"),
        *("SubqueryAlias", "View", "WithCTE", "CTERelationDef", "CTERelationRef", "UnionLoop", "UnionLoopRef"),
        *("Generate", "Pivot", "Unpivot", "LocalRelation", "OneRowRelation", "Range", "EmptyRelation", "ResolvedHint"),
        *("RepartitionByExpression", "Repartition", "RebalancePartitions", "DataFrameDropColumns", "AsOfJoin"),
    }
)
"""Steps of an analysed query."""
_BEGINNINGS: Final = _STEPS | {
    *("UnresolvedWith", "UnresolvedHaving", "UnresolvedHint", "UnresolvedSubqueryColumnAliases", "UnresolvedQualify"),
    *("WithWindowDefinition", "UnresolvedPivot", "UnresolvedInlineTable", "UnresolvedTVFAliases", "UnresolvedRelation"),
    *("UnresolvedTableValuedFunction",),
}
"""The possible first nodes of a query's plan before it is analysed; a command's plan begins with another one."""
_LOGICAL: Final = "org.apache.spark.sql.catalyst.plans.logical."
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
_FUNCTIONS: Final = frozenset(
    {
        *("CallMethodViaReflection", "TryReflect", "InputFileName", "InputFileBlockStart", "InputFileBlockLength"),
        *("ScalaUDF", "PythonUDF", "PythonUDAF", "PythonUDTF", "ScalaUDAF", "UserDefinedExpression"),
        *("FromAvro", "ToAvro", "SchemaOfAvro", "FromProtobuf", "ToProtobuf", "ApplyFunctionExpression", "Invoke"),
    }
)
"""Functions that run other code or reach files."""
_OF_XML: Final = frozenset({"XmlToStructs", "SchemaOfXml"})
"""Functions with an option that names a file. Options are a call of ``map``, which the plan does not show."""
_MAP: Final = re.compile(r"\bmap\b", re.IGNORECASE)
_known: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


def guarded(spark: SparkSession, sql: str) -> DataFrame:
    """Return the frame of a user's query, over temporary views for tables of the lake.

    Raises:
        ViewRefused: Spark would do more than read them.
        PySparkException: Spark does not understand the query.
    """
    known = _known.setdefault(spark, set())
    if sql not in known:
        _check_parsed(spark, sql)
    before = spark.conf.get(RUN_ON_FILES)
    if before != "false":
        spark.conf.set(RUN_ON_FILES, "false")
    try:
        frame = spark.sql(sql)
    finally:
        if before != "false":
            spark.conf.set(RUN_ON_FILES, str(before))
    if sql not in known:
        check_analysed(frame._jdf.queryExecution().analyzed().toJSON(), sql)  # noqa: SLF001 - pyspark has no other way
        if len(known) >= _KNOWN_MAX:
            known.clear()
        known.add(sql)
    return frame


def _check_parsed(spark: SparkSession, sql: str) -> None:
    """Refuse a command. Parsing runs nothing."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import UnknownException, convert_exception

    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)  # noqa: SLF001
    except Py4JJavaError as error:
        raised = convert_exception(error.java_exception)
        if isinstance(raised, UnknownException):
            raise
        raise raised from error
    kind = _kind(plan)
    while kind == "UnresolvedWith":
        plan = plan.child()
        kind = _kind(plan)
    kinds = [kind]
    if kind == "Union":  # also for `from t insert into a select ... insert into b select ...`
        children = plan.children()
        kinds += [_kind(children.apply(index)) for index in range(children.size())]
    for found in kinds:
        if found not in _BEGINNINGS:
            raise ViewRefused(f"the query is not a SELECT: Spark reads it as {found}", hint="write a single SELECT")


def check_analysed(plan: str, sql: str) -> None:
    """Check every node of the analysed plan of `sql`, which Spark wrote as JSON. Raises ViewRefused."""
    for name in _classes(json.loads(plan)):
        short = name.rpartition(".")[2].removesuffix("$")
        if name.startswith(_EXPRESSIONS):
            if short in _FUNCTIONS:
                raise ViewRefused(f"the query calls a function that is not plain SQL: Spark reads {short}", hint=_HINT)
            if short in _OF_XML and _MAP.search(sql):
                raise ViewRefused("the query passes options to a function that reads XML", hint="remove the options")
        elif not name.startswith(_LOGICAL) or short not in _STEPS:
            raise ViewRefused(f"the query does more than read tables of the lake: Spark reads {short}", hint=_HINT)


def _classes(value: Any) -> Iterator[str]:
    """Yield the classes of all nodes of a plan, including subqueries but not the content of temporary views.

    Spark writes a tree as the list of its nodes, each before its children.
    """
    if isinstance(value, dict):
        for inner in value.values():
            yield from _classes(inner)
        return
    if not isinstance(value, list):
        return
    skipped = 0
    for node in value:
        if not (isinstance(node, dict) and "class" in node and "num-children" in node):
            yield from _classes(node)
            continue
        children = int(node["num-children"])
        if skipped:
            skipped += children - 1
            continue
        yield str(node["class"])
        if node["class"] == f"{_LOGICAL}View" and node.get("isTempView") is True:
            skipped = children
            continue
        yield from _classes({name: inner for name, inner in node.items() if name != "class"})


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName()).removesuffix("$")
