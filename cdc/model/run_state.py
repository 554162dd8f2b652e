"""The states of capture and sinks. Their names are part of the interface: status, metrics, logs, exit codes."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What capture or a sink is doing, or why it stopped. Only sinks can be STALE."""

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
        """Whether the process stops until an operator acts."""
        return self in {State.GAP, State.DIVERGED, State.FENCED, State.MISCONFIGURED, State.STALE}
