"""Topics of outbox events in the lake: an unchanged archive of them, each once, whatever was aborted or killed."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from msgspec import structs

from cdc.config.settings import Warehouse
from cdc.errors import SinkGap, UsageError
from cdc.model.topic_names import cuts_topic, data_topic, schema_topic
from cdc.progress.record_format import encode
from sinks.warehouse import read_changes, read_cut
from tests.contract.kafka_clients import WAIT_S, Broker, create_topic, producing, settings_of
from tests.fixtures.lake.edges import Killed, listen
from tests.fixtures.lake.lake_events import ID, Events, cut, schema
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.outbox.outbox_events import OUTBOX, event, id_of, made

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdc.kafka.producer import TransactionalProducer
    from cdc.model.change_records import Record
    from sinks.warehouse.driver import LakeDriver
    from tests.fixtures.servers.daemon import CaptureSite

PLACED: Final = b'{"total": 3, "note": "\xc3\xbc"}'
TRACE: Final = ("traceparent", b"00-4bf92f35-00f067aa-01")


def headed(event: str, *more: tuple[str, bytes]) -> list[tuple[str, bytes]]:
    return [("id", event.encode()), ("type", b"order.placed"), ("version", b"2"), *more]


class OutboxLog:
    """A log with a table and an event topic, written transaction by transaction like capture's."""

    def __init__(self, kafka: Broker, name: str) -> None:
        self.kafka = kafka
        self.name = name
        self.topic = create_topic(kafka, f"{name}.events.order-20line", partitions=2)
        self.orders = structs.replace(schema(ID), topic=create_topic(kafka, data_topic(name, "public", "orders")))
        create_topic(kafka, schema_topic(name))
        create_topic(kafka, cuts_topic(name))
        self.accounts: dict[str, tuple[int, int]] = {f"{self.topic}-{index}": (0, 0) for index in (0, 1)}
        self.lsn = 0

    def begin(self) -> None:
        """Write the schema of the table, its first row, and a full map."""
        row = Events(self.orders)
        row.put("c", {"id": 1})
        with producing(self.kafka, self.name) as producer:
            ends = self._send(producer, {(schema_topic(self.name), 0): [(b"s", encode(self.orders), None)]})
        self.accounts |= {f"{topic}-{index}": (end, 1) for (topic, index), end in ends.items()}
        self.commit({(self.orders.topic, 0): [(key, value, None) for _, _, _, key, value in row.rows]}, full=True)

    def events(self, *partitions: Sequence[Record]) -> None:
        """Write one transaction of events: records of each partition."""
        self.commit({(self.topic, index): records for index, records in enumerate(partitions) if records})

    def commit(self, records: Mapping[tuple[str, int], Sequence[Record]], *, more: int = 0, full: bool = False) -> None:
        """Write one transaction and its cut; the cut claims `more` records than exist."""
        with producing(self.kafka, self.name) as producer:
            ends = self._send(producer, records)
            for (topic, index), end in ends.items():
                _, count = self.accounts.get(f"{topic}-{index}", (0, 0))
                self.accounts[f"{topic}-{index}"] = (end, count + len(records[topic, index]) + more)
            self.lsn += 100
            known = cut(self.lsn, self.accounts, full=full)
            self._send(producer, {(cuts_topic(self.name), 0): [(None, encode(known), None)]})

    def abort(self, records: Sequence[Record]) -> None:
        """Begin a transaction that its successor fences."""
        with producing(self.kafka, self.name) as producer:
            producer.begin()
            producer.produce_all(self.topic, 0, records)
            producer.flush(WAIT_S)

    @staticmethod
    def _send(
        producer: TransactionalProducer, records: Mapping[tuple[str, int], Sequence[Record]]
    ) -> dict[tuple[str, int], int]:
        lasts: dict[tuple[str, int], list[int]] = {at: [] for at in records}
        producer.begin()
        for (topic, index), found in records.items():
            producer.produce_all(topic, index, found, lasts[topic, index].append)
        producer.flush(WAIT_S)
        producer.commit(WAIT_S)
        return {at: last[0] + 1 for at, last in lasts.items()}


@pytest.fixture
def log(kafka: Broker, topic_prefix: str) -> OutboxLog:
    made = OutboxLog(kafka, topic_prefix)
    made.begin()
    return made


@pytest.fixture
def lake(log: OutboxLog, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    # A driver asks of a capture nothing but its name and where its log is.
    capture = cast("CaptureSite", SimpleNamespace(name=log.name, bootstrap=settings_of(log.kafka).bootstrap))
    with ExitStack() as closing:
        yield LakeSite(capture, spark, tmp_path / "lake", closing, Warehouse(path=str(tmp_path / "lake")))


def settle(log: OutboxLog, driver: LakeDriver) -> None:
    for _ in range(50):
        driver.step()
        if driver.position.end_lsn >= log.lsn:
            return
    raise AssertionError(f"the lake does not come to {log.lsn}")


def archive(lake: LakeSite) -> list[dict[str, Any]]:
    rows = read_cut(lake.spark, lake.path, "archive.events.order line").toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def test_events_are_archived_as_they_came_beside_the_tables(log: OutboxLog, lake: LakeSite) -> None:
    driver = lake.driver()
    log.events(
        [
            (b"7", PLACED, headed("e1", TRACE, ("tag", b"a"), ("tag", b"b"))),
            (b"8", b"\xff\x00avro", headed("e2", ("odd", b"\xfe"))),
        ],
        [(b"9", None, None)],
    )
    settle(log, driver)
    log.abort([(b"7", b"never", headed("e3"))])
    log.events([(b"7", b"", [("type", b"order.paid"), ("id", b"e4")])])
    settle(log, driver)

    first, binary, last, bare = archive(lake)
    text = {"_key": "7", "_key_bytes": None, "_id": "e1", "_type": "order.placed", "_version": "2"}
    assert first == first | text | {"_payload": PLACED.decode(), "_payload_bytes": None, "_partition": 0}
    assert [(header["key"], header["value"]) for header in first["_headers"]] == [
        *[("id", "e1"), ("type", "order.placed"), ("version", "2"), (TRACE[0], TRACE[1].decode())],
        *[("tag", "a"), ("tag", "b")],
    ]
    assert (binary["_payload"], binary["_payload_bytes"]) == (None, b"\xff\x00avro")
    assert binary["_headers"][-1] == {"key": "odd", "value": None, "bytes": b"\xfe"}
    assert (last["_payload"], last["_type"], last["_version"], last["_id"]) == ("", "order.paid", None, "e4")
    assert (bare["_key"], bare["_payload"], bare["_payload_bytes"], bare["_headers"]) == ("9", None, None, None)
    assert bare["_partition"] == 1
    assert first["_timestamp"].tzinfo is not None
    tables = lake.manifest().tables
    assert [name for name in tables if "events" in name] == [f"archive/{log.topic}"]
    assert lake.rows("mirror/public.orders", ["id"]) == [(1,)]
    with pytest.raises(UsageError, match="has outbox events"):
        read_changes(lake.spark, lake.path, f"archive/{log.topic}")


def test_driver_that_dies_before_any_step_leaves_each_event_once(log: OutboxLog, lake: LakeSite) -> None:
    edges = ("replace pending.json", "append", "hold", "replace <cut>.json", "replace current.json", "remove pending")
    passed: set[str] = set()
    wanted: list[str] = []
    settle(log, lake.driver())
    for number, edge in enumerate(edges):

        def die(name: str, edge: str = edge) -> None:
            if name.startswith(edge):
                passed.add(edge)
                raise Killed(name)

        wanted += [f"{number}a", f"{number}b"]
        log.abort([(b"0", b"never", headed("lost"))])
        log.events([(b"1", b"{}", headed(f"{number}a"))], [(b"2", b"{}", headed(f"{number}b"))])
        dying = listen(lake.driver(), die)
        with pytest.raises(Killed):
            dying.step()
        dying.close()
        following = lake.driver()
        stop = threading.Event()
        stop.set()
        following.run(stop)  # what was under way, and no more
        following.close()
    settle(log, lake.driver())

    assert passed == set(edges)
    assert sorted(row["_id"] for row in archive(lake)) == wanted


def test_unselected_events_are_left_out_and_can_join_later(log: OutboxLog, lake: LakeSite) -> None:
    wanted, lake.settings = lake.settings, structs.replace(lake.settings, tables=("*.*", "!events.order line"))
    log.events([(b"1", b"{}", headed("e1"))])
    driver = lake.driver()
    settle(log, driver)
    assert lake.manifest().tables.keys() == {f"archive/{log.orders.topic}", "mirror/public.orders"}
    driver.close()

    lake.settings = wanted
    log.events([(b"1", b"{}", headed("e2"))])
    settle(log, lake.driver())

    assert [row["_id"] for row in archive(lake)] == ["e1", "e2"]


def test_events_that_are_fewer_than_the_cut_index_says_are_a_gap(log: OutboxLog, lake: LakeSite) -> None:
    driver = lake.driver()
    settle(log, driver)
    log.commit({(log.topic, 1): [(b"1", b"{}", headed("e1"))]}, more=1)

    with pytest.raises(SinkGap, match="has 1 records between offsets"):
        settle(log, driver)
    assert f"archive/{log.topic}" not in lake.manifest().tables


def test_every_event_that_capture_routes_is_in_the_archive_once_over_kills(
    capture: CaptureSite, spark: SparkSession, tmp_path: Path
) -> None:
    """The real router, from INSERTs on."""
    capture.sql("create table orders (id int primary key)", *made(), event(1).insert())
    for lake in lake_site(capture, spark, tmp_path):
        daemon = capture.running(OUTBOX)
        driver = lake.driver()
        for number in (2, 3, 4):
            capture.transaction(f"insert into orders values ({number})", event(number).insert())
            capture.transaction(event(10 + number).insert(), "rollback")
            if number == 3:
                daemon.kill()
                daemon = capture.running(OUTBOX)
            lsn = capture.wal()
            daemon.until_position(lsn)
            while driver.position.end_lsn < lsn:
                driver.step()

        rows = read_cut(lake.spark, lake.path, "archive.events.order").toArrow().to_pylist()
        found = [row["_id"] for row in sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))]
        assert found == [id_of(number) for number in (1, 2, 3, 4)]
        assert {(row["_type"], row["_payload"]) for row in rows} == {("placed", '{"total": 3}')}
        assert lake.rows("mirror/public.orders", ["id"]) == [(2,), (3,), (4,)]
