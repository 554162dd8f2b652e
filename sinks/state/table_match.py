"""Checks that the `tables` of a sink match captured tables; a name without a match is usually a typo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.errors import SinkUnfit, TailraceError
from cdc.patterns import matches
from cdc.telemetry import log

SETTLE_S: Final = 10.0
"""Before a name without a table is an error: capture may be starting for the first time."""

_NEVER_CAPTURED: Final = "views."  # views come from a lake, some time after it has started


class Captured(Protocol):
    """The part of `sinks.state.schema_follower.SchemaFollower` that is needed here."""

    def captured(self) -> Mapping[str, bool]:
        """Return for every captured table whether it has a key."""


class Observer(Protocol):
    """The part of `sinks.runner.runner_observer.RunnerObserver` that is needed here."""

    def waits(self, reason: str, cause: TailraceError | None) -> None: ...  # noqa: D102


def unmatched(patterns: Sequence[str], captured: Mapping[str, bool]) -> list[str]:
    """Return the patterns that match no captured table with a key. Exclusions (``!``) need no match."""
    keyed = [table for table, has_key in captured.items() if has_key]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    return [pattern for pattern in wanted if not any(matches(table, [pattern]) for table in keyed)]


def keeps_nothing(patterns: Sequence[str], missing: Sequence[str]) -> bool:
    """Whether all patterns but exclusions are in `missing`."""
    return len(missing) == sum(not pattern.startswith("!") for pattern in patterns)


def is_name(pattern: str) -> bool:
    """Whether it is the name of one captured table, and no pattern that may match later tables."""
    return not any(sign in pattern for sign in "*?[") and not pattern.startswith(_NEVER_CAPTURED)


def warn_of_settings(sink: str, settings: Mapping[str, Iterable[str]], captured: Mapping[str, bool]) -> None:
    """Log table settings, by their key, that match no captured table: they have no effect."""
    for setting, patterns in settings.items():
        missing = unmatched(list(patterns), captured)
        if missing:
            error = problem(sink, missing, captured, setting=setting)
            log.get().warning("sink_tables_unmatched", tables=missing, **log.error_fields(error))


def problem(sink: str, missing: Sequence[str], captured: Mapping[str, bool], *, setting: str = "tables") -> SinkUnfit:
    """Return the error for `missing`, which is not empty, with the closest table name."""
    first = next((one for one in missing if is_name(one)), missing[0])
    what = f"sinks.{sink}.{setting} has {first!r}"
    if first in captured:
        return SinkUnfit(
            f"{what}, which has no key: the sink needs one",
            hint="give the table a primary key or a replica identity, or remove it from the sink",
            table=first,
        )
    if first.startswith(_NEVER_CAPTURED):
        return _unpublished(what, first, captured)
    near = get_close_matches(first, [table for table, has_key in captured.items() if has_key], n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    why = "which is not a captured table" if is_name(first) else "which matches no captured table"
    return SinkUnfit(
        f"{what}, {why}{meant}",
        hint=f"correct sinks.{sink}.{setting}, or capture the table (source.tables); a table that is created later "
        "is added when a pattern matches it",
        command="cdc snapshot status",
        table=first,
    )


def _unpublished(what: str, view: str, captured: Mapping[str, bool]) -> SinkUnfit:
    """Return the error for a view without a topic. That is usual until the lake has made its first cut."""
    near = get_close_matches(view, [name for name in captured if name.startswith(_NEVER_CAPTURED)], n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return SinkUnfit(
        f"{what}, which no lake has published yet{meant}",
        hint="a lake publishes a view with its first cut after the view is computed, if the view's file has the line "
        "`-- publish: topic`; this sink then continues by itself",
        command="cdc sink status",
        table=view,
    )


class TableCheck:
    """Checks the tables after each read of the schemas. A sink that keeps at least one table continues, with a log.

    A sink that keeps no table waits if a pattern may still match; if it has only names, it is misconfigured.
    """

    def __init__(
        self,
        sink: str,
        patterns: Sequence[str],
        schemas: Captured,
        observer: Observer,
        clock: Clock,
        *,
        settings: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        """`settings`: other keys of the section that name tables; those without a match are logged once."""
        self._settings = settings or {}
        self._sink = sink
        self._patterns = patterns
        self._schemas = schemas
        self._observer = observer
        self._clock = clock
        self._since_s = clock.monotonic_s()
        self._logged: list[str] = []

    def look(self) -> None:
        """Check the patterns. Raises SinkUnfit when there are only names, and none is a captured table."""
        captured = self._schemas.captured()
        settled = self._clock.monotonic_s() - self._since_s >= SETTLE_S
        if settled and captured:
            warn_of_settings(self._sink, self._settings, captured)
            self._settings = {}
        missing = unmatched(self._patterns, captured)
        if not missing:
            self._logged = []
            return
        error = problem(self._sink, missing, captured)
        if not keeps_nothing(self._patterns, missing):
            if settled and missing != self._logged:
                self._logged = missing
                log.get().warning("sink_tables_unmatched", tables=missing, **log.error_fields(error))
            return
        if not settled:
            self._observer.waits("tables", None)
            return
        self._observer.waits("tables", error)
        if captured and all(is_name(one) for one in missing):
            raise error
        if missing != self._logged:
            self._logged = missing
            log.get().warning("sink_tables_unmatched", tables=missing, **log.error_fields(error))
