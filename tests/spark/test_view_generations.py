"""Changed SQL of a view: built beside the old, swapped without a gap, rolled back; its topic follows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

import msgspec
import pytest

from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.read.lake_reader import Lake
from sinks.warehouse.views.generations import REPLACED, SwapRequest
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.spark.test_view_topics import TopicLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite

_OLD = "-- key: id\n-- publish: topic\nselect id, n from t"
_NEW = "-- key: id\n-- publish: topic\nselect id, n, n * 2 as twice from t where id > 1"


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    views = tmp_path / "views"
    views.mkdir()
    (views / "v.sql").write_text(_OLD)
    (views / "total.sql").write_text("select sum(n) as total, count(*) as rows from v")
    capture.sql("create table t (id int primary key, n int)")
    yield from lake_site(capture, spark, tmp_path, views=str(views))


class _Reader:
    """Reads view and sum of the newest cut continuously, and records contradictions."""

    def __init__(self, lake: LakeSite) -> None:
        self._lake = Lake(lake.location)
        self._stop = threading.Event()
        self.wrong: list[str] = []
        self.seen: list[tuple[int, int]] = []
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _work(self) -> None:
        while not self._stop.is_set():
            manifest = self._lake.manifest()
            if "total" not in manifest.views:
                continue
            rows, total = self._rows("v", manifest), self._rows("total", manifest)[0]
            if (sum(row["n"] for row in rows), len(rows)) != (total["total"], total["rows"]):
                self.wrong.append(f"cut {manifest.cut}: {len(rows)} rows of g{manifest.views['v'].generation}, {total}")
            self.seen.append((manifest.cut, manifest.views["v"].generation))

    def _rows(self, name: str, manifest: Any) -> list[dict[str, Any]]:
        table, state = self._lake.view(name, manifest)
        found: list[dict[str, Any]] = pinned(self._lake.location, table, state.version).to_pyarrow_table().to_pylist()
        return found


def test_changed_view_is_swapped_and_rolled_back_under_load_and_no_reader_sees_a_gap(
    lake: LakeSite, tmp_path: Path
) -> None:
    site, log = lake.capture, TopicLog(lake)
    daemon = site.running()
    site.sql("insert into t select n, n from generate_series(1, 20) n")
    driver = lake.driver()
    lake.settle(daemon, driver)
    driver.close()

    (tmp_path / "views" / "v.sql").write_text(_NEW)
    driver = lake.driver()
    with _Reader(lake) as reader:
        for step in range(4):
            site.sql(f"update t set n = n + 1 where id % 3 = {step % 3}")
            manifest = lake.settle(daemon, driver)
            if manifest.views["v"].generation == 2:
                break
        assert manifest.views["v"].generation == 2
        assert manifest.views["v~1"].reason == REPLACED
        assert lake.view_rows("v", manifest) == sorted(site.query("select id, n, n * 2 from t where id > 1"), key=repr)

        driver._parts.texts.request_swap(SwapRequest("v", 1))
        for _ in range(4):
            driver.step()
            site.sql("update t set n = n + 1 where id = 5")
            manifest = lake.settle(daemon, driver)
            if manifest.views["v"].generation == 1:
                break

    assert manifest.views["v"].generation == 1
    assert lake.view_rows("v", manifest) == sorted(site.query("select id, n from t"), key=repr)
    assert reader.wrong == []
    assert {generation for _, generation in reader.seen} == {1, 2}, "the test is weaker than it says"
    assert driver._parts.texts.requests() == {}
    folded: dict[bytes | None, Any] = {}
    for key, value in log.view("v"):
        folded[key] = None if value is None else value["after"]
    assert {key: row for key, row in folded.items() if row is not None} == {
        b'{"id":%d}' % id_: {"id": id_, "n": n} for id_, n in site.query("select id, n from t")
    }


def test_swap_needs_no_change_of_the_source_and_is_done_again_after_a_crash(
    lake: LakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = lake.capture
    daemon = site.running()
    site.sql("insert into t select n, n from generate_series(1, 4) n")
    driver = lake.driver()
    lake.settle(daemon, driver)
    driver.close()
    (tmp_path / "views" / "v.sql").write_text("-- swap: manual\n" + _NEW)
    driver = lake.driver()
    site.sql("update t set n = 7 where id = 2")
    manifest = lake.settle(daemon, driver)
    assert (manifest.views["v"].generation, manifest.views["v~2"].reason) == (1, "")
    driver._parts.texts.request_swap(SwapRequest("v", 2))

    class Dead(Exception):
        pass

    def die(*_: object) -> None:
        raise Dead

    monkeypatch.setattr(driver._parts.fence, "hold", die)
    with pytest.raises(Dead):
        driver.step()
    (tmp_path / "views" / "v.sql").write_text("select id, n, 'edited' as word from t")
    again = lake.driver()
    again._resume()

    manifest = lake.manifest()
    assert manifest.views["v"].generation == 2
    assert lake.view_rows("v", manifest) == sorted(site.query("select id, n, n * 2 from t where id > 1"), key=repr)


def test_generation_that_no_kept_cut_names_is_deleted(lake: LakeSite, tmp_path: Path) -> None:
    lake.settings = msgspec.structs.replace(lake.settings, keep_cuts=1, keep_hours=0)
    site = lake.capture
    daemon = site.running()
    for number in (1, 2, 3):
        (tmp_path / "views" / "v.sql").write_text(f"select id, n + {number} as n from t")
        driver = lake.driver()
        for _ in range(4):
            site.sql("insert into t select count(*), 0 from t")
            manifest = lake.settle(daemon, driver)
            if manifest.views["v"].generation == number:
                break
        assert manifest.views["v"].generation == number
        driver._forget_old()  # as every few cuts
        driver.close()

    folder = tmp_path / "lake" / "views" / "v"
    assert sorted(path.name for path in folder.iterdir()) == ["g2", "g3"], "one to roll back to stays"
    (folder / "s1").mkdir()  # sums of an earlier release
    stop = threading.Event()
    stop.set()
    lake.driver().run(stop)
    assert sorted(path.name for path in folder.iterdir()) == ["g2", "g3"]
    assert lake.view_rows("v") == sorted(site.query("select id, n + 3 from t"), key=repr)
