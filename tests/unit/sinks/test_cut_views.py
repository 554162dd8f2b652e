"""What a cut records of files that cannot be used, over a lake whose other views did not change. Without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec import structs

from cdc.config.settings import Warehouse
from sinks.warehouse.cut_views import CutViews
from sinks.warehouse.delta.deltars import DeltaRs
from sinks.warehouse.lake.cut_commit import CutCommit
from sinks.warehouse.lake.cut_position import CutPosition
from sinks.warehouse.lake.manifest import Manifest, Pending, Unbuilt
from sinks.warehouse.views.definition import bind, read_views
from sinks.warehouse.views.generations import TextStore
from tests.fixtures.lake.small_lakes import CUT_BYTES, SmallLake
from tests.fixtures.servers.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

ONE_CORE: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
_FIRST = {
    "good": "select id, n from orders",
    "edited": "select id from orders",
    "over": "select count(*) as n from edited",
    "lost": "select n from orders",
}


class Site:
    """A lake with these views at its first cut, and drivers of its views over the files as they are then."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "files"
        self.files.mkdir()
        self.lake = SmallLake(folder / "lake")
        self.lake.write("mirror/public.orders", pa.table({"id": [1, 2], "n": [10, 20]}))
        self.texts = TextStore(self.lake.location)
        self.write(**_FIRST)
        found = read_views(self.files).views
        self.texts.keep(found)
        for bound in bind(found, list(self.lake.tables)):
            self.lake.view(bound.name, pa.table({"id": [1]}), sql_sha=bound.sha)
            state = self.lake.views[bound.name]
            self.lake.views[bound.name] = structs.replace(state, text=bound.view.text_sha, newest=1)

    def write(self, **views: str) -> None:
        for name, sql in views.items():
            (self.files / f"{name}.sql").write_text(sql, encoding="utf-8")

    def driver(self) -> CutViews:
        files = read_views(self.files)
        parts: Any = SimpleNamespace(
            spark=ONE_CORE,
            location=self.lake.location,
            settings=Warehouse(path=str(self.lake.path)),
            views=files.views,
            refused=files.refused,
            texts=self.texts,
            in_frames=False,
            clock=ManualClock(),
            topics=None,
        )
        return CutViews(parts, self.lake.store.current())

    def cut(self, views: CutViews) -> Manifest:
        """The next cut, which changes no table."""
        manifest = self.lake.store.current()
        assert manifest is not None
        number, decided = manifest.cut + 1, views.decided(manifest)
        end = number * CUT_BYTES
        pending = Pending(
            cut=number,
            start_cut=number - 1,
            position=CutPosition(1, end, end - 8, number, {}, {}, 0),
            serve=dict(decided.serve),
            texts=dict(decided.texts),
        )
        commit = CutCommit(self.lake.store, DeltaRs(self.lake.location), pending)
        views.apply(commit, {}, manifest)
        return commit.publish(name="shop", committed_at_us=number)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.lake.publish()
    return made


def test_broken_files_are_recorded_once_and_no_active_view_waits(site: Site) -> None:
    site.write(edited="select (id from orders", wrong="-- plan: quick\nselect id from orders", lost="select id from a")
    (site.files / "a b.sql").write_text("select 1 as x", encoding="utf-8")
    views = site.driver()

    assert views.is_due(site.lake.store.current())
    manifest = site.cut(views)

    assert {name: unbuilt.reason.partition(".sql")[2] for name, unbuilt in manifest.unbuilt.items()} == {
        "edited~2": (
            ", line 1, column 12: is not valid SQL: Expecting ) near 'from'; it is read as Spark SQL; add the first "
            "line `-- dialect: postgres` for PostgreSQL's SQL"
        ),
        "lost~2": (
            ", line 1, column 16: table a does not exist; known names: edited, good, lost, over, public.orders, wrong"
        ),
        "wrong": ", line 1: unknown plan: quick; expected auto or recompute or affected",
        "a b": ": invalid view name 'a b'; use letters, digits and _, no digit first, at most 100",
    }
    assert {name: (state.reason, state.generation) for name, state in manifest.views.items()} == dict.fromkeys(
        _FIRST, ("", 1)
    )
    assert not views.is_due(manifest)
    assert site.cut(views).unbuilt == manifest.unbuilt, "a failed version keeps its number"
    assert views.names == {*_FIRST, "wrong", "a b"}


def test_a_restored_file_ends_the_record_of_its_defect(site: Site) -> None:
    site.write(edited="select (id from orders")
    site.cut(site.driver())
    site.write(edited=_FIRST["edited"])
    views = site.driver()

    assert views.is_due(site.lake.store.current())
    manifest = site.cut(views)

    assert manifest.unbuilt == {}
    assert not views.is_due(manifest)


def test_without_its_text_in_the_lake_the_view_of_a_broken_file_waits_and_so_do_its_readers(site: Site) -> None:
    site.lake.views["edited"] = structs.replace(site.lake.views["edited"], text="")
    site.lake.publish()
    site.write(edited="")
    views = site.driver()

    manifest = site.cut(views)

    assert manifest.views["edited"].reason.endswith("edited.sql: contains no query; write one SELECT into it")
    assert manifest.views["over"].reason == "the view edited is left behind"
    assert manifest.views["good"].reason == ""
    assert (manifest.views["edited"].version, manifest.views["edited"].cut) == (0, 1), "its rows stay as of their cut"


@pytest.mark.parametrize("change", [lambda site: site.write(new="select (1"), lambda site: site.write(new="")])
def test_a_broken_new_view_is_not_in_the_lake(site: Site, change: Callable[[Site], None]) -> None:
    change(site)
    views = site.driver()
    assert views.is_due(site.lake.store.current()), "an idle source must not delay the report"
    manifest = site.cut(views)

    assert "new" not in manifest.views
    assert isinstance(manifest.unbuilt["new"], Unbuilt)
