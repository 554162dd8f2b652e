"""Reads the document of `cdc status` repeatedly, from the daemon and from both servers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from cdc.cli import sink_lines, status_text
from cdc.cli.objective_text import with_objectives
from cdc.clock import Clock
from cdc.config.settings import Config

if TYPE_CHECKING:
    from cdc.inspect.pipeline_state import PipelineObserver, PipelineView

_SECOND_READ_S: Final = 1.0
_SINKS_S: Final = 5.0


class StatusReader:
    """Reads the state repeatedly; the rate at which WAL is written is computed between two reads."""

    def __init__(self, config: Config, observer: PipelineObserver, clock: Clock) -> None:
        self._config = config
        self._observer = observer
        self._clock = clock
        self._before: PipelineView | None = None
        self._sinks: list[dict[str, Any]] | None = None
        self._sinks_s = 0.0

    def take(self, *, patient: bool = False) -> dict[str, Any]:
        """Return the document of one read.

        `patient`: read twice when the time until the slot is lost can only be computed from two reads.
        """
        view = self._observer.read()
        if patient and view.daemon is None and view.source is not None and view.source.slot.safe_wal_size is not None:
            self._before = view
            self._clock.wait(threading.Event(), _SECOND_READ_S)
            view = self._observer.read()
        moment = status_text.Moment(self._clock.wall_s(), _wal_rate(self._before, view))
        self._before = view
        found = status_text.document(self._config, view, moment)
        sinks = self._sinks_of(view)
        if sinks and "kafka" in view.missing:
            sinks = [{**one, "unconfirmed": True} for one in sinks]
        return {**found, "sinks": None if sinks is None else with_objectives(self._config, sinks, view.daemon)}

    def _sinks_of(self, view: PipelineView) -> list[dict[str, Any]] | None:
        """Like `sink_lines.sinks_of`, but skips Kafka while it does not answer, and asks it only every few seconds."""
        now_s = self._clock.monotonic_s()
        if view.daemon is None or "sinks" not in view.daemon:
            if "kafka" in view.missing:
                return None if self._config.sinks else []
            if self._sinks is not None and now_s - self._sinks_s < _SINKS_S:
                return self._sinks
        self._sinks, self._sinks_s = sink_lines.sinks_of(self._config, view.daemon), now_s
        return self._sinks


def _wal_rate(before: PipelineView | None, now: PipelineView) -> float | None:
    if before is None or before.source is None or now.source is None or now.source.at_s <= before.source.at_s:
        return None
    return max(0, now.source.current_lsn - before.source.current_lsn) / (now.source.at_s - before.source.at_s)
