"""The states a pipeline can be in. The names are part of the interface: status, metrics, logs, exit codes."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What capture or a sink is doing, or why it is not. STALE is of sinks alone."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    CATCHING_UP = "CATCHING_UP"
    WAITING = "WAITING"
    GAP = "GAP"
    DIVERGED = "DIVERGED"
    FENCED = "FENCED"
    MISCONFIGURED = "MISCONFIGURED"
    STALE = "STALE"
    STOPPED = "STOPPED"

    @property
    def needs_operator(self) -> bool:
        """Whether nothing goes on until a person acts."""
        return self in {State.GAP, State.DIVERGED, State.FENCED, State.MISCONFIGURED, State.STALE}
