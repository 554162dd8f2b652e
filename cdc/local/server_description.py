"""Describes a local server for people and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# running: the server answers. starting: its process runs, but does not answer. stopped: it was stopped in order.
# died: the process ended by itself. absent: the server was never started here.
Condition = Literal["running", "starting", "stopped", "died", "absent"]


@dataclass(frozen=True, slots=True)
class Description:
    """The state of a server.

    Attributes:
        rss_bytes: resident memory of the process and its children.
        exports: environment variables that a program needs to reach the server.
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
