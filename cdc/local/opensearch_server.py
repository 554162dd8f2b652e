"""Runs one OpenSearch node from the pinned jars of ``opensearch.lock``, without the plugins of the distribution.

The jars come without the folders and descriptors of the distribution, so this module creates them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cdc.artifacts.cache_folder import make_tree, write_file
from cdc.artifacts.download_progress import Progress
from cdc.artifacts.fetch import fetch
from cdc.artifacts.java import find_java
from cdc.artifacts.machine import Machine
from cdc.local import http_probe
from cdc.local.java_server import JavaServer
from cdc.local.local_server import ServerOptions
from cdc.local.opensearch_config import LOG4J, descriptor, render_settings
from cdc.local.ports import LOOPBACK

_JAVA: Final = 21
_HEAP: Final = "512m"
_LIB: Final = "lib"
_MODULES: Final = "modules/"
_MAIN: Final = "org.opensearch.bootstrap.OpenSearch"


class OpenSearch(JavaServer):
    """One node with its data in `home`."""

    name = "opensearch"
    _main_artifact = "opensearch"
    _other_ports = ("transport",)
    _ready_s = 180.0  # 5 s on two idle cores; after a kill shards are recovered first, and a busy machine is slow
    _stop_archiving_s = 180.0

    def __init__(self, home: Path, machine: Machine, options: ServerOptions) -> None:
        super().__init__(home, machine, options)
        self._conf = home / "conf"
        # Another lock file is another folder.
        pinned = hashlib.sha256("".join(artifact.sha256 for artifact in self._artifacts).encode()).hexdigest()[:16]
        self._program = machine.cache / self.name / f"{self._process.version}-{pinned}"

    @property
    def url(self) -> str:
        """The value for `url` of a sink of kind `search`."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def address(self) -> str:
        """See `LocalServer`."""
        return self.url

    def prepare(self, progress: Progress) -> None:
        """See `LocalServer`."""
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

    def _answers(self) -> bool:
        # An open port is not enough: the node must have recovered its shards.
        try:
            health = json.loads(http_probe.get(self.port, "/_cluster/health") or b"{}")
        except ValueError:
            return False
        return health.get("status") in {"green", "yellow"}

    def _exports(self) -> Mapping[str, str]:
        return {"TAILRACE_SEARCH_URL": self.url}

    def _configure(self, ports: Mapping[str, int]) -> Sequence[str]:
        # The folder is created again at each start: the node owns it and writes an empty keystore into it.
        shutil.rmtree(self._conf, ignore_errors=True)
        self._machine.folder(self._conf)
        settings = render_settings(
            data=str(self._data), port=ports[self.name], transport_port=ports["transport"], own=self.options.settings
        )
        write_file(self._conf / "opensearch.yml", settings)
        write_file(self._conf / "log4j2.properties", LOG4J)
        self._machine.private_folder(self._conf)
        places = [f"-Dopensearch.path.home={self._program}", f"-Dopensearch.path.conf={self._conf}"]
        return [*places, "-cp", self._class_path, _MAIN]

    def _lay_out(self, part: Path, modules: Mapping[str, Sequence[Path]]) -> None:
        """Create the folders of a distribution that a node reads."""
        for empty in ("bin", "lib", "plugins"):
            (part / empty).mkdir()
        for module, jars in modules.items():
            folder = part / "modules" / module
            folder.mkdir(parents=True)
            (folder / "plugin-descriptor.properties").write_text(descriptor(module, self._process.version))
            for jar in jars:
                shutil.copyfile(jar, folder / jar.name)

    @property
    def _heap_options(self) -> Sequence[str]:
        heap = self.options.heap or _HEAP
        return [f"-Xms{heap}", f"-Xmx{heap}"]

    @property
    def _jvm_options(self) -> list[str]:
        return [
            *super()._jvm_options,
            "--enable-native-access=ALL-UNNAMED",
            # The packaged JRE cannot split Thai words, and every index builds a Thai analyzer: ICU can.
            "-Djava.locale.providers=SPI,CLDR",
            "-Dlog4j.shutdownHookEnabled=false",
            "-Dlog4j2.disable.jmx=true",
            # Do not load JNA: it would unpack native code, for filters and locks that a node on loopback does not need.
            "-Djna.nosys=true",
            "-Djna.nounpack=true",
            "-Djna.noclasspath=true",
        ]
