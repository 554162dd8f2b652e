"""The 22 queries of TPC-H equal PostgreSQL's own answers at cuts under load, as `cdc views check --source` finds.

The servers, capture, the lake's sink and the check run as for a user. `make tpch-proof` runs the long form.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from sinks.warehouse.lake.location import Location
from sinks.warehouse.lake.manifest import ManifestStore
from tests.fixtures.lake.lake_process import Sink
from tests.fixtures.lake.wrong_row import alter_row
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until
from tests.spark.conftest import QUICK, SHORT_LIVED
from tests.spark.test_lake_kill import sinks
from tests.tpch.refresh import Refresh, Sizes
from tests.tpch.tables import KEYS, VIEWS, create, tables
from tests.tpch.writer import Writer

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from tests.fixtures.servers.daemon import CaptureSite, Sections

__all__ = ["sinks"]  # a fixture

SCALE: Final = float(os.environ.get("TAILRACE_TPCH_SCALE", "0.001"))
CUTS: Final = int(os.environ.get("TAILRACE_TPCH_CUTS", "2"))
LONG: Final = CUTS > 2
# The plans that the headers of the views ask for; of several, one is drawn for each view.
PLANS: Final = (("auto",), ("affected",), ("recompute",)) if LONG else (("auto", "affected"),)
_WAIT_S: Final = 900  # for a cut, on a busy machine
_AHEAD_MAX: Final = 10_000 if LONG else 1_000  # statements between two cuts, so that a slow machine keeps up
_SLOW_S: Final = 0.1  # between transactions of a writer that is ahead


def planned(folder: Path, plans: tuple[str, ...]) -> tuple[str, ...]:
    """Write the views, each with one of these plans. Returns their names."""
    folder.mkdir()
    chance = random.Random(seed())
    files = sorted(VIEWS.glob("*.sql"))
    for file in files:
        (folder / file.name).write_text(f"-- plan: {chance.choice(plans)}\n{file.read_text()}")
    return tuple(file.stem for file in files)


class Pace:
    """Lets a writer get ahead of the lake by so many statements, counted from the newest cut. Then it writes slowly.

    It never pauses, so that rows change between the snapshot of a check and its cut.
    """

    def __init__(self, lake: Path) -> None:
        self._store = ManifestStore(lake)
        self._cut = self._statements = 0
        self._slow_s = 0.0

    def __call__(self, writer: Writer) -> bool:
        """Whether the writer may write."""
        manifest = self._store.current()
        if manifest is not None and manifest.cut != self._cut:
            self._cut, self._statements = manifest.cut, writer.statements
        if writer.statements - self._statements < _AHEAD_MAX:
            return True
        now_s = time.monotonic()
        is_due = now_s - self._slow_s >= _SLOW_S
        self._slow_s = now_s if is_due else self._slow_s
        return is_due


class Proof:
    """A capture of TPC-H's tables, the lake with its views, and what the checks found."""

    def __init__(self, site: CaptureSite, folder: Path, sinks: list[Sink], plans: tuple[str, ...]) -> None:
        self.lake = folder / "lake"
        self.names = planned(folder / "views", plans)
        self._sinks = sinks
        self._folder = folder
        sink: dict[str, Any] = {"kind": "warehouse", "path": str(self.lake), "views": str(folder / "views")}
        sink |= {"master": "local[2]", "memory": "2g", "spark": {**SHORT_LIVED, **QUICK}}
        sections: Sections = {"snapshot": {"mode": "initial"}, "sinks.lake": sink}
        self._daemon = site.running(sections)
        self.config = site.write_config(sections)

    def start(self) -> None:
        """Start the lake's sink."""
        self._sinks.append(Sink(self.config, self._folder / f"sink-{len(self._sinks)}.log"))

    def until_computed(self) -> None:
        """Wait until the snapshots have ended and a cut has all views."""
        until(lambda: len(self._daemon.events("snapshot_complete")) == len(KEYS), "the snapshots", within_s=_WAIT_S)
        store = ManifestStore(self.lake)

        def computed() -> bool:
            self._sinks[-1].said("cut_published")
            manifest = store.current()
            return manifest is not None and manifest.views.keys() >= set(self.names)

        until(computed, "a cut with all views", within_s=_WAIT_S, every_s=0.5)

    def kill_sink(self, stop: threading.Event) -> None:
        """Kill the sink with SIGKILL at some moment of a check, and start another one."""
        stop.wait(seed() % 5)
        self._sinks[-1].kill()
        self.start()

    def check(self, *names: str, code: int = 0) -> dict[str, Any]:
        """Run the command as a script does. Returns its document."""
        ran = cdc(
            *("views", "check", *(names or ("--all",)), "--source", "--json"),
            *("--timeout", _WAIT_S, "-c", self.config),
            timeout_s=2 * _WAIT_S,
        )
        document: dict[str, Any] = json.loads(ran.out) if ran.out else {}
        views = document.get("source", {}).get("views", [])
        assert ran.code == code, [view for view in views if view["state"] != "equal"] or (
            ran,
            self._sinks[-1].text()[-3000:],
        )
        return document

    def computed(self) -> Counter[str]:
        """How often a view was computed by each plan, from the log."""
        events = [
            json.loads(line) for sink in self._sinks for line in sink.text().splitlines() if '"view_planned"' in line
        ]
        return Counter(event["plan"] for event in events)


@pytest.mark.timeout(1800 + 600 * CUTS)
@pytest.mark.parametrize("plans", PLANS, ids="+".join)
def test_all_queries_equal_postgresql_at_cuts_under_load(
    capture: CaptureSite, tmp_path: Path, sinks: list[Sink], plans: tuple[str, ...]
) -> None:
    with capture.connect() as session:
        rows = create(session, tables(SCALE))
    proof = Proof(capture, tmp_path, sinks, plans)
    proof.start()
    proof.until_computed()
    writer = Writer(capture.dsn, Refresh(Sizes.of_scale(SCALE), seed()), Pace(proof.lake))

    checked: dict[int, Counter[str]] = {}
    from_log = 0
    began_s = time.monotonic()
    with writer.writing():
        while len(checked) < CUTS:
            killing = [proof.kill_sink] if len(checked) == CUTS // 2 else []
            with beside(*killing):
                found = proof.check()["source"]
            states = Counter(view["state"] for view in found["views"])
            assert {view["name"] for view in found["views"]} == set(proof.names)
            assert states == {"equal": len(proof.names)}, found
            checked[found["cut"]] = states
            print(f"cut {found['cut']}: all equal, {time.monotonic() - began_s:.0f} s, {writer.commits:,} transactions")
            from_log += sum(view["from_log"] for view in found["views"])
    print(
        f"scale {SCALE:g}, {rows:,} rows, plans {plans}: {len(checked)} cuts {sorted(checked)} in"
        f" {time.monotonic() - began_s:.0f} s, {writer.commits:,} transactions, {writer.statements:,} statements,"
        f" {writer.pairs} pairs; {from_log:,} rows replaced from the log; computed {dict(proof.computed())}"
    )
    assert from_log, "no row changed between a snapshot and its cut"
    if "affected" in plans:  # for a small lake, the automatic choice is to compute all views anew
        assert proof.computed()["affected"], "no view was kept by keys"

    wrong = "q01"
    assert proof.check(wrong)["ok"]
    sinks[-1].process.terminate()
    assert sinks[-1].process.wait(60) == 0
    alter_row(
        Location.of(proof.lake),
        wrong,
        {"count_order": "count_order + 1"},
        "l_returnflag = 'N' and l_linestatus = 'O'",
    )
    proof.start()
    document = proof.check(code=1)
    differing = {view["name"]: view for view in document["source"]["views"] if view["state"] != "equal"}
    assert not document["ok"]
    assert differing.keys() == {wrong}, differing
    assert (differing[wrong]["missing"], differing[wrong]["extra"]) == (1, 1)
