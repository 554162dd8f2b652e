"""Settings of OpenTelemetry, the section `[otel]` of cdc.toml."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from cdc.config.section import Section


class Otel(Section, frozen=True):
    """Traces and metrics by OTLP over HTTP. The variables OTEL_EXPORTER_OTLP_* name the collector. Extra `otel`."""

    enabled: bool = False
    """Send traces and metrics. Sinks do so too."""
    sample_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.01
    """Share of source transactions that are traced. Capture and sinks choose the same ones."""
    interval_s: Annotated[float, Meta(ge=1, le=3600)] = 60
    """Seconds between two exports of all metrics."""
