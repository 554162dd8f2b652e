"""Converts a page of /metrics to OpenTelemetry's metrics. Names and labels stay as Prometheus has them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_TOTAL: Final = AggregationTemporality.CUMULATIVE


def metrics_data(
    page: bytes, resource: Resource, scope: InstrumentationScope, start_ns: int, at_ns: int
) -> MetricsData:
    """Return all samples of a page; unknown gauges (NaN) are left out. Counters count since `start_ns`."""
    found = [
        Metric(name, family.documentation, "", data)
        for family in text_string_to_metric_families(page.decode())
        for name, data in _converted(family, start_ns, at_ns)
    ]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, found, "")], "")])


def _converted(family: Family, start_ns: int, at_ns: int) -> Iterator[tuple[str, Sum | Gauge | Histogram]]:
    if family.type == "histogram":
        points = list(_histograms(family.samples, start_ns, at_ns))
        if points:
            yield family.name, Histogram(points, _TOTAL)
        return
    counter = family.type == "counter"
    by_name: dict[str, list[NumberDataPoint]] = {}
    for sample in family.samples:
        if sample.name.endswith("_created") or sample.value != sample.value:
            continue
        point = NumberDataPoint(sample.labels, start_ns if counter else 0, at_ns, sample.value)
        by_name.setdefault(sample.name, []).append(point)
    for name, numbers in by_name.items():
        yield name, Sum(numbers, _TOTAL, is_monotonic=True) if counter else Gauge(numbers)


def _histograms(samples: Iterable[Sample], start_ns: int, at_ns: int) -> Iterator[HistogramDataPoint]:
    """Convert cumulative buckets to counts of each bucket."""
    series: dict[tuple[tuple[str, str], ...], dict[str, dict[float, float]]] = {}
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        parts = series.setdefault(tuple(sorted(labels.items())), {})
        part = sample.name.rpartition("_")[2]
        parts.setdefault(part, {})[float(sample.labels.get("le", "inf"))] = sample.value
    for labelled, parts in series.items():
        yield _histogram(dict(labelled), parts, start_ns, at_ns)


def _histogram(
    labels: Mapping[str, str], parts: Mapping[str, Mapping[float, float]], start_ns: int, at_ns: int
) -> HistogramDataPoint:
    counts, before = [], 0.0
    bounds = sorted(parts.get("bucket", {}))
    for bound in bounds:
        counts.append(int(parts["bucket"][bound] - before))
        before = parts["bucket"][bound]
    return HistogramDataPoint(
        attributes=dict(labels),
        start_time_unix_nano=start_ns,
        time_unix_nano=at_ns,
        count=int(parts.get("count", {}).get(inf, before)),
        sum=parts.get("sum", {}).get(inf, 0.0),
        bucket_counts=counts,
        explicit_bounds=[bound for bound in bounds if bound != inf],
        min=inf,
        max=-inf,
    )
