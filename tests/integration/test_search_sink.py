"""A search sink end to end: Kafka, its workers, OpenSearch, and the commands for its indices."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdc.clock import Clock, SystemClock
from cdc.config.load import load
from cdc.config.settings import Config
from cdc.errors import SinkStale, TailraceError
from cdc.kafka.group_member import CommittedOffset
from cdc.kafka.group_offsets import GroupAdmin
from cdc.kafka.log_reader import LogReader
from cdc.model.topic_names import sink_group
from sinks.compose import start_applied
from sinks.runner.runner_observer import Unobserved
from sinks.search.rebuild_job import RebuildRequest, rebuild_indices, roll_back_indices
from sinks.state.offset_metadata import metadata
from tests.fixtures.faults.searchproxy import search_proxy
from tests.fixtures.servers.background_thread import beside
from tests.fixtures.servers.commands import cdc, command
from tests.fixtures.servers.opensearch import OpenSearchServer
from tests.fixtures.servers.running_servers import KafkaServer
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.search_targets import ask, documents
from tests.fixtures.sinks.sink_rig import HEAD, SinkRig

CONFIG = (
    HEAD
    + """[sinks.search]
kind = "search"
url = "{url}"
[sinks.search.index]
number_of_replicas = 0
"""
)


@pytest.fixture
def rig(kafka: KafkaServer, topic_prefix: str) -> SinkRig:
    """A topic with its schema on the schema topic."""
    found = SinkRig(kafka.bootstrap, f"{topic_prefix}.public.t", partitions=2)
    found.write_schema(topic_prefix)
    return found


@pytest.fixture
def config_path(rig: SinkRig, opensearch: OpenSearchServer, topic_prefix: str, tmp_path: Path) -> Path:
    path = tmp_path / "cdc.toml"
    path.write_text(CONFIG.format(name=topic_prefix, bootstrap=rig.bootstrap, url=opensearch.url))
    return path


class Ahead(SystemClock):
    """A minute from now."""

    def wall_s(self) -> float:
        return super().wall_s() + 60


@contextmanager
def worker(config: Config, clock: Clock | None = None) -> Iterator[threading.Thread]:
    """A process of the sink, as a thread."""
    stop, errors = threading.Event(), []
    runner = start_applied(config, "search", clock or SystemClock(), observer=Unobserved())

    def run() -> None:
        try:
            runner.run(stop)
        except TailraceError as error:
            errors.append(error)
        finally:
            runner.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()
        if errors:
            raise errors[0]


@contextmanager
def load_on(rig: SinkRig) -> Iterator[None]:
    def write(stop: threading.Event) -> None:
        begin = 1000
        while not stop.wait(0.02):
            rig.write([(begin % 40, None)] if begin % 3 else [])
            rig.fill(20, keys=80, begin=begin)
            begin += 20

    with beside(write):
        yield


def level(rig: SinkRig, group: str) -> bool:
    committed = {place: one.offset for place, one in GroupAdmin(rig.kafka).committed(group, rig.ends()).items()}
    return all(committed.get(place, 0) >= end for place, end in rig.ends().items())


def test_index_is_replaced_and_brought_back_under_load_and_holds_every_row(
    rig: SinkRig, opensearch: OpenSearchServer, topic_prefix: str, config_path: Path
) -> None:
    config = load(config_path, {})
    rig.fill(300)
    name = f"{topic_prefix}.search.public.t"
    group = sink_group(topic_prefix, "search")
    with worker(config):
        until(lambda: level(rig, group), "the sink is level", within_s=120)
        with load_on(rig):
            (swapped,) = rebuild_indices(RebuildRequest(config, "search"), SystemClock())
            done = cdc("sink", "rollback", "search", "-c", config_path, "--json", timeout_s=300)
        until(lambda: level(rig, group), "the sink is level again", within_s=120)

        assert done.code == 0, done.err
        (back,) = json.loads(done.out)["tables"]
        assert (back["now"], back["before"]) == (swapped.before, swapped.now)
        assert list(ask(opensearch.url, "GET", f"/{name}/_alias")) == [swapped.before]
        found = {f'{{"id":{key}}}'.encode(): row for key, row in documents(opensearch.url, name).items()}
        assert found == rig.rows


def test_sink_that_is_stale_goes_on_after_its_rebuild(
    rig: SinkRig, opensearch: OpenSearchServer, topic_prefix: str, config_path: Path
) -> None:
    config, group = load(config_path, {}), sink_group(topic_prefix, "search")
    rig.fill(50)
    admin = GroupAdmin(rig.kafka)
    admin.alter(group, {place: CommittedOffset(0, metadata("of-another-topic", 0.0)) for place in rig.ends()})
    with pytest.raises(SinkStale), worker(config) as thread:
        thread.join(60)

    (swapped,) = rebuild_indices(RebuildRequest(config, "search"), SystemClock())
    with worker(config):
        rig.fill(10, begin=1000)
        until(lambda: level(rig, group), "the sink is level", within_s=120)

    assert swapped.records == 50
    found = documents(opensearch.url, f"{topic_prefix}.search.public.t")
    assert {f'{{"id":{key}}}'.encode(): row for key, row in found.items()} == rig.rows


def killed_before_the_swap(how: str, config_path: Path, url: str) -> None:
    """Run a command for indices until the alias is all that it has to do, and kill it."""
    with search_proxy(url) as proxy:
        proxy.held_path = "/_aliases"
        path = config_path.with_name("proxied.toml")
        path.write_text(config_path.read_text().replace(url, proxy.url))
        with subprocess.Popen(command("sink", how, "search", "-c", path), stderr=subprocess.DEVNULL) as process:
            until(proxy.holding.is_set, "the alias is all that is left to do", within_s=120)
            process.kill()


def test_index_closed_by_a_killed_rebuild_is_opened_by_the_next_worker(
    rig: SinkRig, opensearch: OpenSearchServer, topic_prefix: str, config_path: Path
) -> None:
    config, group = load(config_path, {}), sink_group(topic_prefix, "search")
    name = f"{topic_prefix}.search.public.t"

    def rows() -> dict[bytes, object]:
        return {f'{{"id":{key}}}'.encode(): row for key, row in documents(opensearch.url, name).items()}

    def behind() -> list[str]:
        return list(ask(opensearch.url, "GET", f"/{name}/_alias"))

    rig.fill(50)
    with worker(config):
        until(lambda: level(rig, group), "the sink is level", within_s=120)
    first = behind()
    killed_before_the_swap("rebuild", config_path, opensearch.url)
    (settings,) = ask(opensearch.url, "GET", f"/{name}/_settings?flat_settings=true").values()
    assert settings["settings"]["index.blocks.write"] == "true"

    rig.fill(30, begin=1000)
    with worker(config, Ahead()):
        until(lambda: level(rig, group), "the sink is level again", within_s=120)
    assert (behind(), rows()) == (first, rig.rows)

    (swapped,) = rebuild_indices(RebuildRequest(config, "search"), Ahead())
    assert behind() == [swapped.now] != first
    killed_before_the_swap("rollback", config_path, opensearch.url)
    assert behind() == [swapped.now]
    rig.fill(30, begin=2000)
    (back,) = roll_back_indices(RebuildRequest(config, "search"), Ahead())
    assert ([back.now], back.before) == (first, swapped.now)
    with worker(config):
        rig.fill(30, begin=3000)
        until(lambda: level(rig, group), "the sink is level at last", within_s=120)
    assert (behind(), rows()) == (first, rig.rows)


def test_table_that_the_sink_does_not_keep_is_named(config_path: Path, rig: SinkRig) -> None:
    done = cdc("sink", "rebuild", "search", "--table", "public.x", "-c", config_path)

    assert done.code == 2
    assert "public.x" in done.err
    assert "its tables: public.t" in done.err


def test_stored_query_matches_existing_and_new_rows(
    rig: SinkRig, opensearch: OpenSearchServer, topic_prefix: str, config_path: Path
) -> None:
    config, group = load(config_path, {}), sink_group(topic_prefix, "search")
    rig.fill(30)
    with worker(config):
        until(lambda: level(rig, group), "the sink is level", within_s=120)
        query = '{"range": {"v": {"gte": 28}}}'
        arguments = ("sink", "query", "add", "search", "large", "--table", "public.t", "-c", config_path, "--json")
        added = cdc(*arguments, "--query", query, "--replay", timeout_s=300)
        rig.write([(1, {"id": 1, "v": 100}), (2, {"id": 2, "v": 3})])
        until(lambda: level(rig, group), "the sink is level again", within_s=120)

    assert added.code == 0, added.err
    assert json.loads(added.out)["matched"] == 2
    listed = json.loads(cdc("sink", "query", "list", "search", "-c", config_path, "--json").out)["queries"]
    assert [(each["name"], each["version"], each["query"]) for each in listed] == [("large", 1, json.loads(query))]
    with LogReader(rig.kafka) as reader:
        ends = reader.end_offsets([f"{topic_prefix}.__matches"])
        begins, until_ = ({at: each[side] for at, each in ends.items()} for side in (0, 1))
        records = [record for batch in reader.read(begins, until_) for record in batch]
    found = {record[4]: json.loads(record[5] or b"") for record in records}
    assert sorted(match["key"]["id"] for match in found.values()) == [1, 28, 29]
    assert {(match["query"], match["version"], match["table"]) for match in found.values()} == {
        ("large", 1, "public.t")
    }
