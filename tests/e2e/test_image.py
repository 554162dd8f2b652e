"""The image, built by the steps of docker/Dockerfile in a root of Debian's packages, and run as an engine runs it.

`make image-check` builds both targets. CI builds `capture`; elsewhere the test is skipped unless the packages are in
the cache, because downloading them takes minutes.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cdc import __version__
from cdc.artifacts.machine import Machine
from cdc.errors import EXIT_OPERATOR
from tests.fixtures.faults.secured import free_ports
from tests.fixtures.servers import containers
from tests.fixtures.servers.freezing import freeze
from tests.fixtures.servers.image_build import ROOT, Builder, environment, inside, key, settings, why_not
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# TAILRACE_TEST_IMAGES: targets to build, for example "capture,full". Without it, `capture` is built from the cache.
WANTED: Final = [name for name in os.environ.get("TAILRACE_TEST_IMAGES", "").split(",") if name]
CONFIG: Final = "/etc/tailrace/cdc.toml"
PORTS: Final = free_ports(2)
LAKE: Final = """
from pathlib import Path
from cdc.artifacts.download_progress import NoProgress
from cdc.artifacts.machine import Machine
from cdc.errors import EXIT_OPERATOR
from sinks.warehouse.spark.spark_session import SparkOptions, close_session, open_session
machine = Machine.here()
spark = open_session(SparkOptions(scratch=machine.cache / "spark"), machine=machine, progress=NoProgress())
print(spark.range(7).count())
close_session(spark)
"""


class Image:
    """A built target. Its commands run as its user with a read-only root."""

    def __init__(self, target: str, root: Path, config: Path) -> None:
        self.target, self.root = target, root
        self._said = settings(target)
        self._env = environment(target) | {
            "TAILRACE_SOURCE_DSN": "postgresql://cdc@127.0.0.1:1/shop",
            "TAILRACE_SOURCE_PASSWORD": "x",
            "TAILRACE_KAFKA_BOOTSTRAP": "127.0.0.1:1",
            "TAILRACE_HTTP_LISTEN": f"0.0.0.0:{PORTS[0]}",
        }
        # An engine too gives a container its own file of hosts, with the name of the machine.
        self._mounts = {config: CONFIG, Path("/etc/hosts"): "/etc/hosts"}
        for place in self._mounts.values():
            (root / place.lstrip("/")).touch()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command with its configuration mounted."""
        words = inside(
            self.root, command, self._env, user=self._said["USER"], folder=self._said["WORKDIR"], mounts=self._mounts
        )
        return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
        """Yield the container of ENTRYPOINT with these arguments, and its process 1 as this machine numbers it."""
        command = [*json.loads(self._said["ENTRYPOINT"]), *arguments]
        words = inside(
            self.root, command, self._env, user=self._said["USER"], folder=self._said["WORKDIR"], mounts=self._mounts
        )
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as container:
            children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
            first = until(lambda: int((children.read_text().split() or ["0"])[0]), "process 1")
            try:
                yield container, first
            finally:
                # The end of process 1 ends all others. It outlives unshare: its change of user clears --kill-child.
                with suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)
                said, _ = container.communicate()
                print(said.decode(errors="replace")[-4000:])  # pytest shows it if the test fails

    def health(self, first: int) -> tuple[int, str]:
        """Run HEALTHCHECK in a container, as its user. Returns exit code and output."""
        command = json.loads(self._said["HEALTHCHECK"].partition("CMD ")[2])
        words = ["env", "-i", *(f"{name}={value}" for name, value in self._env.items()), *command]
        at = ["nsenter", "--target", str(first), "--mount", "--pid", "chroot", f"--userspec={self._said['USER']}"]
        step = f"cd {self._said['WORKDIR']} && exec {shlex.join(words)}"
        done = subprocess.run([*at, self.root, "sh", "-c", step], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


def _is_healthy(image: Image, first: int) -> bool:
    return image.health(first)[0] == 0


def targets() -> Sequence[str]:
    return WANTED or ["capture"]


@pytest.fixture(scope="module", params=targets())
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    reason = why_not()
    if not reason and not WANTED and not (Machine.here().cache / "images" / f"packages-{key('packages')}").exists():
        reason = "the packages of the image are not in the cache; `make image-check` downloads them"
    if reason:
        assert not WANTED, reason
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("image")
    config = folder / "cdc.toml"
    text = (ROOT / "docker" / "cdc.toml").read_text(encoding="utf-8")
    before, _, sinks = text.partition("[sinks.find]")  # both listen on one port, each in its own container
    own = sinks.replace("0.0.0.0:8087", f"0.0.0.0:{PORTS[1]}", 1)
    config.write_text(f"{before}[sinks.find]{own}", encoding="utf-8")
    config.chmod(0o644)
    return Image(request.param, Builder(folder).root(request.param), config)


@pytest.mark.timeout(1800)  # downloads of packages, and the wheel of Spark
def test_image_runs_the_command_as_its_user_with_a_read_only_root(image: Image) -> None:
    version = image.run("cdc", "--version")
    touched = image.run("touch", "/etc/tailrace/x")
    user = image.run("id", "-u")

    assert version.stdout == f"cdc, version {__version__}\n", version.stderr
    assert "Read-only file system" in touched.stderr
    assert user.stdout.strip() == image.run("stat", "-c", "%u", "/proc/1").stdout.strip() == "10001"


def test_image_has_no_package_installer_and_no_compiler(image: Image) -> None:
    for program in ("pip", "pip3", "gcc", "curl"):
        assert image.run("sh", "-c", f"command -v {program}").returncode != 0, program
    assert "No module named pip" in image.run("python", "-m", "pip", "--version").stderr


def test_image_has_compiled_code(image: Image) -> None:
    done = image.run("python", "-c", "from cdc.encode.plain_rows import COMPILED; print(COMPILED)")

    assert done.stdout == "True\n", done.stderr


def test_doctor_in_the_image_says_which_server_it_cannot_reach(image: Image) -> None:
    done = image.run("cdc", "doctor")

    assert done.returncode == EXIT_OPERATOR, done.stderr
    assert "cannot connect to PostgreSQL" in done.stdout
    assert "Kafka on 127.0.0.1:1 does not answer" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_health_check_fits_the_command_of_the_container(image: Image) -> None:
    """Without servers capture waits: it is alive. A sink is asked at its own address."""
    for arguments, port in (["run"], PORTS[0]), (["sink", "run", "find"], PORTS[1]):
        with image.started(*arguments) as (_, first):
            until(partial(_is_healthy, image, first), "it is healthy", within_s=240)
            code, said = image.health(first)
            freeze(first)
            frozen, _ = image.health(first)

        assert (code, said) == (0, f"http://127.0.0.1:{port}/livez: 200 ok\n")
        assert frozen == 1


def test_stop_signal_ends_capture_in_order(image: Image) -> None:
    with image.started("run") as (container, first):
        until(partial(_is_healthy, image, first), "it is healthy", within_s=240)
        os.kill(first, signal.SIGTERM)
        assert container.wait(timeout=120) == 0


def test_full_image_starts_spark_without_a_network_for_jars(image: Image) -> None:
    if image.target != "full":
        pytest.skip("only the target full has Spark")

    done = image.run("env", "MAVEN_REPO_URL=http://127.0.0.1:1", "python", "-c", LAKE)

    assert done.stdout == "7\n", done.stderr


@pytest.mark.timeout(1800)
def test_engine_builds_and_runs_the_image() -> None:
    reason = containers.why_not()
    if reason:
        pytest.skip(f"no container engine: {reason}")
    file, tag = str(ROOT / "docker" / "Dockerfile"), "tailrace:test"

    subprocess.run(["docker", "build", "--file", file, "--target", "capture", "--tag", tag, str(ROOT)], check=True)
    run = ["docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", tag, "--version"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)

    assert done.stdout == f"cdc, version {__version__}\n"
