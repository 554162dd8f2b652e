"""Runs one Apicurio Registry, a schema registry with Confluent's API, from the archive of ``registry.lock``.

Schemas and their ids are in an H2 database in its folder. Records in Kafka refer to the ids, so they survive a stop.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import locked
from cdc.artifacts.download_progress import Progress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.java import Java, find_java
from cdc.artifacts.lock_file import version_of
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError
from cdc.local import http_probe
from cdc.local.java_server import locked_artifacts
from cdc.local.local_server import LocalServer, ServerOptions
from cdc.local.ports import LOOPBACK
from cdc.local.process import Launch

_JAVA: Final = 21
_HEAP: Final = "256m"
_API: Final = "/apis/ccompat/v7"
_UNPACK_DEADLINE_S: Final = 300.0


class Registry(LocalServer):
    """One registry with its data in `home`."""

    name = "registry"
    _other_ports = ("management",)
    _ready_s = 180.0  # a JVM with some 400 jars: 3.5 s on two idle cores, and longer on a busy machine

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        self._artifacts = locked_artifacts("registry.lock")
        version = version_of(self._artifacts, "apicurio-registry-app")
        super().__init__(home, machine, options, version=version)
        # Another checksum of the archive is another folder.
        self._program = machine.cache / "registry" / f"{version}-{self._artifacts[0].sha256[:16]}"
        self._java: Java | None = None

    @property
    def url(self) -> str:
        """The value for `registry.url`."""
        return f"http://{LOOPBACK}:{self.port}{_API}"

    @property
    def address(self) -> str:
        """See `LocalServer`."""
        return self.url

    def prepare(self, progress: Progress) -> None:
        """See `LocalServer`."""
        self._machine.folder(self.home)
        self._java = find_java(self._machine, progress, oldest=_JAVA)
        if not self._program.exists():
            label = f"Apicurio Registry {self._process.version}"
            (archive,) = fetch(self._artifacts, machine=self._machine, progress=progress, label=label)
            lock = self._machine.cache / "locks" / "registry"
            with locked(lock, machine=self._machine, deadline_s=_UNPACK_DEADLINE_S):
                if not self._program.exists():
                    progress.step("unpacking the registry")
                    self._unpack(archive)
        self._machine.private_folder(self.home / "data")

    def _start(self) -> None:
        self._launch(self._command)

    def _answers(self) -> bool:
        return http_probe.get(self.port, f"{_API}/subjects") is not None

    def _exports(self) -> Mapping[str, str]:
        return {"TAILRACE_REGISTRY_URL": self.url}

    def _command(self, ports: Mapping[str, int]) -> Launch:
        if self._java is None:
            raise self._unprepared()
        run = self._machine.private_folder(self._process.run)
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(ports["registry"]),
            # It cannot be turned off in a built program, and by default it listens on every address.
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": str(ports["management"]),
            # By default H2 writes a commit to its file up to 500 ms later: a kill would revoke ids that are in use.
            "apicurio.datasource.url": f"jdbc:h2:file:{self.home / 'data' / 'registry'};WRITE_DELAY=0",
            "apicurio.datasource.jdbc.initial-size": "2",
            "apicurio.datasource.jdbc.min-size": "2",
            **self.options.settings,
        }
        argv = [str(self._java.program), f"-Xmx{self.options.heap or _HEAP}", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
        argv += ["-XX:TieredStopAtLevel=1"] if self.options.fast_start else []
        argv += [f"-Djava.io.tmpdir={run}", *(f"-D{name}={value}" for name, value in settings.items())]
        return Launch([*argv, "-jar", str(self._program / "quarkus-run.jar")])

    def _unpack(self, archive: Path) -> None:
        """Unpack the program; its folder is complete or absent."""
        part = self._program.with_name(f"{self._program.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        self._machine.folder(part)
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(part, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise LocalError(
                f"{archive} cannot be unpacked: {error}", hint="check the free space of the disk"
            ) from error
        for path in part.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        part.rename(self._program)
