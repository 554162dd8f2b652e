"""Views as topics: what is sent, once, together with the lake's cuts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cdc.clock import SystemClock
from cdc.config.settings import Kafka, Search
from cdc.errors import ProducerFenced
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.progress_record import SchemaRecord
from cdc.model.topic_names import view_cuts_topic, view_schema_topic, view_topic
from cdc.verify.key_states import Sample
from cdc.verify.store_check import verify_store
from sinks.operate.lsn_wait import is_at
from sinks.waiting import applied_probe
from sinks.warehouse.topics.view_positions import BEHIND, ViewCut, decoded
from tests.fixtures.lake.running_lake import LakeSite, lake_site
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.memory_target import MemoryTarget
from tests.fixtures.sinks.sink_beside_capture import SINK, config_of, sinking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.fixtures.servers.daemon import CaptureSite, Daemon

_DOCUMENTS = """-- key: id
-- publish: topic
select o.id, o.note, sum(l.price) as total,
  sort_array(collect_list(struct(l.line, l.price))) as lines
from orders o join lines l on l.order_id = o.id group by o.id, o.note
"""


@pytest.fixture
def lake(capture: CaptureSite, spark: SparkSession, tmp_path: Path) -> Iterator[LakeSite]:
    views = tmp_path / "views"
    views.mkdir()
    (views / "order_document.sql").write_text(_DOCUMENTS)
    capture.sql(
        "create table orders (id int primary key, note text)",
        "create table lines (order_id int, line int, price numeric(10,2), primary key (order_id, line))",
    )
    yield from lake_site(capture, spark, tmp_path, views=str(views))


def _begun(lake: LakeSite, sections: dict[str, dict[str, Any]] | None = None) -> Daemon:
    """Put six orders with two lines each into the log."""
    daemon = lake.capture.running(sections)
    lake.capture.sql(
        "insert into orders select n, 'n' || n from generate_series(1, 6) n",
        "insert into lines select n, l, n + l / 4.0 from generate_series(1, 6) n, generate_series(1, 2) l",
    )
    daemon.until_position(lake.capture.wal())
    return daemon


class TopicLog:
    """Return the committed records in the topics of a site."""

    def __init__(self, site: LakeSite) -> None:
        self._name = site.capture.name
        self._kafka = Kafka(bootstrap=site.capture.bootstrap)

    def records(self, topic: str) -> list[tuple[bytes | None, Any]]:
        with LogReader(self._kafka, client_id="test") as reader:
            ends = reader.end_offsets([topic])
            read = reader.read({at: low for at, (low, _) in ends.items()}, {at: high for at, (_, high) in ends.items()})
            found = [(record[4], record[5]) for batch in read for record in batch]
        return [(key, None if value is None else msgspec.json.decode(value)) for key, value in found]

    def view(self, view: str = "order_document") -> list[tuple[bytes | None, Any]]:
        return self.records(view_topic(self._name, view))

    def cuts(self) -> list[ViewCut]:
        topic = view_cuts_topic(self._name, "lake")
        return [decoded(msgspec.json.encode(value), topic) for _, value in self.records(topic)]

    def schemas(self) -> list[SchemaRecord]:
        found = self.records(view_schema_topic(self._name, "lake"))
        return [msgspec.convert(value, SchemaRecord) for _, value in found]


def test_topic_of_a_view_has_each_change_once_and_says_which_cut_it_is_as_of(lake: LakeSite) -> None:
    site, log = lake.capture, TopicLog(lake)
    daemon = _begun(lake)
    driver = lake.driver()
    lake.settle(daemon, driver)
    first = len(log.view())
    assert {value["op"] for _, value in log.view()} == {"c"}
    assert first == 6

    site.sql(
        "update orders set note = 'other' where id = 1",
        "delete from lines where order_id = 2",
        "insert into orders values (7, 'new')",
        "insert into lines values (7, 1, 1.5)",
        "update orders set note = note where id = 3",
    )
    manifest = lake.settle(daemon, driver)

    later = [(key, None if value is None else value["op"]) for key, value in log.view()]
    counted = {key: [op for k, op in later if k == key] for key, _ in later}
    assert counted[b'{"id":1}'] == ["c", "u"]
    assert counted[b'{"id":2}'] == ["c", "d", None]
    assert counted[b'{"id":3}'] == ["c"], "a row that did not change was sent again"
    assert counted[b'{"id":7}'] == ["c"]
    row = next(value for key, value in log.view() if key == b'{"id":7}')
    assert row["after"] == {"id": 7, "note": "new", "total": "1.50", "lines": [{"line": 1, "price": "1.50"}]}
    assert row["source"]["schema"] == "views"
    assert row["source"]["commit_lsn"] == manifest.end_lsn
    last = log.cuts()[-1]
    assert (last.end_lsn, last.next_ordinal, last.cut) == (manifest.end_lsn, 0, manifest.cut)
    assert sum(count for _, count, _ in last.changed.values()) == len(later)
    schema = log.schemas()[-1]
    assert schema.schema_id == row["source"]["schema_id"]
    assert [(c.name, c.type, c.encoding) for c in schema.columns][2:] == [
        ("total", "numeric", "decimal"),
        ("lines", "record[]", "json_value"),
    ]
    assert [field.name for field in schema.columns[3].fields] == ["line", "price"]


def test_driver_that_dies_between_manifest_and_topic_loses_and_doubles_nothing(
    lake: LakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, log = lake.capture, TopicLog(lake)
    daemon = _begun(lake)
    driver = lake.driver()
    lake.settle(daemon, driver)
    topics = driver._parts.topics
    assert topics is not None
    site.sql("update orders set note = 'lost?' where id = 1", "delete from lines where order_id = 5")

    class Dead(Exception):
        pass

    def die(*_: object) -> None:
        raise Dead

    monkeypatch.setattr(topics._sender, "send", die)
    with pytest.raises(Dead):
        lake.settle(daemon, driver)
    before = log.view()
    ahead = lake.manifest()
    assert log.cuts()[-1].cut < ahead.cut, "the test is weaker than it says"

    again = lake.driver()
    again._resume()
    assert log.cuts()[-1].end_lsn == ahead.end_lsn
    new = [record for record in log.view() if record not in before]
    assert sorted((key, value and value["op"]) for key, value in new if value) == [
        (b'{"id":1}', "u"),
        (b'{"id":5}', "d"),
    ]
    assert (b'{"id":5}', None) in new
    assert len(log.view()) == len(before) + 3
    count = len(log.cuts())
    again._resume()
    assert len(log.cuts()) == count, "what is in the topic was sent again"

    monkeypatch.undo()
    site.sql("update orders set note = 'late' where id = 2")
    with pytest.raises(ProducerFenced):
        lake.settle(daemon, driver)


def test_many_changes_are_one_spread_cut_that_goes_on_where_a_crash_ended_it(
    lake: LakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TopicLog(lake)
    daemon = _begun(lake)
    driver = lake.driver()
    topics = driver._parts.topics
    assert topics is not None
    topics._records_max = 2
    send, calls = topics._sender.send, [0]

    class Dead(Exception):
        pass

    def twice(*args: Any) -> None:
        calls[0] += 1
        if calls[0] > 2:
            raise Dead
        send(*args)

    monkeypatch.setattr(topics._sender, "send", twice)
    with pytest.raises(Dead):
        lake.settle(daemon, driver)
    assert [cut.next_ordinal for cut in log.cuts()] == [1, 1]
    assert len(log.view()) == 4

    again = lake.driver()
    again._resume()

    assert sorted(key or b"" for key, _ in log.view()) == [b'{"id":%d}' % n for n in range(1, 7)]
    assert log.cuts()[-1].next_ordinal == 0
    ordinals = [value["source"]["ordinal"] for _, value in log.view()]
    assert sorted(ordinals) == list(range(6))


def test_view_whose_key_is_not_one_is_left_behind_and_nothing_is_published(lake: LakeSite, tmp_path: Path) -> None:
    site, log = lake.capture, TopicLog(lake)
    (tmp_path / "views" / "prices.sql").write_text("-- key: line\n-- publish: topic\nselect line, price from lines")
    daemon = _begun(lake)
    driver = lake.driver()

    lake.settle(daemon, driver)

    reason = driver._views._keeper.behind["prices"]
    assert "view prices cannot have the key line: 12 rows have 2 keys" in reason
    assert log.cuts()[-1].tables == {"views.order_document": "complete", "views.prices": BEHIND}
    assert log.cuts()[-1].changed.keys() == {
        f"{view_topic(site.name, 'order_document')}-0",
        f"{view_topic(site.name, 'order_document')}-1",
    }


def test_sink_of_a_view_follows_its_topic_and_says_how_far_it_is(lake: LakeSite, tmp_path: Path) -> None:
    site = lake.capture
    sink = {"kind": "search", "url": "http://127.0.0.1:1", "tables": ["views.*"]}
    warehouse = {"kind": "warehouse", "path": str(lake.path), "views": str(tmp_path / "views")}
    daemon = _begun(lake, {f"sinks.{SINK}": sink, "sinks.lake": warehouse})
    driver, target, config = lake.driver(), MemoryTarget(), config_of(site)
    lake.settle(daemon, driver)

    with ExitStack() as closing:
        closing.enter_context(sinking(config, target))
        settings = config.sinks[SINK]
        assert isinstance(settings, Search)
        sight = applied_probe(config, SINK, settings, closing)
        site.sql("update orders set note = 'seen' where id = 4", "delete from lines where order_id = 3")
        manifest = lake.settle(daemon, driver)
        until(lambda: is_at(sight.look(), Lsn(manifest.end_lsn)), "the sink has the view")

        held = {
            one.key: one.content for one in target.stored_keys(view_topic(site.name, "order_document")) if one.content
        }
        assert held.keys() == {b'{"id":%d}' % n for n in (1, 2, 4, 5, 6)}
        assert held[b'{"id":4}'] == {
            "id": 4,
            "note": "seen",
            "total": "8.75",
            "lines": [{"line": 1, "price": "4.25"}, {"line": 2, "price": "4.50"}],
        }
        (found,) = verify_store(config, SINK, target, (), clock=SystemClock(), sample=Sample(1.0, 0), repair=False)
        assert (found.table, found.compared, found.ok) == ("views.order_document", 5, True)
        site.sql("insert into lines values (7, 1, 1)")
        daemon.until_position(site.wal())
        assert not is_at(sight.look(), site.wal()), "the lake has not made that cut"
