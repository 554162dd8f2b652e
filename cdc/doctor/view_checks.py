"""Checks views: their declared collation, and their rows against PostgreSQL's own, within a short time."""

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
_WITHOUT: Final = 'remove `-- collation: C`, and write x collate "C" where the view is refused then'


def examine_collations(config: Config, name: str, settings: Warehouse) -> Iterator[Finding]:
    """Yield a finding for each view whose text PostgreSQL compares by another collation. Raises TailraceError."""
    from cdc.replication.collations import collations
    from cdc.replication.connect import connect
    from sinks.warehouse.verify.view_collations import declares_c, wrong_collations
    from sinks.warehouse.views.definition import views_of

    views = [view for view in views_of(settings).views if view.dialect == "postgres"]
    if not views:
        return
    connection = connect(config.source.dsn, application_name="cdc doctor")
    try:
        found = collations(connection)
    finally:
        connection.close()
    wrong = {view: reasons for view in views if (reasons := wrong_collations(view.sql, found))}
    for view, reasons in wrong.items():
        text = f"view {view.name} can differ from PostgreSQL: {'; '.join(reasons)}; {_WITHOUT}"
        yield _of(name, Level.WARNING, text, f"cdc views check {view.name} --source", "view_collation")
    declared = sum(declares_c(view.sql) for view in views if view not in wrong)
    if declared and not wrong:
        text = f"views that declare the collation C: {declared}; the database has it"
        yield _of(name, Level.OK, text, check="view_collation")


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


def _of(name: str, level: Level, message: str, command: str = "", check: str = "view") -> Finding:
    return Finding(group=Group.SINKS, level=level, check=check, message=f"{name}: {message}", command=command)
