"""Values that updates leave out (`toast.mode = "omit"`) are filled beside columns of every type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.fixtures.lake.running_lake import LakeSite, lake_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite

_TYPES: Final = {
    "i2": "smallint",
    "i4": "int",
    "i8": "bigint",
    "n": "numeric(12, 2)",
    "f4": "real",
    "f8": "double precision",
    "ok": "boolean",
    "day": "date",
    "here": "timestamp",
    "at": "timestamptz",
    "raw": "bytea",
    "word": "varchar(9)",
}
_VALUES: Final = (
    "g, g, g, g + 0.25, g + 0.5, g / 3.0, g % 2 = 0, date '2026-01-01' + g, "
    "timestamp '2026-03-29 02:30:00' + g * interval '1 hour', "
    "timestamptz '2026-03-29 02:30:00.123456+02' + g * interval '1 hour', decode('00ff', 'hex'), 'w' || g"
)
_VIEW: Final = "-- dialect: postgres\nselect id, here, at, day, n, length(big) as size from t\n"


@pytest.fixture
def lake(capture: CaptureSite, quick: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    views = tmp_path / "views"
    views.mkdir()
    (views / "times.sql").write_text(_VIEW)
    yield from lake_site(capture, quick, tmp_path, views=str(views), history=("public.*",))


def test_omitted_values_are_filled_beside_columns_of_every_type(lake: LakeSite) -> None:
    site, names = lake.capture, ["id", *_TYPES, "big"]
    columns = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
    site.sql(
        f"create table t (id int primary key, {columns}, big text)",
        "alter table t alter column big set storage external",
    )
    daemon, driver = site.running({"toast": {"mode": "omit"}}), lake.driver()
    site.sql(f"insert into t select g, {_VALUES}, repeat(md5(g::text), 200) from generate_series(1, 20) g")
    lake.settle(daemon, driver)

    for number in (1, 2, 3):
        site.sql(
            f"update t set here = here + interval '1 day', i4 = -1 where id = {number}",
            f"update t set {', '.join(f'{name} = null' for name in _TYPES)} where id = {10 + number}",
        )
        lake.settle(daemon, driver)
        assert lake.differs("public.t", names) == ""

    wanted = sorted(site.query("select id, here, at, day, n, length(big) from t"), key=repr)
    assert lake.view_rows("times") == wanted
