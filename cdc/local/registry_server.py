"""One Apicurio Registry, a schema registry with Confluent's API, from the pinned archive of ``registry.lock``.

Schemas and their ids lie in an H2 database in its folder: records in Kafka name them, so they outlive a stop.
"""

from __future__ import annotations

import http.client
import shutil
import signal
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.artifacts.cache_folder import locked
from cdc.artifacts.fetch import fetch
from cdc.artifacts.java import Java, find_java
from cdc.artifacts.lock_file import parse_lock, version_of
from cdc.errors import LocalError
from cdc.local.local_server import Description, ServerOptions, StopMode
from cdc.local.ports import LOOPBACK
from cdc.local.process import Launch, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.artifacts.download_progress import Progress
    from cdc.artifacts.machine import Machine

_LOCK_FILE: Final = "registry.lock"
_JAVA: Final = 21
_HEAP: Final = "256m"
_API: Final = "/apis/ccompat/v7"
_PROBE_S: Final = 5.0
# A JVM with some 400 jars: 3.5 s on two idle cores; a busy machine takes its time.
_READY_S: Final = 180.0
_STOP_S: Final = 30.0
_UNPACK_DEADLINE_S: Final = 300.0


class Registry:
    """One registry with its data under `home`."""

    name = "registry"

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        self.home = home
        self.options = options
        self._machine = machine
        self._artifacts = parse_lock((Path(__file__).parent / _LOCK_FILE).read_text(), name=_LOCK_FILE)
        version = version_of(self._artifacts, "apicurio-registry-app")
        self._process = ServerProcess(home, machine, name=self.name, version=version)
        # Of the archive that was checked: another checksum is another folder.
        self._program = machine.cache / "registry" / f"{version}-{self._artifacts[0].sha256[:16]}"
        self._java: Java | None = None

    @property
    def port(self) -> int:
        """The port of clients; 0 before the first start."""
        return self._process.ports.get("registry", 0)

    @property
    def url(self) -> str:
        """What `registry.url` takes."""
        return f"http://{LOOPBACK}:{self.port}{_API}"

    def prepare(self, progress: Progress) -> None:
        """See `Server`."""
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

    def start(self) -> bool:
        """See `Server`."""
        if self._process.running is not None:
            self._process.check_settings(self.options.settings, port=self.options.port)
            self._process.await_ready(self.ready, _READY_S)
            return False
        port = self.options.port
        self._process.launch(
            self._command,
            self.ready,
            roles=("registry", "management"),
            wanted={"registry": port} if port else {},
            settings=self.options.settings,
            ready_s=_READY_S,
        )
        return True

    def ready(self) -> bool:
        """See `Server`."""
        if not self.port or self._process.running is None:
            return False
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_PROBE_S)
        try:
            connection.request("GET", f"{_API}/subjects")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self, mode: StopMode = "fast") -> None:
        """See `Server`. It knows no end between orderly and SIGKILL, so `immediate` is a kill."""
        self._process.stop([(signal.SIGTERM, _STOP_S)] if mode == "fast" else ())

    def kill(self) -> None:
        """SIGKILL; it is gone on return, and `start` works."""
        self.stop("kill")

    def describe(self) -> Description:
        """See `Server`."""
        return self._process.describe(self.ready, address=self.url, exports={"TAILRACE_REGISTRY_URL": self.url})

    def _command(self, ports: Mapping[str, int]) -> Launch:
        if self._java is None:
            raise LocalError("the registry was not prepared", hint="call prepare first")
        run = self._machine.private_folder(self._process.run)
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(ports["registry"]),
            # It cannot be turned off in a built program; left alone it listens on every address.
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": str(ports["management"]),
            # By default H2 writes a commit to its file up to 500 ms later: a kill would take back ids that are in use.
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
        """The program's folder appears whole or not at all."""
        part = self._program.with_name(f"{self._program.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        self._machine.folder(part)
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(part, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise LocalError(f"{archive} cannot be unpacked: {error}", hint="is there room on the disk?") from error
        for path in part.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        part.rename(self._program)
