"""Checks that the nodes of a cluster can run our tasks: the same release, and every package that tasks import."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from cdc import __version__
from cdc.errors import LakeUnready
from sinks.warehouse.spark.spark_errors import translating_spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS: Final = ("sinks.warehouse.distributed.file_tasks", "sinks.warehouse.distributed.row_files")


def check_nodes(spark: SparkSession) -> None:
    """Run a task in every free core of the cluster. Raises LakeUnready with the node that cannot run ours."""
    context = spark.sparkContext
    slots = max(1, context.defaultParallelism)
    with translating_spark_errors("use the cluster"):
        found = context.parallelize(range(slots), slots).mapPartitions(_node).collect()
    for host, version, missing in sorted(set(found)):
        if missing or version != __version__:
            raise LakeUnready(
                f"node {host} of the Spark cluster cannot run the lake's tasks: "
                + (missing or f"it has tailrace {version}, the driver has {__version__}"),
                hint="install tailrace[warehouse] in the driver's version on every node, and name its Python as "
                "spark.pyspark.python in the sink's `spark`",
                command=f"pip install 'tailrace[warehouse]=={__version__}'",
                node=host,
            )


def _node(_: Iterable[int]) -> Iterator[tuple[str, str, str]]:
    """Return host, release, and what is missing; runs in an executor."""
    missing = ""
    try:
        for tasks in _TASKS:
            importlib.import_module(tasks)
    except ImportError as error:
        missing = str(error)
    yield socket.gethostname(), __version__, missing
