"""Upgrade from the previous release and rollback to it, under load: nothing is lost or doubled, stores agree."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from sinks.warehouse.delta.pinned_version import pinned
from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ManifestStore
from sinks.warehouse.read.lake_reader import Lake
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.faults.changing_release import ChangingRelease
from tests.fixtures.faults.state_of_release import PICKY, PICKY_FIELDS, OutboxOf, answer, until_blocked
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.lake.lake_process import Sink
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks import sink_beside_capture
from tests.fixtures.sinks.search_targets import documents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.local.valkey_server import Valkey
    from sinks.warehouse.lake.manifest import Manifest
    from tests.fixtures.servers.daemon import CaptureSite
    from tests.fixtures.servers.opensearch import OpenSearchServer

ROUNDS: Final = int(os.environ.get("TAILRACE_UPGRADES", "1"))
"""How often everything is upgraded and rolled back; `make upgrade-proof` asks for more."""
_KEYS: Final = {**KEYS, "public.picky": ["id"]}
_ROOT: Final = Path(__file__).parents[2]


def test_upgrade_and_rollback_of_capture_cache_and_search_lose_and_double_nothing(
    capture: CaptureSite, valkey: Valkey, opensearch: OpenSearchServer, previous_release: Path
) -> None:
    """Both releases also handle each other's dead letters, and events that the previous package wrote."""
    capture.sql(*SCHEMA, PICKY)
    outbox = OutboxOf(previous_release, capture.dsn)
    oracle = capture.oracle()
    changing = ChangingRelease(capture, sections(valkey, opensearch), previous_release)
    with writing(capture.dsn, seed(), writers=2, bulk_rows=100) as work, changing.closing():
        changing.begin(work)
        refuse_rows(changing)
        for number in range(ROUNDS):
            if number:
                changing.take_over(previous_release)
            changing.end(kill=False)
            outbox.write()
            if not number:
                # A request of the previous release, which this one carries out.
                asked = answer(changing, "dlq", "retry", "search", "--key", "1", "--no-wait")
                assert asked["waiting"] == 1
            changing.start(_ROOT)
            if not number:
                retry_dead_letters_of_the_previous_release(changing)
                applied = answer(changing, "migrate", "up", "--phase", "pre")["applied"]
                assert applied[0]["revision"] == "0002"
            changing.end(kill=True)
            changing.start(_ROOT)  # 0.1.0 fences one of the three producers: see docs/howto/upgrade.md
            changing.end(kill=False)
            outbox.write()
            changing.start(previous_release)
            if not number:
                retry_dead_letters_after_the_rollback(changing)
            changing.take_over(_ROOT)
            outbox.write()
        work.end()

        log = capture.settled(changing.daemon)
        lsn = capture.wal()
        waited = [changing.run("wait", "--sink", sink, "--lsn", lsn) for sink in ("cache", "search")]
        verified = changing.run("verify", "cache", "--json")

    assert history_faults(oracle.changes(tuple(_KEYS)), log, _KEYS) == []
    assert log.faults() == []
    assert outbox.delivered(log) == list(range(outbox.count))
    assert log.topic(f"{capture.name}.__refused") == []
    assert [one.code for one in waited] == [0, 0], [one.err for one in waited]
    assert verified.code == 0, verified.out + verified.err
    assert json.loads(verified.out)["topics_sink"]
    assert index_faults(capture, opensearch.url) == []


def sections(valkey: Valkey, opensearch: OpenSearchServer) -> dict[str, dict[str, Any]]:
    """An outbox and two sinks. The index of the bulk table would have more documents than one search returns."""
    search = {
        "kind": "search",
        "url": opensearch.url,
        "tables": ["public.*", "!public.bulk"],
        "index": {"number_of_replicas": 0},
        "fields": PICKY_FIELDS,
    }
    return {"outbox": {}, "sinks.cache": {"kind": "cache", "url": valkey.url}, "sinks.search": search}


def refuse_rows(old: ChangingRelease) -> None:
    """Let the previous release block two keys, and keep the repaired rows behind the refused ones."""
    old.site.sql("insert into picky values (1, 'soon'), (2, 'later'), (3, '2026-11-03')")
    until_blocked(old.config, "search", [1, 1])
    old.site.sql("update picky set day = '2026-11-0' || id where id < 3")
    until_blocked(old.config, "search", [2, 2])


def retry_dead_letters_of_the_previous_release(new: ChangingRelease) -> None:
    """This release carries out the request that waits, shows the other key, and retries it."""
    until_blocked(new.config, "search", [2])
    (shown,) = answer(new, "dlq", "show", "search")["keys"]
    assert (shown["table"], shown["key"], shown["records"]) == ("public.picky", '{"id":2}', 2)
    assert shown["reason"] == "column day"
    assert answer(new, "dlq", "retry", "search")["done"] == 1
    new.site.sql("insert into picky values (4, 'never')")
    until_blocked(new.config, "search", [1])


def retry_dead_letters_after_the_rollback(old: ChangingRelease) -> None:
    """The previous release shows and retries what this one has blocked."""
    (shown,) = answer(old, "dlq", "show", "search")["keys"]
    assert (shown["key"], shown["records"]) == ('{"id":4}', 1)
    old.site.sql("update picky set day = '2026-11-04' where id = 4")
    until_blocked(old.config, "search", [2])
    assert answer(old, "dlq", "retry", "search")["done"] == 1
    assert answer(old, "dlq", "list")["blocked"] == []


def index_faults(site: CaptureSite, url: str) -> list[str]:
    """Name every table whose index is not equal to the rows in PostgreSQL."""
    faults = []
    for table in sorted(_KEYS.keys() - {"public.bulk"}):
        as_texts = f"select (select jsonb_object_agg(key, value) from jsonb_each_text(to_jsonb(t))) from {table} t"
        rows = sorted(json.dumps(row, sort_keys=True) for (row,) in site.query(as_texts))
        found = documents(url, f"{site.name}.search.{table}").values()
        texts = [{name: _text(value) for name, value in one.items()} for one in found]
        indexed = sorted(json.dumps(one, sort_keys=True) for one in texts)
        if indexed != rows:
            faults.append(f"{table}: {len(rows)} rows, {len(indexed)} documents, {len({*rows} & {*indexed})} equal")
    return faults


def _text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else value if value is None else str(value)


@pytest.mark.skipif("TAILRACE_UPGRADES" not in os.environ, reason="four starts of Spark: make upgrade-proof")
def test_upgrade_and_rollback_of_a_lake_keep_mirror_and_view_equal_to_the_source(
    capture: CaptureSite, previous_release: Path, tmp_path: Path
) -> None:
    capture.sql("create table t (id int primary key, v int not null)")
    views = tmp_path / "views"
    views.mkdir()
    (views / "sums.sql").write_text(
        "-- key: k\nselect id % 7 as k, count(*) as n, sum(v) as s from t group by id % 7\n"
    )
    lake = Location.of(tmp_path / "lake", None)
    settings = {"kind": "warehouse", "path": str(tmp_path / "lake"), "views": str(views), "interval_s": 0.2}
    daemon = capture.running({"sinks.lake": settings})
    config = capture.folder / "cdc-0.toml"
    statements = (
        "insert into t select 10 * :n + g, :n from generate_series(0, 9) g",
        "update t set v = v + 1 where id between 10 * :n - 50 and 10 * :n",
        "delete from t where id = 10 * :n - 5",
    )
    releases = [previous_release, _ROOT] * ROUNDS + [previous_release]
    with ExitStack() as closing:
        with sink_beside_capture.writing(capture, *statements, pause_s=0.2):
            for number, code in enumerate(releases):
                sink = Sink(config, tmp_path / f"lake-{number}.log", code=code)
                closing.callback(sink.kill)
                _cuts_more(lake, sink, 2)
                if number % 2:
                    sink.kill()
                else:
                    sink.process.terminate()
                    assert sink.process.wait(60) == 0, sink.text()[-3000:]
        lsn = capture.wal()
        daemon.until_position(lsn)
        last = Sink(config, tmp_path / "lake-last.log", code=_ROOT)
        closing.callback(last.kill)
        until(lambda: _running(last) and _newest(lake).end_lsn >= lsn, f"the lake at {lsn}", within_s=400)

    manifest = _newest(lake)
    assert not any(state.reason for state in manifest.views.values())
    mirror = pinned(lake, "mirror/public.t", manifest.tables["mirror/public.t"].version)
    table, state = Lake(lake).view("sums", manifest)
    assert _rows(mirror, ("id", "v")) == sorted(capture.query("select id, v from t"))
    sums = capture.query("select id % 7, count(*), sum(v) from t group by 1")
    assert _rows(pinned(lake, table, state.version), ("k", "n", "s")) == sorted(sums)


def _cuts_more(lake: Location, sink: Sink, count: int) -> None:
    before = ManifestStore(lake).current()
    wanted = (0 if before is None else before.cut) + count

    def reached() -> bool:
        found = ManifestStore(lake).current()
        return _running(sink) and found is not None and found.cut >= wanted

    until(reached, f"{count} cuts more", within_s=400)


def _running(sink: Sink) -> bool:
    assert sink.process.poll() is None, sink.text()[-3000:]
    return True


def _newest(lake: Location) -> Manifest:
    found = ManifestStore(lake).current()
    assert found is not None
    return found


def _rows(table: Any, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    found = table.to_pyarrow_table(columns=list(columns))
    return sorted(tuple(int(value) for value in row.values()) for row in found.to_pylist())
