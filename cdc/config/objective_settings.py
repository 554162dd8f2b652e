"""Settings of freshness objectives, the tables `[capture.objective]` and `[sinks.NAME.objective]` of cdc.toml."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from cdc.config.section import Section


class Objective(Section, frozen=True):
    """How far a sink, or the log, may be behind PostgreSQL, and in which share of the time."""

    freshness_s: Annotated[float, Meta(ge=5, le=86_400)]
    """Longest time in seconds from a commit in PostgreSQL until the sink (or the log) has it."""
    target: Annotated[float, Meta(ge=0.95, le=0.99999)] = 0.999
    """Share of time, over 28 days, in which this must hold. The rest is the error budget."""
