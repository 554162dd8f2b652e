"""Decides when a process is ready, that is, when /readyz returns 200; one rule for each kind of process. Pure."""

from __future__ import annotations

from cdc.model.sink_report import WORKING


def follows_log(state: str) -> bool:
    """Return whether capture, or a worker of a search or cache sink, is ready: changes flow."""
    return state in WORKING


def lake_is_ready(state: str, *, has_cut: bool) -> bool:
    """Return whether a lake is ready: it follows the log, and readers find a cut.

    The age of the cut does not count: without new transactions there is no new cut.
    """
    return follows_log(state) and has_cut
