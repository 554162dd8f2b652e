"""The queries of docs/explanation/time.md give what its table says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from sinks.warehouse.views.definition import bind, parse_view, temporary
from tests.fixtures.views.doc_examples import example_views
from tests.tidy.tree import ROOT, loaded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICKS: Final = "archive/shop.public.clicks"
BEGIN: Final = datetime(2026, 11, 30, 10, tzinfo=UTC)
drawn = loaded(ROOT / "docs" / "assets" / "draw_time.py")


@pytest.mark.parametrize("policy", drawn.POLICIES)
def test_policies_show_what_the_page_says(policy: str, spark: SparkSession) -> None:
    spark = spark.newSession()  # temporary views are its own
    (view,) = bind([parse_view(Path(f"{policy}.sql"), example_views("explanation/time.md")[policy])], [CLICKS])
    for cut, count in drawn.CUTS.items():
        rows = [(1, 100 * n, 1, BEGIN + timedelta(minutes=at)) for n, at in enumerate(drawn.CLICKS[:count], 1)]
        made = spark.createDataFrame(rows, "_epoch int, _commit_lsn long, _ordinal int, at timestamp")
        made.createOrReplaceTempView(temporary(CLICKS))

        found = {row.begins: row.clicks for row in spark.sql(view.sql).collect()}

        expected = drawn.shown(policy, cut)
        assert found == {(BEGIN + timedelta(minutes=at)).replace(tzinfo=None): n for at, n in expected.items()}, cut
