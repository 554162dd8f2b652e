"""Runs one Apache Kafka broker that is its own controller (KRaft), from the pinned jars of ``kafka.lock``."""

from __future__ import annotations

import base64
import shutil
import signal
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import copy_file, write_file
from cdc.artifacts.download_progress import Progress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.java import find_java
from cdc.errors import LocalError, LocalStopped
from cdc.local.java_server import JavaServer
from cdc.local.kafka_config import LOG4J, NODE_ID, render_meta, render_properties
from cdc.local.kafka_fence import (
    CLEAN_END_FILE,
    FENCING_LOG4J,
    METADATA_FOLDER,
    is_fenced,
    render_fencing_properties,
)
from cdc.local.kafka_probe import broker_answers
from cdc.local.ports import LOOPBACK
from cdc.local.process import Launch
from cdc.local.process_identity import command_line
from cdc.local.server_logs import read_lines

_FENCING: Final = "fencing.properties"
_HEAP: Final = "512m"
_HEAP_FAST: Final = "256m"
# A JVM start and 0.1 s, and longer on a busy machine.
_FENCE_S: Final = 60.0
_FORMAT_S: Final = 60.0


class Kafka(JavaServer):
    """One broker with its data in `home`."""

    name = "kafka"
    _main_artifact = "kafka_2.13"
    _other_ports = ("controller",)
    _ready_s = 180.0  # recovery after a kill reads every segment that was not flushed
    _stop_archiving_s = 120.0

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def address(self) -> str:
        """See `LocalServer`."""
        return self.bootstrap

    def prepare(self, progress: Progress) -> None:
        """See `LocalServer`."""
        self._machine.folder(self.home)
        self._java = find_java(self._machine, progress)
        label = f"Apache Kafka {self._process.version}"
        self._jars = sorted(fetch(self._artifacts, machine=self._machine, progress=progress, label=label))
        if not (self._data / "meta.properties").exists():
            progress.step("formatting Kafka's storage")
            self._format()

    def start(self) -> bool:
        """See `LocalServer`."""
        running = self._process.running
        if running is not None and _FENCING in command_line(running.pid):
            self._process.kill()  # an earlier command was ended during `_recover`
        return super().start()

    def _answers(self) -> bool:
        # An open port is not enough: topics can be created only on an unfenced broker.
        return broker_answers(LOOPBACK, self.port)

    def _exports(self) -> Mapping[str, str]:
        return {"TAILRACE_KAFKA_BOOTSTRAP": self.bootstrap}

    def _crashed(self) -> bool:
        folders = (self._data / METADATA_FOLDER, self._data / CLEAN_END_FILE)
        return [folder.exists() for folder in folders] == [True, False]

    def _recover(self, archive: Path | None) -> None:
        """After a crash, run the controller alone until it has fenced the broker; `cdc.local.kafka_fence` says why."""
        if not self._crashed():
            return
        conf, log4j = self.home / _FENCING, self.home / "fencing-log4j2.yaml"
        write_file(log4j, FENCING_LOG4J)
        start = self.log.stat().st_size if self.log.exists() else 0

        def command(ports: Mapping[str, int]) -> Launch:
            text = render_fencing_properties(node_id=NODE_ID, data=str(self._data), controller_port=ports["controller"])
            write_file(conf, text)
            options = self._runtime().archive_options(archive, conf) if archive else []
            return self._jvm(options, self._main(conf, log4j))

        try:
            self._launch(command, probe=lambda: is_fenced(read_lines(self.log, start)[0]), ready_s=_FENCE_S)
        except LocalStopped:
            raise
        except LocalError:
            pass  # the reason is in the log; the broker then waits for the end of its old session
        self._process.stop([(signal.SIGTERM, self._stop_s)])

    def _configure(self, ports: Mapping[str, int]) -> Sequence[str]:
        properties, log4j = self.home / "server.properties", self.home / "log4j2.yaml"
        text = render_properties(
            data=str(self._data),
            port=ports["kafka"],
            controller_port=ports["controller"],
            settings=self.options.settings,
        )
        write_file(properties, text)
        write_file(log4j, LOG4J)
        return self._main(properties, log4j)

    def _main(self, properties: Path, log4j: Path) -> Sequence[str]:
        return [f"-Dlog4j2.configurationFile={log4j}", "-cp", self._class_path, "kafka.Kafka", str(properties)]

    @property
    def _heap_options(self) -> Sequence[str]:
        return [f"-Xmx{self.options.heap or (_HEAP_FAST if self.options.fast_start else _HEAP)}"]

    def _format(self) -> None:
        """Write the broker's identity and its first metadata record, like Kafka's storage tool.

        The tool costs a JVM start (0.6-1.2 s), and its record is the same for every cluster of a version. So it runs
        once per machine, and the cache keeps the record. The folder is renamed last, so it is complete or absent.
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
    """Return a random id in the form of Kafka's `Uuid`: 16 bytes, URL-safe base64, without a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
