"""Renders and parses the state file of a server: its process, ports and start options. Pure.

A state file may be incomplete after a crash, or come from another version; parsing never raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from cdc.local.process_identity import Identity

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class State:
    """The last known state of a server.

    Attributes:
        process: the process that was started and not stopped. None: it was stopped or never started.
        ports: ports by role; kept after a stop, so that addresses stay the same.
        settings: settings that were passed at the start, in addition to ours.
        version: version of the server.
        started_s: start time in seconds since 1970, for display only.
    """

    process: Identity | None = None
    ports: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    started_s: float = 0.0


def render_state(state: State) -> str:
    """Return the text of the state file."""
    return json.dumps({"format": _FORMAT, **asdict(state)}, indent=1, sort_keys=True) + "\n"


def parse_state(text: str) -> State:
    """Parse a state file. Invalid content means never started, which is safe: the port is probed anyway."""
    try:
        raw = json.loads(text)
    except ValueError:
        return State()
    if not isinstance(raw, dict) or raw.get("format") != _FORMAT:
        return State()
    started = raw.get("started_s")
    return State(
        process=_identity(raw.get("process")),
        ports={k: v for k, v in _mapping(raw.get("ports")).items() if isinstance(v, int) and 0 < v < 65536},
        settings={k: v for k, v in _mapping(raw.get("settings")).items() if isinstance(v, str)},
        version=str(raw.get("version", "")),
        started_s=float(started) if isinstance(started, int | float) else 0.0,
    )


def _mapping(raw: object) -> dict[str, object]:
    return {str(k): v for k, v in raw.items()} if isinstance(raw, dict) else {}


def _identity(raw: object) -> Identity | None:
    fields = _mapping(raw)
    pid, started = fields.get("pid"), fields.get("started")
    if not isinstance(pid, int) or pid <= 1 or not isinstance(started, str):
        return None
    return Identity(pid, started)
