"""The contract of a local server, and the values that go over it. One file of `cdc.local` for each server.

A server knows how to come into being on this machine and nothing of the stack it is part of. It keeps its data in
one folder, remembers its process in a state file there, and ends that process and its children and no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc.artifacts.download_progress import Progress

# fast: the server's own orderly end, clients are cut off; nothing has to be recovered.
# immediate: at once, with recovery at the next start, by the server's own means where it has one.
# kill: SIGKILL for it and its children, as a crash or the OOM killer does.
StopMode = Literal["fast", "immediate", "kill"]

# running: answers. starting: lives, does not answer. stopped: was ended by us. died: ended, but not by us.
# absent: was never started here.
Condition = Literal["running", "starting", "stopped", "died", "absent"]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server is to run. The same five for every server.

    Args:
        port: the port of its clients; None keeps the last one, or takes a free one.
        settings: the server's own settings by their own names, over ours.
        fast_start: for tests: ready sooner, slower under load. Nothing about safety changes.
        heap: memory of a Java server as the JVM writes it ("512m"); others ignore it. None: the server's default.
        version: the major of PostgreSQL ("16"); others ignore it. None: that of the data, for new data the default.
    """

    port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    fast_start: bool = False
    heap: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """A server as people and scripts see it.

    `exports` are environment variables a program needs to reach it; `rss_bytes` counts its children too.
    """

    name: str
    condition: Condition
    version: str
    address: str = ""
    pid: int | None = None
    ports: Mapping[str, int] = field(default_factory=dict)
    rss_bytes: int | None = None
    uptime_s: float | None = None
    data: str = ""
    log: str = ""
    exports: Mapping[str, str] = field(default_factory=dict)


class Server(Protocol):
    """One local server. Not thread-safe; a stack works on different servers in parallel.

    Every method may be called in any condition and says so if it cannot do its part: all raise LocalError.
    """

    @property
    def name(self) -> str:
        """What it is called on the command line and in the folder of its data."""

    def prepare(self, progress: Progress) -> None:
        """Have program and data folder ready: fetch, verify, initialise. Cheap when there is nothing to do."""

    def start(self) -> bool:
        """Start it if it does not run, and wait until it answers. Returns whether a process was started."""

    def ready(self) -> bool:
        """Whether it answers its own protocol now. Never raises."""

    def stop(self, mode: StopMode = "fast") -> None:
        """End it and its children and wait until they are gone. Nothing happens when it does not run."""

    def describe(self) -> Description:
        """Say what it is and how it does, without changing anything."""
