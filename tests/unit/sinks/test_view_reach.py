"""The position of a sink of views, by the lake's own index; not a cut at which its view is left behind."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

import msgspec

from cdc.config.secret import Secret
from cdc.config.settings import Config, Kafka, Search, Source, Warehouse
from cdc.config.sink_kinds import view_lakes
from cdc.errors import TopicMismatch
from cdc.lsn import Lsn
from cdc.model.log_record import LogRecord
from cdc.model.progress_record import SchemaColumn, SchemaRecord
from cdc.model.topic_names import view_cuts_topic, view_schema_topic, view_topic
from cdc.progress.restore import Partition
from sinks.operate.applied_lsn import AppliedCutFinder, Reached, least
from sinks.state.schema_follower import SchemaFollower
from sinks.warehouse.topics.view_positions import BEHIND, COMPLETE, ViewCut
from tests.fixtures.servers.manual_clock import ManualClock

_ID = SchemaColumn(name="id", type="int8", type_oid=20, type_modifier=-1, encoding="integer", key=True)
_SCHEMA = SchemaRecord(
    table="views.v",
    topic=view_topic("shop", "v"),
    schema_id="0" * 8,
    epoch=1,
    lsn=1,
    replica_identity="d",
    key=("id",),
    columns=(_ID,),
)


class _Log:
    """Control topics in memory."""

    def __init__(self) -> None:
        self.topics: dict[str, list[bytes]] = {}

    def end_offsets(self, topics: Iterable[str]) -> dict[Partition, tuple[int, int]]:
        missing = [topic for topic in topics if topic not in self.topics]
        if missing:
            raise TopicMismatch(f"there is no topic {missing[0]!r}", topic=missing[0])
        return {(topic, 0): (0, len(self.topics[topic])) for topic in topics}

    def read(
        self, assignments: Mapping[Partition, int], until: Mapping[Partition, int] | None = None
    ) -> Generator[list[LogRecord], None, None]:
        ((place, start),) = assignments.items()
        while True:
            known = self.topics[place[0]]
            end = len(known) if until is None else until[place]
            yield [LogRecord(place[0], 0, at, 0, b"k", known[at], None) for at in range(start, end)]
            start = end
            if until is not None:
                return

    def last_records(self, topic: str, *, keys: object = None) -> dict[bytes, tuple[int, bytes]]:
        return {b"%d" % at: (at, value) for at, value in enumerate(self.topics[topic])}

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 1 << 40)

    def close(self) -> None:
        pass


def _cut(end_lsn: int, state: str, ordinal: int = 0) -> bytes:
    cut = ViewCut(
        epoch=1, end_lsn=end_lsn, full=True, tables={"views.v": state}, changed={}, cut=1, next_ordinal=ordinal
    )
    return msgspec.json.encode(cut)


def _reach(log: _Log, patterns: Sequence[str]) -> AppliedCutFinder:
    return AppliedCutFinder("shop", patterns, lambda: log, lambda: log, lake="lake")


def test_cut_at_which_the_view_is_left_behind_is_not_reached() -> None:
    log = _Log()
    log.topics[view_cuts_topic("shop", "lake")] = [_cut(100, COMPLETE), _cut(200, COMPLETE)]
    log.topics[view_schema_topic("shop", "lake")] = [msgspec.json.encode(_SCHEMA)]
    mine, other = _reach(log, ["views.v"]), _reach(log, ["views.other"])
    assert mine() == Reached(1, Lsn(200))

    log.topics[view_cuts_topic("shop", "lake")] += [_cut(200, COMPLETE, 1), _cut(300, BEHIND)]

    assert mine() == Reached(1, Lsn(200))
    assert other() == Reached(3, Lsn(300)), "who does not keep the view does not wait for it"
    log.topics[view_cuts_topic("shop", "lake")].append(_cut(400, COMPLETE))
    assert mine() == Reached(4, Lsn(400))


def test_of_several_indices_the_one_furthest_behind_counts_and_one_that_is_not_there_is_not_reached() -> None:
    log = _Log()

    assert least([lambda: Reached(7, Lsn(300)), lambda: Reached(2, Lsn(100))]) == Reached(2, Lsn(100))
    assert least([lambda: Reached(7, Lsn(300)), lambda: None]) is None
    assert least([lambda: Reached(7, Lsn(300)), _reach(log, ["views.v"])]) is None


def test_schemas_of_views_are_known_from_the_lakes_first_cut_on() -> None:
    log = _Log()
    log.topics["shop.__schema"] = []
    book = SchemaFollower(log, "shop", ["views.*"], ManualClock(), lakes=["lake"])
    book.look()
    assert book.tables() == {}

    log.topics[view_schema_topic("shop", "lake")] = [msgspec.json.encode(_SCHEMA)]
    book.look()

    assert book.tables() == {"shop.views.v": _SCHEMA}
    assert book.find("shop.views.v", "0" * 8) == _SCHEMA


def test_only_a_sink_that_names_views_follows_a_lake() -> None:
    config = Config(
        name="shop",
        source=Source(dsn=Secret("postgresql://localhost/shop")),
        kafka=Kafka(bootstrap="localhost:9092"),
        sinks={
            "lake": Warehouse(path="lake/", views="views/"),
            "plain": Warehouse(path="other/"),
            "find": Search(url="http://localhost:9200"),
        },
    )

    assert view_lakes(config, ["views.order_document"]) == ["lake"]
    assert view_lakes(config, ["*.*"]) == []
    assert view_lakes(config, ["public.*", "!views.x"]) == []
