"""Compares the views of a lake with PostgreSQL's own answer, within a short time. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cdc.clock import SystemClock
from cdc.config.settings import Config, Warehouse
from cdc.doctor.finding import Finding, Group, Level
from cdc.errors import TailraceError

_WAIT_S: Final = 10.0
_STATEMENT_S: Final = 10.0
_TOTAL_S: Final = 20.0


def examine_views(config: Config, name: str, settings: Warehouse) -> Iterator[Finding]:
    """Yield a finding for each view that differs, and one about all of them.

    Views that could not be compared in this time are no finding of their own: the sink may just be stopped.
    """
    from cdc.verify.source_views import Limits, check_views_at_source
    from sinks.warehouse.lake.location import Location

    limits = Limits(wait_s=_WAIT_S, statement_s=_STATEMENT_S, total_s=_TOTAL_S)
    try:
        found = check_views_at_source(config, Location.configured(settings), clock=SystemClock(), limits=limits)
    except TailraceError as error:
        yield _of(name, Level.OK, f"views were not compared with PostgreSQL: {error.message}")
        return
    for report in found.reports:
        if report.state == "different":
            rows = f"{report.found.missing:,} rows missing, {report.found.extra:,} too many"
            yield _of(
                name,
                Level.WARNING,
                f"view {report.name} differs from PostgreSQL's own answer: {report.reason or rows}",
                f"cdc views check {report.name} --source",
            )
    equal, all_views = sum(report.ok for report in found.reports), len(found.reports)
    never = sum(report.state == "not_checkable" for report in found.reports)
    text = f"{equal} of {all_views} views equal PostgreSQL's own answer at {found.lsn}"
    yield _of(name, Level.OK, text + (f"; {never} cannot be checked there" if never else ""))


def _of(name: str, level: Level, message: str, command: str = "") -> Finding:
    return Finding(group=Group.SINKS, level=level, check="view", message=f"{name}: {message}", command=command)
