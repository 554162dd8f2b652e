"""Chooses the committer of a lake: `committer` of its settings, and for ``auto`` the master of the Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.distributed.spark_delta import SparkDelta
from sinks.warehouse.spark.spark_session import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc.config.settings import Warehouse
    from sinks.warehouse.lake.committer import Committer, TableLoads
    from sinks.warehouse.lake.location import Location


def is_distributed(settings: Warehouse, master: str) -> bool:
    """Whether executors write the tables. `master` is that of the session, which may be foreign."""
    return settings.committer == "distributed" or (settings.committer == "auto" and not is_local(master))


def committer_of(settings: Warehouse, spark: SparkSession, location: Location) -> Committer:
    """Return the committer of a lake."""
    if is_distributed(settings, spark.sparkContext.master or ""):
        return SparkDelta(spark, location)
    return DeltaRs(location)


def loads_of(committer: Committer, spark: SparkSession, location: Location) -> TableLoads:
    """Return what writes new tables: executors, also on one machine, where they are threads of Spark's JVM."""
    return committer if isinstance(committer, SparkDelta) else SparkDelta(spark, location)
