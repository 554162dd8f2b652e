from __future__ import annotations
import cProfile, pstats, time, pytest, threading
from tests.fixtures.lake import lake_site
from tests.fixtures.lakework import *
from tests.spark.conftest import spark, spark_options
@pytest.fixture
def lake(capture, spark, tmp_path):
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "given.sql").write_text(VIEW)
    yield from lake_site(capture, spark, tmp_path, views=str(tmp_path / "views"), history=HISTORY, events_max=150)
def test_x(lake):
    site = lake.capture
    site.sql(*SCHEMA)
    d = site.running({"capture": {"batch_rows_max": 40, "catalog_check_s": 0.2}})
    site.sql(BEGIN)
    work = LakeWork(site.dsn, 1)
    with work.writing(): time.sleep(15)
    d.until_position(site.wal())
    driver = lake.driver()
    for n in range(9):
        if n == 5:
            p = cProfile.Profile(); p.enable()
        c=time.process_time(); t=time.monotonic(); ok=driver.step(); print("STEP", n, ok, time.monotonic()-t, time.process_time()-c, flush=True)
    p.disable()
    pstats.Stats(p).sort_stats("cumulative").print_stats(70)
