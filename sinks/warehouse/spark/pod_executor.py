"""Becomes Spark's executor in a pod of Kubernetes, as the entry point of Spark's own images does.

    python -m sinks.warehouse.spark.pod_executor

With it, the image of the driver is the image of the executors, so both have the same Python and packages. Spark
describes the executor in the environment of the pod:
https://github.com/apache/spark/blob/v4.1.0/resource-managers/kubernetes/docker/src/main/dockerfiles/spark/entrypoint.sh
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.artifacts.machine import Machine
from sinks.warehouse.spark.spark_session import java_program

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAIN: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def executor_command(environ: Mapping[str, str], java: Path, spark_home: Path) -> list[str]:
    """Return the command line of the executor that the environment describes."""
    numbered = {int(found[1]): value for name, value in environ.items() if (found := _OPTION.fullmatch(name))}
    memory, class_path = environ["SPARK_EXECUTOR_MEMORY"], environ.get("SPARK_CLASSPATH", "")
    return [
        str(java),
        *(numbered[number] for number in sorted(numbered)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        os.pathsep.join(filter(None, [class_path, str(spark_home / "jars" / "*")])),
        _MAIN,
        *(word for name, variable in _ARGUMENTS.items() for word in (name, environ[variable])),
    ]


def main() -> None:
    """Replace this process. The first argument, `executor`, is added by Spark and means this program."""
    import pyspark

    home, java = Path(pyspark.__file__).parent, java_program(Machine.here()).program
    command = executor_command(os.environ, java, home)
    os.execve(java, command, {**os.environ, "SPARK_HOME": str(home)})  # noqa: S606 - no shell is needed


if __name__ == "__main__":
    main()
