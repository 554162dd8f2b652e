"""The sinks that `cdc run --with-sinks` keeps, in its own /status, /metrics and, by option, /readyz."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from cdc.model.run_state import State
from cdc.model.sink_report import STUCK, UNKNOWN

SHOWN_STATES: Final = (*(state.value for state in State), STUCK, UNKNOWN)


class View(Protocol):
    """See `cdc.run.supervisor.SinkView`."""

    @property
    def sink(self) -> str: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def is_ready(self) -> bool: ...  # noqa: D102
    def document(self) -> dict[str, Any]: ...  # noqa: D102


class Reported(Protocol):
    """See `cdc.web.http_server.Reported`."""

    @property
    def state(self) -> object: ...  # noqa: D102
    @property
    def ready(self) -> bool: ...  # noqa: D102
    def snapshot(self) -> dict[str, Any]: ...  # noqa: D102


class Rendered(Protocol):
    """See `cdc.web.http_server.Rendered`."""

    def render(self) -> bytes: ...  # noqa: D102


class SupervisedMetrics:
    """What capture exports of the sinks it keeps, read from their reports when /metrics is asked for."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.state = Gauge(
            "cdc_supervised_sink_state",
            "1 for the state a sink of `cdc run --with-sinks` is in, 0 for the others",
            ["sink", "state"],
            registry=registry,
        )
        self.ready = Gauge("cdc_supervised_sink_ready", "1: the sink follows the log", ["sink"], registry=registry)
        self.restarts = Gauge(
            "cdc_supervised_sink_restarts", "Starts of the sink's process after the first", ["sink"], registry=registry
        )
        self.lag_records = Gauge(
            "cdc_supervised_sink_lag_records",
            "Offsets the sink is behind; NaN: not reported",
            ["sink"],
            registry=registry,
        )
        self.lag_seconds = Gauge(
            "cdc_supervised_sink_lag_seconds",
            "Age of the oldest record that the sink has not applied; NaN: not reported",
            ["sink"],
            registry=registry,
        )
        self.report_age_seconds = Gauge(
            "cdc_supervised_sink_report_age_seconds",
            "Since the sink's process last reported; NaN: never",
            ["sink"],
            registry=registry,
        )

    def render(self) -> bytes:
        """The part of /metrics about sinks."""
        return generate_latest(self.registry)

    def update(self, views: Sequence[View]) -> None:
        """Take what is known now."""
        for view in views:
            document: Mapping[str, Any] = view.document()
            for state in SHOWN_STATES:
                self.state.labels(view.sink, state).set(float(view.state == state))
            self.ready.labels(view.sink).set(float(view.is_ready))
            self.restarts.labels(view.sink).set(document["restarts"])
            self.lag_records.labels(view.sink).set(_number(document["lag_records"]))
            self.lag_seconds.labels(view.sink).set(_number(document["lag_seconds"]))
            self.report_age_seconds.labels(view.sink).set(_number(document["report_age_seconds"]))


class WithSinks:
    """Capture's own report with its sinks beside it; see `Reported` and `Rendered`. Thread-safe."""

    def __init__(
        self, capture: Reported, metrics: Rendered, views: Callable[[], Sequence[View]], *, ready_needs_sinks: bool
    ) -> None:
        self._capture = capture
        self._metrics = metrics
        self._views = views
        self._ready_needs_sinks = ready_needs_sinks
        self._own = SupervisedMetrics()

    @property
    def state(self) -> str:
        """Of capture, and of every sink that is the reason why /readyz is not 200."""
        named = [f"{view.sink} {view.state}" for view in self._views() if not view.is_ready]
        return ", sink ".join([str(self._capture.state), *(named if self._ready_needs_sinks else [])])

    @property
    def ready(self) -> bool:
        """Whether capture is ready, and every sink if that is asked for."""
        return self._capture.ready and (not self._ready_needs_sinks or all(view.is_ready for view in self._views()))

    def snapshot(self) -> dict[str, Any]:
        """The document of /status."""
        return {**self._capture.snapshot(), "sinks": {view.sink: view.document() for view in self._views()}}

    def render(self) -> bytes:
        """The page of /metrics."""
        self._own.update(self._views())
        return self._metrics.render() + self._own.render()


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
