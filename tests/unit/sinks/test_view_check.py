"""`cdc views check` names every view, also those that have no rows yet."""

from __future__ import annotations

from typing import Any

from sinks.warehouse.lake.manifest import Unbuilt
from sinks.warehouse.read.view_check import check_views
from tests.fixtures.lake.lake_files import manifest


def test_a_view_that_has_failed_in_every_cut_is_not_equal() -> None:
    unbuilt = {"totals": Unbuilt(reason="totals.sql: DIVIDE_BY_ZERO", text="")}
    nothing: Any = None

    (report,) = check_views(nothing, nothing, manifest(3, views={}, tables={}, unbuilt=unbuilt), (), ())

    assert (report.name, report.cut, report.ok) == ("totals", 3, False)
    assert report.problem == "it has no rows: totals.sql: DIVIDE_BY_ZERO"
