"""Common parts of every /metrics page: unknown gauges, constant labels, build and process metrics.

A gauge that was never set is NaN, because 0 would be a statement, such as "no lag". `NaN > limit` is false in PromQL,
so an alert on a value also needs one on `absent` or on the age of the last check.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cdc import __version__
from cdc.telemetry import log

UNKNOWN: Final = float("nan")
_PROCESS: Final = "process_"


class Reported(Protocol):
    """The state of a process. Called from many threads."""

    @property
    def state(self) -> object:
        """Its name is the text of /readyz."""

    @property
    def ready(self) -> bool:
        """Whether /readyz returns 200."""

    def snapshot(self) -> dict[str, Any]:
        """Return the document of /status."""


class Rendered(Protocol):
    """The metrics of a process. Called from many threads."""

    def render(self) -> bytes:
        """Return the page of /metrics."""


def known(value: float | None, digits: int) -> float | None:
    """Return a number for a JSON document: rounded, or None when it is unknown."""
    return None if value is None or isnan(value) else round(value, digits)


class Declarations:
    """Declares metrics in a registry of its own, and renders them with `labels` on every sample."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.registry = CollectorRegistry()
        self.labels = labels

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(_Labelled(self.registry, self.labels))

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, registry=self.registry)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(name, documentation, labels, registry=self.registry)

    def _unknown(self, name: str, documentation: str) -> Gauge:
        """Declare a gauge that is NaN until it is set."""
        gauge = self._gauge(name, documentation)
        gauge.set(UNKNOWN)
        return gauge

    def _histogram(self, name: str, documentation: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, documentation, buckets=buckets, registry=self.registry)


class MetricsPage(Declarations):
    """The page of /metrics of one process."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self.process = ProcessMetrics(self.registry)


class ProcessMetrics:
    """Build, memory, CPU, open files and broken threads of this process, in the registry of each of its pages."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.build_info = Gauge(
            "cdc_build_info", "Always 1; the labels name the build", ["version", "python"], registry=None
        )
        self.build_info.labels(__version__, platform.python_version()).set(1)
        self.thread_failures = _THREAD_FAILURES
        for collector in (self.build_info, self.thread_failures, _PROCESS_COLLECTOR):
            registry.register(collector)


_THREAD_FAILURES: Final = Counter(
    "cdc_thread_failures_total", "Threads that ended with an unexpected error, by thread", ["thread"], registry=None
)
_PROCESS_COLLECTOR: Final = ProcessCollector(registry=None)


def report_broken_threads() -> None:
    """Log and count every thread that ends with an unexpected error from now on."""

    def report(failure: threading.ExceptHookArgs) -> None:
        if failure.exc_value is None or isinstance(failure.exc_value, SystemExit):
            return
        name = failure.thread.name if failure.thread is not None else "unknown"
        _THREAD_FAILURES.labels(name.rstrip("0123456789").rstrip("-")).inc()
        log.get().error("thread_failed", thread=name, error=log.origin(failure.exc_value))

    threading.excepthook = report


class _Labelled(Collector):
    """The metrics of a registry with labels added to each of our samples; an existing label wins."""

    def __init__(self, registry: CollectorRegistry, labels: Mapping[str, str]) -> None:
        self._registry = registry
        self._labels = labels

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            if not metric.name.startswith(_PROCESS):
                metric.samples = [
                    sample._replace(labels={**self._labels, **sample.labels}) for sample in metric.samples
                ]
            yield metric
