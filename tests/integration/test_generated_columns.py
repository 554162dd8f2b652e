"""Generated columns are in every record where the server can publish them, else in none, and are always reported.

On the newest and on the oldest major: stream, snapshot, copy of a table without a key, values that are read again,
`cdc verify`, schema records, log and status have the same columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from cdc.config.load import load
from cdc.local.postgres_programs import OLDER_MAJORS
from cdc.verify.log_check import fold_and_compare
from tests.fixtures.capture.snapshot_waits import complete
from tests.fixtures.servers.daemon import capture_site
from tests.fixtures.servers.running_servers import MAJOR, fresh_database
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fixtures.capture.topic_log import TopicLog
    from tests.fixtures.servers.daemon import CaptureSite, Daemon, Sections
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack

SETTINGS: Final[Sections] = {"snapshot": {"mode": "initial"}, "source": {"keyless": ["public.clicks"]}}
TABLES: Final = (
    """create table priced (id int primary key, net int, gross int generated always as (net * 2) stored,
       note text, big text generated always as (repeat(note, 9000)) stored)""",
    "alter table priced alter column big set storage external",
    "create table clicks (n int, twice int generated always as (n * 2) stored)",
    "alter table clicks replica identity full",
)
ROWS: Final = (
    "insert into priced (id, net, note) select n, n, 'x' from generate_series(1, 50) n",
    "insert into clicks select generate_series(1, 20)",
)
CHANGES: Final = (
    "insert into priced (id, net, note) values (100, 7, 'y')",
    "update priced set net = net + 1 where id <= 5",  # `big` stays as it is: it is read again
    "delete from priced where id = 6",
    "insert into clicks values (50)",
)
GENERATED: Final = {"priced": ["gross", "big"], "clicks": ["twice"]}


@pytest.fixture(params=["", OLDER_MAJORS[0]], ids=["newest", "oldest"])
def site(
    request: pytest.FixtureRequest,
    make_stack: MakeStack,
    kafka: KafkaServer,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CaptureSite]:
    """A capture of the major under test, or of the oldest one, into the run's Kafka."""
    if request.param:
        monkeypatch.setenv(MAJOR, request.param)
    postgres = make_stack("postgres").postgres
    with (
        fresh_database(postgres) as database,
        capture_site(topic_prefix, database.dsn, kafka.bootstrap, tmp_path) as made,
    ):
        yield made


def test_generated_columns_are_in_every_record_or_in_none(site: CaptureSite) -> None:
    site.sql(*TABLES, *ROWS)
    can = _publishes(site)
    if can:
        site.sql("alter table priced add shown int generated always as (net + 1) virtual")
    daemon = site.running(SETTINGS)
    site.sql(*CHANGES)
    log = complete(site, daemon, "public.priced")

    columns = {
        "priced": {"id", "net", "note", *(GENERATED["priced"] if can else [])},
        "clicks": {"n", *(GENERATED["clicks"] if can else [])},
    }
    for table, wanted in columns.items():
        events = [event.document for event in log.topic(site.topic(table)) if event.value is not None]
        assert {event["op"] for event in events} >= {"r", "c"}
        assert {frozenset(event["after"]) for event in events if event["after"]} == {frozenset(wanted)}
        assert _schema(log, table)[0] == wanted
    assert any("big" in event.source.get("reselected", ()) for event in log.events) == can
    assert fold_and_compare(load(site.folder / "cdc-0.toml", {}), site.wal()).ok
    _reported(daemon, log, stored=not can, virtual=can)


def test_publication_of_ours_publishes_generated_columns_from_the_next_start(capture: CaptureSite) -> None:
    """One that was made before PostgreSQL 18, or without the option: rows that are in the log get the columns, too."""
    if not _publishes(capture):
        pytest.skip("from PostgreSQL 18 on")
    capture.sql(*TABLES[:2], ROWS[0], *_by_hand(capture, "priced"))
    daemon = capture.running({**SETTINGS, "source": {"create": False}})
    complete(capture, daemon, "public.priced")
    daemon.terminate()

    daemon = capture.running(SETTINGS)
    until(lambda: daemon.events("snapshot_complete"), "its rows are read again", within_s=60)
    capture.sql(*CHANGES[:3])
    log = capture.settled(daemon)

    assert [event["statement"] for event in daemon.events("publication_altered")] == [
        f'alter publication "{capture.slot}" set (publish_generated_columns = stored);'
    ]
    newest = {event.key: event.document["after"] for event in log.topic(capture.topic("priced")) if event.value}
    assert {frozenset(after) for after in newest.values() if after} == {
        frozenset({"id", "net", "note", *GENERATED["priced"]})
    }
    assert daemon.status()["columns_left_out"] == []
    assert fold_and_compare(load(capture.folder / "cdc-0.toml", {}), capture.wal()).ok


def test_generated_columns_that_a_publication_leaves_out_are_reported_and_left_out_everywhere(
    capture: CaptureSite,
) -> None:
    capture.sql(*TABLES, *ROWS, *_by_hand(capture, "priced, clicks"))
    daemon = capture.running({**SETTINGS, "source": {**SETTINGS["source"], "create": False}})
    capture.sql(*CHANGES)
    log = complete(capture, daemon, "public.priced")

    images = [event.document["after"] for event in log.topic(capture.topic("priced")) if event.value is not None]
    assert {frozenset(after) for after in images if after} == {frozenset({"id", "net", "note"})}
    _reported(daemon, log, stored=True, virtual=False)
    if _publishes(capture):
        commands = {event["command"] for event in daemon.events("columns_left_out")}
        assert commands == {f'alter publication "{capture.slot}" set (publish_generated_columns = stored);'}


def _by_hand(site: CaptureSite, tables: str) -> tuple[str, str]:
    return (
        f"create publication {site.slot} for table {tables}",
        f"select pg_create_logical_replication_slot('{site.slot}', 'pgoutput')",
    )


def _publishes(site: CaptureSite) -> bool:
    return int(site.query("show server_version_num")[0][0]) >= 180000


def _schema(log: TopicLog, table: str) -> tuple[set[str], list[str]]:
    records = [schema for schema in log.schemas if schema["table"] == f"public.{table}"]
    assert len({record["schema_id"] for record in records}) == 1, records
    found = records[-1]
    return {column["name"] for column in found["columns"]}, found.get("left_out", [])


def _reported(daemon: Daemon, log: TopicLog, *, stored: bool, virtual: bool) -> None:
    """Log, status and schema records name what is left out, and nothing else."""
    wanted: dict[str, list[list[str]]] = {"priced": [], "clicks": []}
    for table, columns in GENERATED.items():
        wanted[table] += [columns] if stored else []
    wanted["priced"] += [["shown"]] if virtual else []
    found: dict[str, list[Any]] = {"priced": [], "clicks": []}
    for one in daemon.status()["columns_left_out"]:
        found[one["table"].removeprefix("public.")].append(one["columns"])
    assert found == wanted
    assert [(event["table"], event["columns"]) for event in daemon.events("columns_left_out")] == [
        (one["table"], one["columns"]) for one in daemon.status()["columns_left_out"]
    ]
    for table, lists in wanted.items():
        assert sorted(_schema(log, table)[1]) == sorted(name for names in lists for name in names)
