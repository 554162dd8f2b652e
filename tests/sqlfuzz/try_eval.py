"""Adds Spark's own TryEval as an SQL function: it gives null for an expression that raises.

So one query computes many expressions over all rows, and shows on which rows each of them raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRY_EVAL: Final = "fuzz_try_eval"
_CLASS: Final = "org.apache.spark.sql.catalyst.expressions.TryEval"
_REGISTRY: Final = "org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase"


def register(spark: SparkSession) -> None:
    """Add the function to a session."""
    jvm = spark._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = jvm.java.lang.Class.forName(_CLASS, True, loader)
    tag = _object(jvm, "scala.reflect.ClassTag").apply(found)
    built = _object(jvm, _REGISTRY).build(TRY_EVAL, _object(jvm, "scala.None"), tag)
    registry = spark._jsparkSession.sessionState().functionRegistry()
    registry.createOrReplaceTempFunction(TRY_EVAL, built._2(), "scala_udf")


def _object(jvm: Any, name: str) -> Any:
    """Return a Scala object."""
    return getattr(getattr(jvm, f"{name}$"), "MODULE$")
