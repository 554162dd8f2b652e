"""One OpenSearch node from the pinned jars of ``opensearch.lock``: search alone, without the plugins of the bundle.

The jars come without the folders and descriptors of the distribution, so those are made here.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cdc.artifacts.cache_folder import make_tree, write_file
from cdc.artifacts.fetch import fetch
from cdc.artifacts.java import Java, find_java
from cdc.artifacts.lock_file import parse_lock, version_of
from cdc.errors import LocalError, LocalStopped
from cdc.local.class_archives import ClassArchives
from cdc.local.local_server import Description, ServerOptions, StopMode
from cdc.local.opensearch_config import LOG4J, descriptor, render_settings
from cdc.local.ports import LOOPBACK
from cdc.local.process import Launch, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cdc.artifacts.download_progress import Progress
    from cdc.artifacts.machine import Machine

_LOCK_FILE: Final = "opensearch.lock"
_JAVA: Final = 21
_HEAP: Final = "512m"
_PROBE_S: Final = 5.0
# 5 s on two idle cores; after a kill shards are recovered first, and a busy machine takes its time.
_READY_S: Final = 180.0
_STOP_S: Final = 30.0
# Writing the archive of classes at the first stop takes 8 s on two idle cores; a busy machine takes its time.
_STOP_ARCHIVING_S: Final = 180.0
_LIB: Final = "lib"
_MODULES: Final = "modules/"
_MAIN: Final = "org.opensearch.bootstrap.OpenSearch"


class OpenSearch:
    """One node with its data under `home`."""

    name = "opensearch"

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        self.home = home
        self.options = options
        self._machine = machine
        self._data = home / "data"
        self._conf = home / "conf"
        self._artifacts = parse_lock((Path(__file__).parent / _LOCK_FILE).read_text(), name=_LOCK_FILE)
        version = version_of(self._artifacts, "opensearch")
        self._process = ServerProcess(home, machine, name=self.name, version=version)
        self._archives = ClassArchives(machine, self.name)
        # Of these very jars: another lock is another folder.
        pinned = hashlib.sha256("".join(artifact.sha256 for artifact in self._artifacts).encode()).hexdigest()[:16]
        self._program = machine.cache / self.name / f"{version}-{pinned}"
        self._jars: list[Path] = []
        self._java: Java | None = None

    @property
    def port(self) -> int:
        """The port of clients; 0 before the first start."""
        return self._process.ports.get(self.name, 0)

    @property
    def url(self) -> str:
        """What `url` of a sink of kind `search` takes."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The node's pid while it lives."""
        running = self._process.running
        return running.pid if running else None

    def prepare(self, progress: Progress) -> None:
        """See `Server`."""
        self._machine.folder(self.home)
        self._java = find_java(self._machine, progress, oldest=_JAVA)
        label = f"OpenSearch {self._process.version}"
        files = fetch(self._artifacts, machine=self._machine, progress=progress, label=label)
        folders = [artifact.folder for artifact in self._artifacts]
        self._jars = sorted(file for file, folder in zip(files, folders, strict=True) if folder == _LIB)
        modules: dict[str, list[Path]] = {}
        for file, folder in zip(files, folders, strict=True):
            if folder.startswith(_MODULES):
                modules.setdefault(folder.removeprefix(_MODULES), []).append(file)
        make_tree(lambda part: self._lay_out(part, modules), self._program, machine=self._machine)
        self._machine.private_folder(self._data)

    def start(self) -> bool:
        """See `Server`."""
        if self._process.running is not None:
            self._process.check_settings(self.options.settings, port=self.options.port)
            self._process.await_ready(self.ready, _READY_S)
            return False
        archive = self._archives.find(self._archive_stem())
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
        """See `Server`. A node that listens is not enough: what it kept must be recovered."""
        if not self.port or self._process.running is None:
            return False
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_PROBE_S)
        try:
            connection.request("GET", "/_cluster/health")
            answer = connection.getresponse()
            return answer.status == http.client.OK and json.loads(answer.read()).get("status") in {"green", "yellow"}
        except (OSError, http.client.HTTPException, ValueError):
            return False
        finally:
            connection.close()

    @property
    def archiving(self) -> bool:
        """Whether an orderly end of what runs now leaves an archive that later starts are quicker by."""
        return self._wished_archive() is not None

    def stop(self, mode: StopMode = "fast") -> None:
        """See `Server`. It knows no end between orderly and SIGKILL, so `immediate` is a kill."""
        stem = self._wished_archive()
        deadline_s = _STOP_S if stem is None else _STOP_ARCHIVING_S
        self._process.stop([(signal.SIGTERM, deadline_s)] if mode == "fast" else ())
        self._wish_file.unlink(missing_ok=True)
        if stem is not None:
            self._archives.keep(stem, self._process.run / stem)

    def kill(self) -> None:
        """SIGKILL the node; it is gone on return, and `start` works."""
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
        return self._process.describe(self.ready, address=self.url, exports={"TAILRACE_SEARCH_URL": self.url})

    def _launch(self, archive: Path | None) -> None:
        port = self.options.port
        self._process.launch(
            lambda ports: self._command(ports, archive),
            self.ready,
            roles=(self.name, "transport"),
            wanted={self.name: port} if port else {},
            settings=self.options.settings,
            ready_s=_READY_S,
        )

    def _command(self, ports: Mapping[str, int], archive: Path | None) -> Launch:
        self._configure(ports)
        stem = self._archive_stem()
        if archive is None:
            self._wish_file.write_text(stem)
        run = self._machine.private_folder(self._process.run)
        argv = [str(self._runtime().program), f"-Xms{self._heap}", f"-Xmx{self._heap}", *self._jvm_options]
        argv += self._runtime().archive_options(archive, run / stem)
        argv += [f"-Djava.io.tmpdir={run}", f"-Dopensearch.path.home={self._program}"]
        return Launch([*argv, f"-Dopensearch.path.conf={self._conf}", "-cp", self._class_path, _MAIN])

    def _configure(self, ports: Mapping[str, int]) -> None:
        """Make the folder of its configuration anew: the node owns it, and writes an empty keystore into it."""
        shutil.rmtree(self._conf, ignore_errors=True)
        self._machine.folder(self._conf)
        settings = render_settings(
            data=str(self._data), port=ports[self.name], transport_port=ports["transport"], own=self.options.settings
        )
        write_file(self._conf / "opensearch.yml", settings)
        write_file(self._conf / "log4j2.properties", LOG4J)
        self._machine.private_folder(self._conf)

    def _lay_out(self, part: Path, modules: Mapping[str, Sequence[Path]]) -> None:
        """The folders of a distribution, as far as a node looks for them."""
        for empty in ("bin", "lib", "plugins"):
            (part / empty).mkdir()
        for module, jars in modules.items():
            folder = part / "modules" / module
            folder.mkdir(parents=True)
            (folder / "plugin-descriptor.properties").write_text(descriptor(module, self._process.version))
            for jar in jars:
                shutil.copyfile(jar, folder / jar.name)

    def _runtime(self) -> Java:
        if self._java is None or not self._jars:
            raise LocalError("opensearch was not prepared", hint="call prepare first")
        return self._java

    @property
    def _heap(self) -> str:
        return self.options.heap or _HEAP

    @property
    def _jvm_options(self) -> list[str]:
        return [
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            *(["-XX:TieredStopAtLevel=1"] if self.options.fast_start else []),
            "--enable-native-access=ALL-UNNAMED",
            # The packaged JRE cannot split Thai words, and a Thai analyzer is built for every index: ICU can.
            "-Djava.locale.providers=SPI,CLDR",
            "-Dlog4j.shutdownHookEnabled=false",
            "-Dlog4j2.disable.jmx=true",
            # JNA stays unloaded: it would unpack native code, for filters and locks that a node on loopback can do
            # without.
            "-Djna.nosys=true",
            "-Djna.nounpack=true",
            "-Djna.noclasspath=true",
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
        """Names the archive that the running node writes at its end; another command may be the one to stop it."""
        return self.home / "archive.wish"

    def _wished_archive(self) -> str | None:
        if self._process.running is None or not self._wish_file.exists():
            return None
        return self._wish_file.read_text().strip()
