"""Faults of a cluster are named by the texts of Spark's errors (4.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException

from sinks.warehouse.spark.cluster_faults import cluster_fault
from sinks.warehouse.spark.pod_executor import executor_command
from tests.unit.sinks.test_lake_sparkfaults import raised

TASK: Final = "most recent failure: Lost task 0.3 in stage 5.0 (TID 6) (10.0.0.7 executor 3): "


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            f'{TASK}java.io.IOException: Cannot run program "/opt/none/python": error=2, No such file or directory',
            "node 10.0.0.7 of the Spark cluster cannot run the Python /opt/none/python",
        ),
        (
            "thrown from the Python worker:\nTraceback\nModuleNotFoundError: No module named 'pyarrow'",
            "a node of the Spark cluster lacks the Python package pyarrow",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            "a node of the Spark cluster has Python 3.9, and the driver 3.11",
        ),
        (
            f"{TASK}ExecutorLostFailure (executor 3 exited caused by a task) Reason: Command exited with code 137",
            "executors were lost, the last one on node 10.0.0.7 of the Spark cluster: Command exited with code 137",
        ),
        (
            "Job aborted due to stage failure: Master removed our application: FAILED",
            "the Spark cluster is lost: Master removed our application: FAILED",
        ),
        (
            f"{TASK}java.io.IOException: No space left on device",
            "the disk of node 10.0.0.7 of the Spark cluster with Spark's temporary data is full",
        ),
        (
            "task 0.0 in stage 5.0 (TID 6) (127.0.0.1 executor driver): java.io.IOException: No space left on device",
            "the disk with Spark's temporary data is full",
        ),
    ],
    ids=["program", "package", "version", "lost", "removed", "disk", "own disk"],
)
def test_fault_of_a_cluster_is_named_with_its_node(text: str, what: str) -> None:
    fault = cluster_fault(text)

    assert fault is not None
    assert fault.what == what
    assert fault.hint


def test_only_lost_executors_make_the_next_pieces_smaller() -> None:
    lost = raised(PySparkException(f"{TASK}ExecutorLostFailure (executor 3 exited caused by x) Reason: heartbeat"))
    unfit = raised(PySparkException("ModuleNotFoundError: No module named 'sinks'"))

    assert (getattr(lost, "counts", None), getattr(unfit, "counts", None)) == (True, False)
    assert "lacks the Python package sinks" in unfit.message


def test_other_errors_are_no_fault_of_the_cluster() -> None:
    assert cluster_fault(f"{TASK}org.x.CastException: 's3cret'") is None


def test_executor_of_a_pod_gets_what_the_driver_wrote_into_its_environment() -> None:
    environ = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "4g",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_EXECUTOR_POD_NAME": "lake-exec-7",
        **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 0)},
    }

    command = executor_command(environ, Path("/usr/bin/java"), Path("/opt/pyspark"))

    assert command[:6] == ["/usr/bin/java", "-Dn=0", "-Dn=2", "-Dn=10", "-Xms4g", "-Xmx4g"]
    assert command[command.index("-cp") + 1] == "/opt/pyspark/jars/*"
    named = dict(zip(command[9::2], command[10::2], strict=True))
    assert named["--driver-url"] == environ["SPARK_DRIVER_URL"]
    assert (named["--executor-id"], named["--cores"], named["--hostname"]) == ("7", "2", "10.0.0.7")
    assert (named["--app-id"], named["--resourceProfileId"], named["--podName"]) == ("spark-1", "0", "lake-exec-7")
