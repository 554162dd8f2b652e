"""The base class of Java servers that start from an archive of loaded classes, see `cdc.local.class_archives`."""

from __future__ import annotations

import hashlib
import os
import signal
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from cdc.artifacts.java import Java
from cdc.artifacts.lock_file import Artifact, parse_lock, version_of
from cdc.artifacts.machine import Machine
from cdc.errors import LocalError, LocalStopped
from cdc.local.class_archives import ClassArchives
from cdc.local.local_server import LocalServer, ServerOptions, StopMode
from cdc.local.process import Launch

_SHORT_PAUSES: Final = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")


class JavaServer(LocalServer):
    """A server that runs in a JVM, from the pinned jars of its lock file. `prepare` sets `_java` and `_jars`."""

    _main_artifact: ClassVar[str]
    # Writing the archive of classes at the first stop takes 2-8 s on two idle cores, and longer on a busy machine.
    _stop_archiving_s: ClassVar[float]

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        self._artifacts = locked_artifacts(f"{self.name}.lock")
        super().__init__(home, machine, options, version=version_of(self._artifacts, self._main_artifact))
        self._archives = ClassArchives(machine, self.name)
        self._jars: list[Path] = []
        self._java: Java | None = None

    @property
    def archiving(self) -> bool:
        """Whether an orderly stop of the running process writes an archive that speeds up later starts."""
        return self._pending_archive() is not None

    def stop(self, mode: StopMode = "fast") -> None:
        """See `LocalServer`. The server has no immediate shutdown, so `immediate` is a kill."""
        stem = self._pending_archive()
        deadline_s = self._stop_s if stem is None else self._stop_archiving_s
        self._process.stop([(signal.SIGTERM, deadline_s)] if mode == "fast" else ())
        self._archive_note.unlink(missing_ok=True)
        if stem is not None:
            self._archives.keep(stem, self._process.run / stem)

    def _start(self) -> None:
        archive = self._archives.find(self._archive_stem())
        self._recover(archive)
        try:
            self._launch(lambda ports: self._command(ports, archive))
        except LocalError as error:
            if archive is None or isinstance(error, LocalStopped):
                raise
            # The archive may be the cause. If it is not, the second start fails too and shows why.
            self._launch(lambda ports: self._command(ports, None))
            self._archives.drop(archive)

    def _recover(self, archive: Path | None) -> None:
        """Repair what a crash left, before the start."""

    @abstractmethod
    def _configure(self, ports: Mapping[str, int]) -> Sequence[str]:
        """Write the configuration. Returns the arguments of the JVM after its common options."""

    @property
    @abstractmethod
    def _heap_options(self) -> Sequence[str]:
        """Options of the JVM for the size of its heap."""

    @property
    def _jvm_options(self) -> list[str]:
        # With the first compiler alone, a server is ready sooner, but stays slower.
        return [
            *(_SHORT_PAUSES if self.options.short_pauses else ["-XX:+UseSerialGC"]),
            "-XX:-UsePerfData",
            *(["-XX:TieredStopAtLevel=1"] if self.options.fast_start else []),
        ]

    @property
    def _class_path(self) -> str:
        # An archive is valid for one exact class path, so it lists every jar, in order.
        return os.pathsep.join(str(jar) for jar in self._jars)

    def _runtime(self) -> Java:
        if self._java is None or not self._jars:
            raise self._unprepared()
        return self._java

    def _command(self, ports: Mapping[str, int], archive: Path | None) -> Launch:
        arguments = self._configure(ports)
        stem = self._archive_stem()
        if archive is None:
            self._archive_note.write_text(stem)
        return self._jvm(self._runtime().archive_options(archive, self._process.run / stem), arguments)

    def _jvm(self, options: Sequence[str], arguments: Sequence[str]) -> Launch:
        run = self._machine.private_folder(self._process.run)
        java = [str(self._runtime().program), *self._heap_options, *self._jvm_options, *options]
        return Launch([*java, f"-Djava.io.tmpdir={run}", *arguments])

    def _archive_stem(self) -> str:
        """Return the name of an archive, which is valid for one JVM, these jars in this order, and these options."""
        what = "\n".join([str(self._runtime()), *self._jvm_options, self._class_path])
        return f"{self._process.version.replace('.', '-')}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"

    @property
    def _archive_note(self) -> Path:
        """The file with the name of the archive that the process writes at its end: another command may stop it."""
        return self.home / "archive.name"

    def _pending_archive(self) -> str | None:
        if self._process.running is None or not self._archive_note.exists():
            return None
        return self._archive_note.read_text().strip()


def locked_artifacts(name: str) -> tuple[Artifact, ...]:
    """Read a lock file of this package."""
    return parse_lock((Path(__file__).parent / name).read_text(), name=name)
