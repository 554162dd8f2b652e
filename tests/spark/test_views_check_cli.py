"""`cdc views check --source` as a user runs it, against real servers: what it prints, and its exit codes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.lake.wrong_row import alter_row
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.commands import Ran, cdc

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite

_PG: Final = "-- dialect: postgres\n"
_VIEWS: Final = {
    "names": f"{_PG}-- key: id\nselect id, name from people",
    "counted": f"{_PG}select p.id, count(*) as n from people p join orders o on o.person = p.id group by p.id",
    "behind": f"{_PG}select id, 10 / (id - 70) as q from people",
    "unbuilt": f"{_PG}select id, 10 / (id - 7) as q from people",
    "in_spark": "select id from people",
}
_WAIT_S: Final = 120


class Site:
    """A running capture and a lake with these views."""

    def __init__(self, capture: CaptureSite, lake: LakeSite, folder: Path) -> None:
        self.capture = capture
        self.lake = lake
        self._folder = folder
        sections: Any = {"sinks.lake": {"kind": "warehouse", "path": str(lake.path), "views": str(folder / "views")}}
        self.daemon = capture.running(sections)
        self.config = capture.write_config(sections)
        self.driver = lake.driver()
        capture.sql("insert into people select i, 'n' || i from generate_series(1, 60) i")
        capture.sql("insert into orders select i, i % 60 + 1 from generate_series(1, 90) i")
        lake.settle(self.daemon, self.driver)
        capture.sql("insert into people values (70, 'a reason to be left behind')")
        lake.settle(self.daemon, self.driver)

    def drive(self, stop: threading.Event) -> None:
        """Make cuts until the end."""
        while not stop.is_set():
            self.driver.step()
            stop.wait(0.2)

    def check(self, *words: object, config: Path | None = None, wait_s: float = _WAIT_S) -> Ran:
        """Run the command."""
        return cdc(
            *("views", "check", *words, "--source", "--timeout", wait_s, "-c", config or self.config),
            timeout_s=3 * _WAIT_S,
        )

    def other(self, old: str, new: str) -> Path:
        """Return a configuration in which a text is replaced."""
        text = self.config.read_text()
        assert old in text
        path = self._folder / "other.toml"
        path.write_text(text.replace(old, new))
        return path


@pytest.fixture
def site(capture: CaptureSite, quick: SparkSession, tmp_path: Path) -> Iterator[Site]:
    views = tmp_path / "views"
    views.mkdir()
    for name, text in _VIEWS.items():
        (views / f"{name}.sql").write_text(text)
    capture.sql(
        "create table people (id int primary key, name text)",
        "create table orders (id int primary key, person int)",
    )
    with contextmanager(lake_site)(capture, quick, tmp_path, views=str(views)) as lake:
        yield Site(capture, lake, tmp_path)


@contextmanager
def role(capture: CaptureSite) -> Iterator[str]:
    """A role that may read `people`. Yields a connection string with it."""
    name = f"reader_{capture.name}"
    with capture.connect() as session:
        session.execute(sql.SQL("create role {} login password 'x'").format(sql.Identifier(name)))
        try:
            session.execute(sql.SQL("grant select on people to {}").format(sql.Identifier(name)))
            yield make_conninfo(capture.dsn, user=name, password="x")
        finally:
            session.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
            session.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@pytest.mark.timeout(1200)
def test_check_tells_what_it_found_and_what_it_could_not_compare(site: Site) -> None:
    with beside(site.drive):
        shown = site.check("names")
        assert (shown.code, "✓ names equals PostgreSQL's own answer at" in shown.out) == (0, True), shown

        shown = site.check("--all")
        assert shown.code == 1
        assert "behind: not compared: it is left behind at cut" in shown.err
        assert "in_spark: cannot be checked: it is written in Spark SQL" in shown.err
        assert "unbuilt: not compared: it has no rows yet: " in shown.err
        assert "2 of 5 views equal PostgreSQL's own answer at" in shown.err

        with role(site.capture) as dsn:
            shown = site.check("--all", config=site.other(site.capture.dsn, dsn))
            assert shown.code == 1
            assert "counted: not compared" in shown.err
            assert "permission denied for table orders; `cdc doctor --sql` prints the statements for a DBA" in shown.err
            assert "names" not in shown.err, "its table may be read"

        with site.capture.connect() as session, session.transaction():
            session.execute("lock table orders in access exclusive mode")
            shown = site.check("counted")
        assert (shown.code, "counted: undecided: another session holds a lock" in shown.err) == (1, True), shown

        shown = site.check("names", "--json", config=site.other(site.capture.dsn, f"{site.capture.dsn}_gone"))
        error = json.loads(shown.err)["error"]
        assert (shown.code, error["class"]) == (3, "SourceRefused"), shown
        assert "the database in source.dsn does not exist" in error["hint"]

        shown = site.check("names", config=site.other(site.capture.bootstrap, "127.0.0.1:1"), wait_s=5)
        assert (shown.code, "Kafka" in shown.err) == (1, True), shown

    alter_row(site.lake.location, "names", {"name": "'wrong'"}, "id = 7")
    site.driver = site.lake.driver()
    with beside(site.drive):
        shown = site.check("names")
        assert shown.code == 1
        assert "rows differ in name" in shown.err
        assert "only in PostgreSQL: id=7" in shown.err
        assert "wrong" not in shown.out + shown.err, "values are shown on request only"
        assert "name=wrong" in site.check("names", "--values").err

    site.capture.sql("insert into orders values (1000, 1)")
    shown = site.check("counted", wait_s=3)
    assert shown.code == 1
    assert "the lake did not catch up within 3 s" in shown.err
    assert "if cuts take longer, raise --timeout" in shown.err
