"""The sinks of `cdc run --with-sinks` in capture's /status and /metrics, and optionally in its /readyz."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from cdc.model.run_state import State
from cdc.model.sink_report import STUCK, UNKNOWN
from cdc.telemetry.exposition import Declarations, Rendered, Reported
from cdc.telemetry.readiness import follows_log

SHOWN_STATES: Final = (*(state.value for state in State), STUCK, UNKNOWN)


class View(Protocol):
    """See `cdc.run.supervisor.ChildView`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    def document(self) -> dict[str, Any]: ...  # noqa: D102


class SupervisedMetrics(Declarations):
    """Metrics of the supervised sinks, taken from their reports when /metrics is requested."""

    def __init__(self, pipeline: str = "") -> None:
        """`pipeline` is a label of every sample."""
        super().__init__({"pipeline": pipeline})
        self.state = self._gauge(
            "cdc_supervised_sink_state",
            "1 for the current state of a sink of `cdc run --with-sinks`, 0 for the others",
            "sink",
            "state",
        )
        self.ready = self._gauge("cdc_supervised_sink_ready", "1 while the sink follows the log, else 0", "sink")
        self.restarts = self._gauge("cdc_supervised_sink_restarts", "Restarts of the sink's process", "sink")
        self.lag_records = self._gauge(
            "cdc_supervised_sink_lag_records", "Offsets that the sink is behind; NaN: not reported", "sink"
        )
        self.lag_seconds = self._gauge(
            "cdc_supervised_sink_lag_seconds",
            "Age of the oldest record that the sink has not applied; NaN: not reported",
            "sink",
        )
        self.report_age_seconds = self._gauge(
            "cdc_supervised_sink_report_age_seconds", "Time since the sink's process last reported; NaN: never", "sink"
        )

    def update(self, views: Sequence[View]) -> None:
        """Set all metrics from the current reports."""
        for view in views:
            document: Mapping[str, Any] = view.document()
            for state in SHOWN_STATES:
                self.state.labels(view.name, state).set(float(view.state == state))
            self.ready.labels(view.name).set(float(follows_log(view.state)))
            self.restarts.labels(view.name).set(document["restarts"])
            self.lag_records.labels(view.name).set(_number(document["lag_records"]))
            self.lag_seconds.labels(view.name).set(_number(document["lag_seconds"]))
            self.report_age_seconds.labels(view.name).set(_number(document["report_age_seconds"]))


class WithSinks:
    """Capture's own report, extended by its sinks; implements `Reported` and `Rendered`. Thread-safe."""

    def __init__(
        self,
        capture: Reported,
        metrics: Rendered,
        views: Callable[[], Sequence[View]],
        *,
        pipeline: str,
        ready_needs_sinks: bool,
    ) -> None:
        self._capture = capture
        self._metrics = metrics
        self._views = views
        self._ready_needs_sinks = ready_needs_sinks
        self._own = SupervisedMetrics(pipeline)

    @property
    def state(self) -> str:
        """The state of capture, and of every sink because of which /readyz is not 200."""
        named = [f"{view.name} {view.state}" for view in self._views() if not follows_log(view.state)]
        return ", sink ".join([str(self._capture.state), *(named if self._ready_needs_sinks else [])])

    @property
    def ready(self) -> bool:
        """Whether capture is ready, and with `ready_needs_sinks` every sink too."""
        return self._capture.ready and (
            not self._ready_needs_sinks or all(follows_log(view.state) for view in self._views())
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the document of /status."""
        return {**self._capture.snapshot(), "sinks": {view.name: view.document() for view in self._views()}}

    def render(self) -> bytes:
        """Return the page of /metrics."""
        self._own.update(self._views())
        return self._metrics.render() + self._own.render()


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
