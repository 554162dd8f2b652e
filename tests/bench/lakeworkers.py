"""Measures the CPU of a cut on clusters of one, two and four workers: `python -m tests.bench.lakeworkers ROWS`.

Workers have one core each and share those of this machine, so seconds say nothing about scaling. The CPU seconds of all
processes together do: if they stay the same, more workers do the same work, and none only coordinate. Rows are made by
Spark, so Kafka and parsing are left out, as in `tests.fixtures.lake.growing_cut`. Prints one line of JSON per cluster.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.machine import Machine
from sinks.warehouse.distributed.spark_delta import SparkDelta
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session
from tests.fixtures.lake.growing_cut import cpu_s, cuts, one_cut
from tests.fixtures.servers.spark_cluster import SparkCluster, running_cluster

_WARM: Final = 4


def main(rows: int) -> None:
    """Make the same cuts on each cluster: some to warm up, one as large as they, and one ten times as large."""
    for workers in (1, 2, 4):
        with tempfile.TemporaryDirectory() as folder, running_cluster(Path(folder), workers=workers) as cluster:
            small, large = _costs(cluster, Path(folder), rows)
            print(json.dumps({"workers": workers, "small": small, "large": large}), flush=True)


def _costs(cluster: SparkCluster, folder: Path, rows: int) -> list[dict[str, float]]:
    options = SparkOptions(master=cluster.url, memory="1g", options=cluster.settings, scratch=folder / "scratch")
    spark = open_session(options, machine=Machine.here(), progress=NoProgress())
    found: list[dict[str, float]] = []
    try:
        lake, bases = SparkDelta(spark, folder / "lake"), dict[str, int]()
        for cut, span in enumerate(cuts(rows, _WARM), start=1):
            before, executors_before, began_s = cpu_s(os.getpid()), _executors(cluster), time.monotonic()
            one_cut(spark, folder / "lake", lake, cut, bases, span, views=False)
            # The workers are children of this process.
            whole, executors = cpu_s(os.getpid()) - before, _executors(cluster) - executors_before
            cost = {"driver": whole - executors, "executors": executors, "us_per_row": whole * 1e6 / span[1]}
            found.append({"rows": span[1], "seconds": time.monotonic() - began_s, **cost})
    finally:
        close_session(spark)
    return [{name: round(value, 2) for name, value in one.items()} for one in found[-2:]]


def _executors(cluster: SparkCluster) -> float:
    """Return the CPU seconds of all workers, their executors and the Python of these."""
    return sum(cpu_s(worker.pid) for worker in cluster.workers)


if __name__ == "__main__":
    main(int(sys.argv[1]))
