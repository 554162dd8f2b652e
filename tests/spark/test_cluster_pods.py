"""Kubernetes, as far as it can be tested without one: an API server takes the pods of executors and runs them.

The settings and the pod are those of the guide. Spark's driver creates and deletes the pods; each must be valid by
Kubernetes' schema, and becomes an executor on which our tasks run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from tests.fixtures.servers.kube_api import KubeApi, kube_api
from tests.fixtures.servers.spark_cluster import EXECUTOR_MEMORY, SHORT_LIVED

ROOT: Final = Path(__file__).parents[2]
GUIDE: Final = (ROOT / "docs" / "howto" / "cluster.md").read_text(encoding="utf-8")
PROGRAM: Final = """
import json, sys
from pathlib import Path
from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.machine import Machine
from sinks.warehouse.distributed.node_check import check_nodes
from sinks.warehouse.spark.executor_watch import executor_count
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session

given = json.loads(sys.argv[1])
options = SparkOptions(master=given["master"], memory="512m", options=given["spark"], scratch=Path(sys.argv[2]))
spark = open_session(options, machine=Machine.here(), progress=NoProgress())
check_nodes(spark)
print(json.dumps(executor_count(spark)), flush=True)
close_session(spark)
"""
HERE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.port": "0",
    "spark.driver.blockManager.port": "0",
    "spark.pyspark.python": sys.executable,
    "spark.executor.memory": EXECUTOR_MEMORY,
    "spark.executor.instances": "1",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    # The API of this test has no watches, as behind some proxies; Spark then asks again and again.
    "spark.kubernetes.executor.enableApiWatcher": "false",
    "spark.kubernetes.executor.apiPollingInterval": "1s",
}
"""What differs on this machine from the guide's cluster; a shorter list is a better test."""


def block(language: str, *, having: str) -> str:
    """Return the block of the guide in that language that has these words."""
    (found,) = [text for text in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL) if having in text]
    return str(found)


@pytest.mark.timeout(300)
def test_pods_of_the_guide_are_valid_and_become_executors_that_run_our_tasks(tmp_path: Path) -> None:
    template = yaml.safe_load(block("yaml", having="pod_executor"))
    (container,) = template["spec"]["containers"]
    assert container["command"][0] == "/opt/tailrace/bin/python", "of the image"
    container["command"][0] = sys.executable
    (tmp_path / "executor.yaml").write_text(json.dumps(template))
    settings: dict[str, Any] = tomllib.loads(block("toml", having="k8s://"))["sinks"]["lake"]["spark"]
    settings |= {"spark.kubernetes.executor.podTemplateFile": str(tmp_path / "executor.yaml"), **HERE}
    driver = settings["spark.kubernetes.driver.pod.name"]
    manifests = list(yaml.safe_load_all(block("yaml", having="kind: StatefulSet")))

    with kube_api(tmp_path, {"PYTHONPATH": str(ROOT)}) as api:
        api.objects["pods"][driver] = driver_pod(driver)
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                PROGRAM,
                json.dumps({"master": api.url, "spark": settings}),
                str(tmp_path / "scratch"),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr[-2000:]}\n{logs(api)}"
        assert json.loads(done.stdout.splitlines()[-1]) == 1
        assert api.invalid == []
        assert list(api.objects["pods"]) == [driver], "the driver deletes its pods"
    (role,) = [one for one in manifests if one["kind"] == "Role"]
    allowed = {(verb, kind) for rule in role["rules"] for verb in rule["verbs"] for kind in rule["resources"]}
    assert api.verbs <= allowed
    (pod,) = [thing for thing in api.created if thing["kind"] == "Pod"]
    assert pod["spec"]["containers"][0]["image"] == settings["spark.kubernetes.container.image"]
    assert pod["spec"]["securityContext"] == template["spec"]["securityContext"]
    assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == [driver]


def test_manifests_of_the_guide_are_valid_and_give_the_driver_its_name_and_address() -> None:
    manifests = {one["kind"]: one for one in yaml.safe_load_all(block("yaml", having="kind: StatefulSet"))}
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, "1.37", strict=True)
    settings = tomllib.loads(block("toml", having="k8s://"))["sinks"]["lake"]["spark"]
    service, driver = manifests["Service"], manifests["StatefulSet"]
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]

    assert settings["spark.kubernetes.driver.pod.name"] == f"{driver['metadata']['name']}-0"
    assert settings["spark.driver.host"] == f"{driver['metadata']['name']}-0.{name}.{namespace}.svc"
    assert settings["spark.kubernetes.namespace"] == namespace
    assert driver["spec"]["serviceName"] == name
    ports = {str(port["port"]) for port in service["spec"]["ports"]}
    assert ports == {settings["spark.driver.port"], settings["spark.driver.blockManager.port"]}
    (container,) = driver["spec"]["template"]["spec"]["containers"]
    assert settings["spark.kubernetes.container.image"] == container["image"]


def driver_pod(name: str) -> dict[str, Any]:
    """The pod that Spark takes for its own."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    meta = {"name": name, "namespace": "shop", "uid": "d0", "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": []}, "status": status}


def logs(api: KubeApi) -> str:
    """The ends of what the pods have printed."""
    return "\n".join(log.read_text(errors="replace")[-1000:] for log in api.folder.glob("*.log"))
