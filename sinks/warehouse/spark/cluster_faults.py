"""Names faults of a cluster by the text of Spark's error. Pure. Parts of the text that may hold rows are not shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_INSTALL: Final = (
    "install tailrace[warehouse] in the driver's version on every node, and name its Python as spark.pyspark.python in "
    "the sink's `spark`"
)
_LOG: Final = "the page and the logs of the cluster show more"
_NODE: Final = re.compile(r"\(TID \d+\) \(([\w.:\[\]-]+) executor (\w+)\)")
_PACKAGE: Final = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_VERSION: Final = re.compile(r"Python in worker has different version: ([\d.]+) than that in driver: (\d+\.\d+)")
_PROGRAM: Final = re.compile(r'java\.io\.IOException: Cannot run program "([^"\n]{1,200})"')
_LOST: Final = re.compile(r"ExecutorLostFailure \(executor \w+ [^)]*\) Reason: ([^\n]{1,200})")
_FULL: Final = "No space left on device"
_ENDED: Final = re.compile(r"(Master removed our application: \w+|All masters are unresponsive)")


@dataclass(frozen=True, slots=True)
class ClusterFault:
    """What is wrong with a cluster, and what to do. `counts`: a smaller piece of work may help."""

    what: str
    hint: str
    counts: bool = False


def cluster_fault(text: str) -> ClusterFault | None:
    """Return the fault that the text of an error names; None if it is another error."""
    node = _NODE.search(text)
    where = f"node {node[1]} of the Spark cluster" if node else "a node of the Spark cluster"
    if _FULL in text:
        return disk_fault("" if node is None or node[2] == "driver" else f" of {where}")
    if found := _PACKAGE.search(text):
        return ClusterFault(f"{where} lacks the Python package {found[1]}", _INSTALL)
    if found := _VERSION.search(text):
        return ClusterFault(f"{where} has Python {found[1]}, and the driver {found[2]}", _INSTALL)
    if found := _PROGRAM.search(text):
        return ClusterFault(f"{where} cannot run the Python {found[1]}", _INSTALL)
    if found := _LOST.search(text):
        hint = (
            "if it lacked memory, raise spark.executor.memory and spark.executor.memoryOverhead in the sink's `spark`"
        )
        return ClusterFault(f"executors were lost, the last one on {where}: {found[1]}", f"{hint}; {_LOG}", counts=True)
    if found := _ENDED.search(text):
        return ClusterFault(f"the Spark cluster is lost: {found[1]}", _LOG)
    return None


def disk_fault(place: str = "") -> ClusterFault:
    """Return the fault of a full disk of Spark's temporary data. `place` names a node; empty for this machine."""
    return ClusterFault(
        f"the disk{place} with Spark's temporary data is full",
        "free space, or name a folder on a larger disk: spark.local.dir in the sink's `spark`; on a cluster, "
        "SPARK_LOCAL_DIRS of its workers",
    )
