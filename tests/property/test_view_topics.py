"""A view's topic folds to the view at every cut, each change once, wherever drivers are killed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cdc.config.settings import Kafka
from cdc.kafka.cluster_facts import TopicFacts, TopicSpec
from cdc.model.change_records import Record
from cdc.model.log_record import LogRecord
from cdc.model.topic_names import view_cuts_topic, view_schema_topic, view_topic
from sinks.warehouse.lake.manifest import Manifest
from sinks.warehouse.topics.view_positions import ViewCut, decoded
from sinks.warehouse.topics.view_topics import ViewTopics
from sinks.warehouse.views.definition import parse_view
from sinks.warehouse.views.version_diff import Pin, ReplacedRows, Versions
from tests.fixtures.lake.small_lakes import SmallLake

_TOPIC: Final = view_topic("shop", "v")
_CUTS: Final = view_cuts_topic("shop", "lake")
_VIEW: Final = parse_view(Path("v.sql"), "-- key: id\n-- publish: topic\nselect id, n from orders")
_ROWS: Final = st.dictionaries(st.integers(0, 7), st.sampled_from(["a", "b"]), max_size=8)


_LISTED: Final = st.tuples(st.sampled_from([None, "a", "b"]), st.lists(st.integers(0, 2), max_size=2))


class Died(Exception):
    """The driver is no more."""


def _table(rows: Mapping[int, str]) -> pa.Table:
    return pa.table({"id": pa.array(list(rows), pa.int64()), "n": pa.array(list(rows.values()), pa.string())})


class Broker:
    """Topics in memory: a transaction is there as a whole, or not at all."""

    def __init__(self) -> None:
        self.log: dict[tuple[str, int], list[Record]] = {}
        self.topics: dict[str, TopicSpec] = {}
        self.dies: str = ""

    def describe(self, topics: Iterable[str]) -> Mapping[str, TopicFacts | None]:
        return {
            name: TopicFacts(
                topic=name,
                topic_id=f"id-{name}",
                partition_count=self.topics[name].partition_count,
                replication_factor=1,
                configs=self.topics[name].configs,
            )
            if name in self.topics
            else None
            for name in topics
        }

    def create(self, specs: Sequence[TopicSpec]) -> None:
        self.topics |= {spec.topic: spec for spec in specs}

    def last_records(self, topic: str) -> dict[bytes, tuple[int, bytes]]:
        found = enumerate(self.log.get((topic, 0), []))
        return {key or b"": (offset, value or b"") for offset, (key, value, _) in found}

    def end_offsets(self, topics: Iterable[str]) -> dict[tuple[str, int], tuple[int, int]]:
        return {
            (topic, partition): (0, len(self.log.get((topic, partition), [])))
            for topic in topics
            for partition in range(self.topics[topic].partition_count)
        }

    def read(
        self, assignments: Mapping[tuple[str, int], int], until: Mapping[tuple[str, int], int]
    ) -> Iterator[list[LogRecord]]:
        for place, start in assignments.items():
            records = self.log[place][start : until[place]]
            yield [LogRecord(*place, start + at, 0, key, value, None) for at, (key, value, _) in enumerate(records)]

    def send(
        self,
        records: Mapping[tuple[str, int], Sequence[Record]],
        closing: Callable[[Mapping[tuple[str, int], int]], tuple[str, Record]],
    ) -> None:
        ends = {at: len(self.log.get(at, [])) + len(some) - 1 for at, some in records.items()}
        topic, last = closing(ends)
        dies, self.dies = self.dies, ""
        if dies == "before":
            raise Died
        for at, some in [*records.items(), ((topic, 0), [last])]:
            self.log.setdefault(at, []).extend(some)
        if dies == "behind":
            raise Died

    def events(self) -> list[tuple[int, int, bytes, dict[str, Any] | None]]:
        """Partition, offset, key and value of all records of the view's topic."""
        return [
            (partition, offset, key or b"", None if value is None else json.loads(value))
            for (topic, partition), records in sorted(self.log.items())
            if topic == _TOPIC
            for offset, (key, value, _) in enumerate(records)
        ]

    def cuts(self) -> list[ViewCut]:
        return [decoded(value or b"", _CUTS) for _, value, _ in self.log.get((_CUTS, 0), [])]


class Publishing(RuleBasedStateMachine):
    sink = "lake"

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.lake = SmallLake(Path(self.folder.name))
        self.broker = Broker()
        self.rows: dict[int, str] = {}
        self.moved: dict[str, ReplacedRows] = {}
        self.manifest: Manifest | None = None
        self.driver = self._driver()
        self.is_settled = False

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(rows=_ROWS, computed=st.booleans())
    def cut(self, rows: dict[int, str], computed: bool) -> None:
        """A cut with another version of the view, or one at which nothing was computed."""
        self.moved = {}
        if computed or self.manifest is None:
            self.rows = rows
            self.lake.view("v", _table(rows))
        self.manifest = self.lake.publish()
        self.is_settled = False

    @rule(keys=st.frozensets(st.integers(0, 7), min_size=1), rows=_ROWS)
    def replace(self, keys: frozenset[int], rows: dict[int, str]) -> None:
        """A cut that keeps the view by some of its keys."""
        if self.manifest is None:
            return
        before = self.manifest.views["v"]
        fresh = {id_: n for id_, n in rows.items() if id_ in keys}
        self.rows = {id_: n for id_, n in self.rows.items() if id_ not in keys} | fresh
        self.lake.view("v", _table(self.rows))
        self.manifest = self.lake.publish()
        old, new = (Pin("views/v/g1", state.version) for state in (before, self.manifest.views["v"]))
        self.moved = {"v": ReplacedRows(old, new, _table(dict.fromkeys(keys, "")).select(["id"]), _table(fresh))}
        self.is_settled = False

    @rule()
    def publish(self) -> None:
        if self.manifest is not None:
            assert self.driver.publish(self.manifest, [_VIEW], self.moved) == {}
            self.is_settled = True

    @rule(rows=_ROWS, versions=st.integers(1, 3))
    def move(self, rows: dict[int, str], versions: int) -> None:
        """The lake is built again in another folder, which may have versions of the same numbers."""
        cut = self.lake.cut
        self.lake = SmallLake(Path(self.folder.name) / f"{cut}-{len(self.broker.cuts())}")
        self.rows, self.moved = rows, {}
        for _ in range(versions):
            self.lake.view("v", _table(rows))
        while self.lake.cut <= cut:  # its LSNs do not go back
            self.manifest = self.lake.publish()
        self.driver, self.is_settled = self._driver(), False

    @rule(when=st.sampled_from(["before", "behind"]), after=st.integers(0, 2), again=st.booleans())
    def die(self, when: str, after: int, again: bool) -> None:
        """In some transaction of a publishing; another driver follows, maybe at the same cut."""
        if self.manifest is None:
            return
        send, left = self.broker.send, [after]

        def some(*arguments: Any) -> None:
            self.broker.dies = "" if left[0] else when
            left[0] -= 1
            send(*arguments)

        self.broker.send = some  # type: ignore[method-assign, assignment]
        try:
            with suppress(Died):
                self.driver.publish(self.manifest, [_VIEW], self.moved)
        finally:
            self.broker.send = send  # type: ignore[method-assign]
        self.driver, self.is_settled = self._driver(), False
        self.moved = {}  # nobody knows it any more
        if again:
            self.publish()

    @invariant()
    def topic_is_what_the_mark_says(self) -> None:
        if not hasattr(self, "broker"):
            return
        events = self.broker.events()
        held: dict[bytes, Any] = {}
        positions = set()
        for at, (partition, _, key, value) in enumerate(events):
            if value is None:
                assert (events[at - 1][0], events[at - 1][2]) == (partition, key), "a tombstone is behind its delete"
                continue
            place = (value["source"]["commit_lsn"], value["source"]["ordinal"])
            assert place not in positions, "two events have one position"
            positions.add(place)
            assert value["op"] == ("d" if value["after"] is None else "u" if key in held else "c")
            assert held.get(key) != value["after"], "a row that did not change was sent"
            if value["after"] is None:
                del held[key]
            else:
                held[key] = value["after"]
        cuts = self.broker.cuts()
        if cuts:
            assert sum(count for _, count, _ in cuts[-1].changed.values()) == len(events)
            assert all(old.end_lsn <= new.end_lsn for old, new in pairwise(cuts))
        if self.is_settled and self.manifest is not None:
            assert held == {b'{"id":%d}' % id_: {"id": id_, "n": n} for id_, n in self.rows.items()}
            assert (cuts[-1].end_lsn, cuts[-1].next_ordinal) == (self.manifest.end_lsn, 0)
            assert self.driver.needed()["views/v/g1"] == {self.manifest.views["v"].version}
            schemas = self.broker.log.get((view_schema_topic("shop", "lake"), 0), [])
            assert not events or schemas

    def _driver(self) -> ViewTopics:
        return ViewTopics(
            "shop",
            self.sink,
            Kafka(bootstrap="", partitions=2, replication_factor=1, allow_unreplicated=True),
            row_bytes_max=1000,
            reader=self.broker,
            sender=self.broker,
            location=self.lake.location,
            directory=self.broker,
            records_max=2,
        )


@settings(max_examples=60, deadline=None)
@given(
    first=_ROWS,
    second=_ROWS,
    sink=st.sampled_from(["lake", "other"]),
    versions=st.integers(1, 2),
    dies=st.sampled_from(["", "before", "behind"]),
)
def test_topic_of_a_view_follows_a_lake_in_another_folder_or_of_another_name(
    first: dict[int, str], second: dict[int, str], sink: str, versions: int, dies: str
) -> None:
    """It deletes what only the earlier lake had, and does not send rows that both have."""
    one = Publishing()
    one.begin()
    with one.folder:
        one.cut(first, computed=True)
        one.publish()
        sent = len(one.broker.events())
        one.sink = sink
        one.move(second, versions)
        if dies:
            one.die(dies, after=1, again=False)
        one.publish()
        events = one.broker.events()

    held = {key: None if value is None else value["after"] for _, _, key, value in events}
    wanted = {b'{"id":%d}' % id_: {"id": id_, "n": n} for id_, n in second.items()}
    assert {key: row for key, row in held.items() if row} == wanted
    changed = {id_ for id_ in first.keys() | second.keys() if first.get(id_) != second.get(id_)}
    assert len(events) - sent == len(changed) + len(first.keys() - second.keys()), "each once, with its tombstone"


@settings(max_examples=40, deadline=None)
@given(
    old=st.dictionaries(st.integers(0, 5), _LISTED, max_size=6),
    new=st.dictionaries(st.integers(0, 5), _LISTED, max_size=6),
    names=st.frozensets(st.sampled_from([None, "a", "b"]), min_size=1),
)
def test_what_a_cut_replaced_has_the_differences_of_its_versions(
    old: dict[int, Any], new: dict[int, Any], names: frozenset[str | None]
) -> None:
    """By another column than the view's key, with nulls, and with lists, which Arrow does not compare."""
    stays = {id_: row for id_, row in old.items() if row[0] not in names}
    fresh = {id_: row for id_, row in new.items() if row[0] in names and id_ not in stays}
    with tempfile.TemporaryDirectory() as folder:
        lake = SmallLake(Path(folder))
        for rows in (old, {**fresh, **stays}):
            lake.view("v", _listed(rows))
        pins = Pin("views/v/g1", 0), Pin("views/v/g1", 1)
        versions = Versions(lake.location, "shop", "v", ("id",), *pins)
        keys = pa.table({"n": pa.array(list(names), pa.string())})

        found = versions.among(ReplacedRows(*pins, keys, _listed(fresh)))

        assert found is not None
        assert sorted(found, key=str) == sorted(versions.differences(), key=str)
        assert versions.among(ReplacedRows(pins[1], pins[0], keys, _listed(fresh))) is None


def _listed(rows: Mapping[int, tuple[str | None, list[int]]]) -> pa.Table:
    names, lists = [[row[place] for row in rows.values()] for place in (0, 1)]
    numbers = pa.array(lists, pa.list_(pa.int64()))
    return pa.table({"id": pa.array(list(rows), pa.int64()), "n": pa.array(names, pa.string()), "of": numbers})


TestPublishing = Publishing.TestCase
TestPublishing.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)
