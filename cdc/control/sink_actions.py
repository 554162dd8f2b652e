"""Pauses and resumes sinks that apply one key at a time."""

from __future__ import annotations

from cdc.clock import SystemClock
from cdc.config.settings import Config
from cdc.config.sink_kinds import applied_of
from cdc.control.requests import SinkPause, SinkResume
from cdc.control.terminal import Done
from sinks.state.pause import pause_sink, resume_sink


def pause(config: Config, request: SinkPause, wait_s: float) -> Done:
    """Pause a sink and wait for its workers.

    Raises SinkBehind when they do not stop in `wait_s`; the pause stays in effect. Raises UsageError for other sinks.
    """
    applied_of(config, request.sink)
    workers = pause_sink(config, request.sink, SystemClock(), timeout_s=wait_s)
    return Done("done", {"workers": workers})


def resume(config: Config, request: SinkResume) -> Done:
    """Resume a sink. Raises UsageError for an unknown sink or a warehouse."""
    applied_of(config, request.sink)
    return Done("done", {"was_paused": resume_sink(config, request.sink)})
