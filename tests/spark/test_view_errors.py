"""Errors of a view's values, as Spark raises them in every place of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from sinks.warehouse.spark.spark_errors import unwrapping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BROADCAST = "select a.id, q from range(9) a left join (select id, id div (id - 2) as q from range(5)) b on a.id < b.q"


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_division_by_zero_in_a_broadcast_is_an_error_of_the_view(spark: SparkSession, adaptive: str) -> None:
    """Without adaptive execution it arrives as a Java exception, and the sink would retry the view for ever."""
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, adaptive)
    try:
        with pytest.raises(PySparkException) as raised, unwrapping():
            spark.sql(_BROADCAST).toArrow()
    finally:
        spark.conf.set(name, str(before))

    assert raised.value.getSqlState() == "22012"
