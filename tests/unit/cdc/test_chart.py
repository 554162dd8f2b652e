"""The Helm chart, by its last rendering: manifests that Kubernetes accepts, with what a process of ours needs.

`make chart` renders it, and tests what the chart refuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from cdc import __version__
from cdc.cli.probe_command import probing_of
from cdc.config.load import parse
from cdc.config.settings import Warehouse
from cdc.run.app import SINK_STOP_DEADLINE_S, STOP_DEADLINE_S
from cdc.telemetry.alert_rule import CAPTURE_JOB, SINKS_JOB
from tests.fixtures.servers.image_build import settings
from tests.tidy.tree import ROOT, loaded

FOREIGN: Final = (
    "ServiceMonitor",
    "PrometheusRule",
)  # of the operator of Prometheus; Kubernetes has no schema for them


CHART: Final = loaded(ROOT / "docker" / "render_chart.py")
NAMES: Final = [file.name.partition(".")[0] for file in CHART.values_files()]


def manifests(name: str, kind: str = "") -> list[dict[str, Any]]:
    text = (CHART.GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")
    return [one for one in yaml.safe_load_all(text) if kind in ("", one["kind"])]


def containers(name: str) -> dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Return component -> (spec of the Deployment, of the pod, of its container)."""
    found = {}
    for deployment in manifests(name, "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        found[deployment["metadata"]["labels"]["app.kubernetes.io/component"]] = deployment["spec"], pod, container
    return found


def secret_names(container: dict[str, Any]) -> set[str]:
    return {one["name"] for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})}


@pytest.mark.parametrize("values", CHART.values_files(), ids=NAMES)
def test_rendering_is_of_this_chart(values: Path) -> None:
    """Run ``make chart`` when this fails; it needs Helm."""
    text = CHART.rendering(values).read_text(encoding="utf-8")

    assert text.partition("\n")[0] + "\n" == CHART.notice(values)


@pytest.mark.parametrize("name", NAMES)
def test_kubernetes_accepts_every_manifest(name: str) -> None:
    found = manifests(name)

    assert len(found) >= 4
    for manifest in found:
        if manifest["kind"] not in FOREIGN:
            kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    assert [one["kind"] for one in manifests("most") if one["kind"] in FOREIGN].count("ServiceMonitor") == 4


def test_misspelt_field_of_a_manifest_is_found() -> None:
    (deployment,) = manifests("least", "Deployment")
    deployment["spec"]["replica"] = deployment["spec"].pop("replicas")

    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_every_process_of_the_configuration_runs_as_the_image_allows(name: str) -> None:
    (config_map,) = manifests(name, "ConfigMap")
    config = parse(config_map["data"]["cdc.toml"], {})
    processes = containers(name)

    assert set(processes) == {"capture", *(f"sink-{sink.replace('_', '-')}" for sink in config.sinks)}
    for spec, pod, container in processes.values():
        probing = probing_of(container["args"])
        assert probing is not None
        sink = config.sinks[probing.sink] if probing.sink is not None else None
        lake = isinstance(sink, Warehouse)
        image = container["image"].rpartition("/")[2]
        assert image == f"tailrace:{__version__}{'-full' if lake else ''}"
        user = settings("full" if lake else "capture")["USER"].split(":")
        security = pod["securityContext"]
        assert [str(security["runAsUser"]), str(security["runAsGroup"])] == user
        assert security["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["automountServiceAccountToken"] is False
        written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert written == {"/tmp", *(settings("full")["VOLUME"].split() if lake else [])}
        assert pod["terminationGracePeriodSeconds"] > (SINK_STOP_DEADLINE_S if sink else STOP_DEADLINE_S)
        # Two processes of a lake would fence each other, also during a rollout.
        assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate") or not lake


@pytest.mark.parametrize("name", NAMES)
def test_probes_ask_where_the_process_listens(name: str) -> None:
    (config_map,) = manifests(name, "ConfigMap")
    config = parse(config_map["data"]["cdc.toml"], {})

    for _, _, container in containers(name).values():
        probing = probing_of(container["args"])
        assert probing is not None
        environ = {one["name"]: one.get("value", "") for one in container["env"]}
        listen = environ["TAILRACE_HTTP_LISTEN"] if probing.sink is None else config.sinks[probing.sink].listen
        (port,) = container["ports"]
        assert str(port["containerPort"]) == listen.rpartition(":")[2]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[kind]["httpGet"]
            assert asked["port"] == port["name"]
            assert asked["scheme"] == ("HTTPS" if config.http.tls_certificate else "HTTP")
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez"


def test_standby_and_rollout_do_not_wait_for_a_process_that_waits_for_the_slot() -> None:
    """A process that waits for the slot is alive, but not ready: with /readyz no rollout would ever end."""
    spec, _, container = containers("most")["capture"]

    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert container["readinessProbe"]["httpGet"]["path"] == "/livez"
    for budget in manifests("most", "PodDisruptionBudget"):
        assert budget["spec"]["maxUnavailable"] == 1


def test_secrets_are_references_and_reach_only_those_that_need_them() -> None:
    processes = containers("most")

    assert "password" not in manifests("most", "ConfigMap")[0]["data"]["cdc.toml"].lower()
    assert manifests("most", "Secret") == []
    shared = "TAILRACE_KAFKA_OPTION_SASL_PASSWORD"
    assert {component: secret_names(container) for component, (_, _, container) in processes.items()} == {
        "capture": {"TAILRACE_SOURCE_PASSWORD", shared},
        "sink-find": {"TAILRACE_SINK_FIND_OPTION_PASSWORD", shared},
        "sink-by-key": {shared},
        "sink-lake": {"TAILRACE_SINK_LAKE_STORAGE_AWS_SECRET_ACCESS_KEY", shared},
    }


def test_monitors_give_targets_the_names_that_the_alerts_expect() -> None:
    found = {}
    services = {one["metadata"]["name"]: one for one in manifests("most", "Service")}
    for monitor in manifests("most", "ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        service = services[monitor["metadata"]["name"]]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        given = {one["targetLabel"]: one["replacement"] for one in endpoint["relabelings"]}
        found[given.get("sink", "")] = given["job"]
        assert given["pipeline"] == "shop"

    assert found == {"": CAPTURE_JOB, **dict.fromkeys(("find", "by_key", "lake"), SINKS_JOB)}


def test_chart_has_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART.CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert chart["version"] == chart["appVersion"] == __version__
    assert (CHART.CHART / "alerts.yaml").resolve() == CHART.ALERTS
