"""One Apache Kafka broker that is its own controller (KRaft), from the pinned jars of ``kafka.lock``."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import signal
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.artifacts.cache_folder import copy_file, write_file
from cdc.artifacts.fetch import fetch
from cdc.artifacts.java import Java, find_java
from cdc.artifacts.lock_file import parse_lock, version_of
from cdc.errors import LocalError, LocalStopped
from cdc.local.class_archives import ClassArchives
from cdc.local.kafka_config import LOG4J, NODE_ID, render_meta, render_properties
from cdc.local.kafka_fence import (
    CLEAN_END_FILE,
    FENCING_LOG4J,
    METADATA_FOLDER,
    is_fenced,
    render_fencing_properties,
)
from cdc.local.kafka_probe import broker_answers
from cdc.local.local_server import Description, ServerOptions, StopMode
from cdc.local.ports import LOOPBACK
from cdc.local.process import Launch, ServerProcess
from cdc.local.process_identity import command_line
from cdc.local.server_logs import read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cdc.artifacts.download_progress import Progress
    from cdc.artifacts.machine import Machine

_LOCK_FILE: Final = "kafka.lock"
_FENCING: Final = "fencing.properties"
_HEAP: Final = "512m"
_HEAP_FAST: Final = "256m"
# Recovery after a kill reads every segment that was not flushed.
_READY_S: Final = 180.0
_STOP_S: Final = 30.0
# It takes a JVM's start and 0.1 s; a busy machine takes its time.
_FENCE_S: Final = 60.0
# Writing the archive of classes at the first stop takes 2-8 s on two idle cores; a busy machine takes its time.
_STOP_ARCHIVING_S: Final = 120.0
_FORMAT_S: Final = 60.0


class Kafka:
    """One broker with its data under `home`."""

    name = "kafka"

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        self.home = home
        self.options = options
        self._machine = machine
        self._data = home / "data"
        self._properties = home / "server.properties"
        self._artifacts = parse_lock((Path(__file__).parent / _LOCK_FILE).read_text(), name=_LOCK_FILE)
        version = version_of(self._artifacts, "kafka_2.13")
        self._process = ServerProcess(home, machine, name=self.name, version=version)
        self._archives = ClassArchives(machine, self.name)
        self._jars: list[Path] = []
        self._java: Java | None = None

    @property
    def port(self) -> int:
        """The port of clients; 0 before the first start."""
        return self._process.ports.get("kafka", 0)

    @property
    def bootstrap(self) -> str:
        """What a client's `bootstrap.servers` takes."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        """The broker's log file."""
        return self._process.log

    @property
    def data(self) -> Path:
        """The folder of the topics' segments."""
        return self._data

    @property
    def pid(self) -> int | None:
        """The broker's pid while it lives."""
        running = self._process.running
        return running.pid if running else None

    def prepare(self, progress: Progress) -> None:
        """See `Server`."""
        self._machine.folder(self.home)
        self._java = find_java(self._machine, progress)
        label = f"Apache Kafka {self._process.version}"
        self._jars = sorted(fetch(self._artifacts, machine=self._machine, progress=progress, label=label))
        if not (self._data / "meta.properties").exists():
            progress.step("formatting Kafka's storage")
            self._format()

    def start(self) -> bool:
        """See `Server`."""
        running = self._process.running
        if running is not None and _FENCING in command_line(running.pid):
            self._process.kill()  # a command was ended while it did what follows
            running = None
        if running is not None:
            self._process.check_settings(self.options.settings, port=self.options.port)
            self._process.await_ready(self.ready, _READY_S)
            return False
        archive = self._archives.find(self._archive_stem())
        if self._crashed():
            self._fence(archive)
        try:
            self._launch(archive)
        except LocalError as error:
            if archive is None or isinstance(error, LocalStopped):
                raise
            # It may be the archive's fault; if it is not, the second start fails too and says why.
            self._launch(None)
            self._archives.drop(archive)
        return True

    def ready(self) -> bool:
        """See `Server`. A broker that listens is not enough: topics can be made only once it is unfenced."""
        if not self.port or self._process.running is None:
            return False
        return broker_answers(LOOPBACK, self.port)

    @property
    def archiving(self) -> bool:
        """Whether an orderly end of what runs now leaves an archive that later starts are quicker by."""
        return self._wished_archive() is not None

    def stop(self, mode: StopMode = "fast") -> None:
        """See `Server`. Kafka knows no end between orderly and SIGKILL, so `immediate` is a kill."""
        stem = self._wished_archive()
        deadline_s = _STOP_S if stem is None else _STOP_ARCHIVING_S
        self._process.stop([(signal.SIGTERM, deadline_s)] if mode == "fast" else ())
        self._wish_file.unlink(missing_ok=True)
        if stem is not None:
            self._archives.keep(stem, self._process.run / stem)

    def kill(self) -> None:
        """SIGKILL the broker; it is gone on return, and `start` works."""
        self.stop("kill")

    def pause(self) -> None:
        """Make it hang: it keeps its connections and answers nothing, until `resume` or its end."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._process.signal(signal.SIGCONT)

    def restart(self, mode: StopMode = "fast", *, settings: Mapping[str, str] | None = None) -> None:
        """Stop and start on the same port; `settings` replace the extra ones from now on."""
        self.stop(mode)
        if settings is not None:
            self.options = replace(self.options, settings=settings)
        self.start()

    def describe(self) -> Description:
        """See `Server`."""
        exports = {"TAILRACE_KAFKA_BOOTSTRAP": self.bootstrap}
        return self._process.describe(self.ready, address=self.bootstrap, exports=exports)

    def _runtime(self) -> Java:
        if self._java is None or not self._jars:
            raise LocalError("kafka was not prepared", hint="call prepare first")
        return self._java

    def _crashed(self) -> bool:
        folders = (self._data / METADATA_FOLDER, self._data / CLEAN_END_FILE)
        return [folder.exists() for folder in folders] == [True, False]

    def _fence(self, archive: Path | None) -> None:
        """Run the controller alone until it has fenced the broker; see `cdc.local.kafka_fence` for why."""
        conf, log4j = self.home / _FENCING, self.home / "fencing-log4j2.yaml"
        write_file(log4j, FENCING_LOG4J)
        start = self.log.stat().st_size if self.log.exists() else 0

        def command(ports: Mapping[str, int]) -> Launch:
            text = render_fencing_properties(node_id=NODE_ID, data=str(self._data), controller_port=ports["controller"])
            write_file(conf, text)
            use = self._runtime().archive_options(archive, conf) if archive else []
            return self._jvm(conf, log4j, use)

        try:
            self._start_process(command, lambda: is_fenced(read_lines(self.log, start)[0]), _FENCE_S)
        except LocalStopped:
            raise
        except LocalError:
            pass  # what it says is in the log; the broker waits for the end of its session instead
        self._process.stop([(signal.SIGTERM, _STOP_S)])

    def _launch(self, archive: Path | None) -> None:
        self._start_process(lambda ports: self._command(ports, archive), self.ready, _READY_S)

    def _start_process(
        self, command: Callable[[Mapping[str, int]], Launch], probe: Callable[[], bool], ready_s: float
    ) -> None:
        port = self.options.port
        self._process.launch(
            command,
            probe,
            roles=("kafka", "controller"),
            wanted={"kafka": port} if port else {},
            settings=self.options.settings,
            ready_s=ready_s,
        )

    def _command(self, ports: Mapping[str, int], archive: Path | None) -> Launch:
        text = render_properties(
            data=str(self._data),
            port=ports["kafka"],
            controller_port=ports["controller"],
            settings=self.options.settings,
        )
        write_file(self._properties, text)
        log4j = self.home / "log4j2.yaml"
        write_file(log4j, LOG4J)
        stem = self._archive_stem()
        if archive is None:
            self._wish_file.write_text(stem)
        return self._jvm(self._properties, log4j, self._runtime().archive_options(archive, self._process.run / stem))

    def _jvm(self, properties: Path, log4j: Path, options: Sequence[str]) -> Launch:
        """A JVM that runs Kafka in the roles that `properties` says."""
        run = self._machine.private_folder(self._process.run)
        argv = [str(self._runtime().program), f"-Xmx{self._heap}", *self._jvm_options, *options]
        argv += [f"-Djava.io.tmpdir={run}", f"-Dlog4j2.configurationFile={log4j}", "-cp", self._class_path]
        return Launch([*argv, "kafka.Kafka", str(properties)])

    @property
    def _heap(self) -> str:
        return self.options.heap or (_HEAP_FAST if self.options.fast_start else _HEAP)

    @property
    def _jvm_options(self) -> list[str]:
        # The first compiler alone is ready sooner and slower for ever after.
        return [
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            *(["-XX:TieredStopAtLevel=1"] if self.options.fast_start else []),
        ]

    @property
    def _class_path(self) -> str:
        # An archive is good for one exact class path, so the jars are named one by one, in order.
        return os.pathsep.join(str(jar) for jar in self._jars)

    def _archive_stem(self) -> str:
        """An archive is good for one JVM, these jars in this order, and these options."""
        what = "\n".join([str(self._runtime()), *self._jvm_options, self._class_path])
        return f"{self._process.version.replace('.', '-')}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"

    @property
    def _wish_file(self) -> Path:
        """Names the archive that the running broker writes at its end; another command may be the one to stop it."""
        return self.home / "archive.wish"

    def _wished_archive(self) -> str | None:
        if self._process.running is None or not self._wish_file.exists():
            return None
        return self._wish_file.read_text().strip()

    def _format(self) -> None:
        """Give the broker an identity and its first metadata record, as Kafka's own tool does.

        The record is the same for every cluster of a version, and the tool is a JVM start (0.6-1.2 s); so it runs
        once on a machine and its record is kept. `meta.properties` comes last: with it the folder counts as formatted.
        """
        kept = self._machine.cache / "kafka" / self._process.version / "bootstrap.checkpoint"
        part = self.home / "data.part"
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(self._data, ignore_errors=True)
        self._machine.folder(part)
        if not kept.exists():
            self._machine.private_folder(part)
            self._run_format_tool(part)
            copy_file(part / kept.name, kept, machine=self._machine)
        else:
            shutil.copyfile(kept, part / kept.name)
            (part / "meta.properties").write_text(render_meta(_new_id(), _new_id()))
            for file in part.iterdir():
                self._machine.own(file)
            self._machine.private_folder(part)
        part.rename(self._data)

    def _run_format_tool(self, folder: Path) -> None:
        conf = self.home / "format.properties"
        write_file(conf, render_properties(data=str(folder), port=9092, controller_port=9093, settings={}))
        argv = [str(self._runtime().program), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        argv += ["-cp", self._class_path, "kafka.tools.StorageTool", "format", "-t", _new_id(), "-c", str(conf)]
        self._process.run_tool(Launch(argv), deadline_s=_FORMAT_S)
        conf.unlink()


def _new_id() -> str:
    """A random id as Kafka's `Uuid` writes it: 16 bytes, URL-safe base64; it must not begin with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
