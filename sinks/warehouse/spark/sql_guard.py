"""Makes sure that SQL of a user only reads tables of the lake, before Spark runs any of it.

A text means what Spark reads in it, and sqlglot may read something else: to Spark a comment that ends in a backslash
goes on in the next line. So Spark's own parser and analyser are asked. The parsed plan shows whether the text
is a command, which `SparkSession.sql` would run at once. The analysed plan names every step, every function and every
source. Steps are allowed by name; so are functions, by being Spark's own and not in `viewsafety.REFUSED`.
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
"""Spark's setting for ``select * from csv.`/a/file` ``. In another spelling it is ignored."""
_HINT: Final = "a query reads tables and views of the lake by their names, and nothing else"
_KNOWN_MAX: Final = 10_000  # texts of one session that were found harmless
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
"""What the plan of a query may begin with before it is analysed; of a command it begins with something else."""
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
"""Functions one of whose options names a file; options are a call of ``map``, of which the plan shows nothing."""
_MAP: Final = re.compile(r"\bmap\b", re.IGNORECASE)
_known: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()


def guarded(spark: SparkSession, sql: str) -> DataFrame:
    """The frame of a query of a user, over temporary views that stand for tables of the lake.

    Raises:
        ViewRefused: Spark would do something else than to read them.
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
    from pyspark.errors.exceptions.captured import convert_exception

    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)  # noqa: SLF001
    except Py4JJavaError as error:
        raise convert_exception(error.java_exception) from error
    kind = _kind(plan)
    while kind == "UnresolvedWith":
        plan = plan.child()
        kind = _kind(plan)
    kinds = [kind]
    if kind == "Union":  # so is `from t insert into a select ... insert into b select ...`
        children = plan.children()
        kinds += [_kind(children.apply(index)) for index in range(children.size())]
    for found in kinds:
        if found not in _BEGINNINGS:
            raise ViewRefused(f"the query is not a SELECT: Spark reads it as {found}", hint="write one SELECT")


def check_analysed(plan: str, sql: str) -> None:
    """Look at every node of the analysed plan of `sql`, which Spark wrote as JSON. Raises ViewRefused."""
    for name in _classes(json.loads(plan)):
        short = name.rpartition(".")[2].removesuffix("$")
        if name.startswith(_EXPRESSIONS):
            if short in _FUNCTIONS:
                raise ViewRefused(f"the query calls a function that is not plain SQL: Spark reads {short}", hint=_HINT)
            if short in _OF_XML and _MAP.search(sql):
                raise ViewRefused("the query gives options to a function that reads XML", hint="leave the options out")
        elif not name.startswith(_LOGICAL) or short not in _STEPS:
            raise ViewRefused(f"the query does more than read tables of the lake: Spark reads {short}", hint=_HINT)


def _classes(value: Any) -> Iterator[str]:
    """The classes of all nodes in a plan, those of subqueries included, but not what temporary views consist of.

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
