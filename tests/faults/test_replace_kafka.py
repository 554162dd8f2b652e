"""The Kafka cluster is replaced by one with copied topics: capture continues exactly, or the import refuses by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cdc.config.settings import Kafka
from cdc.kafka.admin import TopicAdmin
from cdc.model.topic_names import progress_topic, schema_topic
from tests.fixtures.capture.referee import history_faults
from tests.fixtures.capture.snapshot_waits import complete
from tests.fixtures.capture.topic_log import read_log
from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.topic_copy import copy_topics
from tests.fixtures.servers.waiting import until
from tests.fixtures.sinks.sink_process import SinkProcess

if TYPE_CHECKING:
    from pathlib import Path

    from cdc.local.valkey_server import Valkey
    from tests.fixtures.servers.commands import Ran
    from tests.fixtures.servers.daemon import CaptureSite, Sections
    from tests.fixtures.servers.running_servers import KafkaServer, MakeStack

KEYS = {"public.t": ["id"], "public.u": ["name"]}


@pytest.fixture
def other_kafka(make_stack: MakeStack) -> KafkaServer:
    """A second cluster."""
    return make_stack("kafka").kafka


def command(site: CaptureSite, config: Path, *arguments: object) -> Ran:
    return cdc("state", *arguments, "-c", config, timeout_s=120)


def topics_of(site: CaptureSite) -> list[str]:
    """The topics that are to be copied."""
    return [site.topic("t"), site.topic("u"), schema_topic(site.name)]


def test_capture_continues_exactly_on_a_cluster_with_copied_topics(
    capture: CaptureSite, other_kafka: KafkaServer
) -> None:
    capture.sql("create table t (id int primary key, v text)", "create table u (name text primary key)")
    oracle = capture.oracle()
    first = capture.running({"snapshot": {"mode": "initial"}})
    complete(capture, first, "public.t", "public.u")
    for n in range(20):
        capture.sql(
            f"insert into t values ({n}, 'former value'), ({n + 100}, 'gone')", f"insert into u values ('name {n}')"
        )
    capture.sql("delete from t where id >= 110", "update t set v = 'changed value' where id < 5")
    capture.settled(first)
    config = capture.folder / "cdc-0.toml"
    state = capture.folder / "state.jsonl"
    while_running = command(capture, config, "export", state)
    assert first.stop() == 0
    capture.sql("insert into t values (1000, 'while stopped')", "delete from t where id = 1")
    exported = command(capture, config, "export", state)
    again = command(capture, config, "export", state)
    same = command(capture, config, "import", state, "--yes")

    moved = replace(capture, bootstrap=other_kafka.bootstrap, daemons=capture.daemons)
    there = moved.write_config({"snapshot": {"mode": "initial"}})
    nothing = command(moved, there, "import", state, "--dry-run")
    copied = copy_topics(capture.bootstrap, moved.bootstrap, topics_of(capture))
    planned = command(moved, there, "import", state, "--dry-run", "--json")
    untouched = TopicAdmin(Kafka(bootstrap=moved.bootstrap)).describe([progress_topic(capture.name)])
    imported = command(moved, there, "import", state, "--yes")
    twice = command(moved, there, "import", state, "--yes")
    second = moved.running({"snapshot": {"mode": "initial"}})
    moved.sql(
        "insert into t values (2000, 'new')",
        "update t set v = 'twice' where id = 1000",
        "delete from u where name = 'name 3'",
    )
    log = moved.settled(second)

    assert (while_running.code, "is in use" in while_running.err) == (1, True), while_running.err
    assert exported.code == 0, exported.err
    assert (again.code, "exists already" in again.err) == (2, True)
    assert (same.code, "exported from" in same.err) == (2, True)
    assert (nothing.code, "is not on the new cluster" in nothing.err) == (3, True), nothing.err
    assert planned.code == 0, planned.err
    assert sum(json.loads(planned.out)["topics"].values()) == copied
    assert untouched == {progress_topic(capture.name): None}, "a dry run creates nothing"
    assert imported.code == 0, imported.err
    assert (twice.code, "imported already" in twice.err) == (2, True), twice.err
    assert history_faults(oracle.changes(), log, KEYS) == []
    assert {event.source["epoch"] for event in log.events} == {1, 2}
    assert log.cuts[0]["epoch"] == 2
    audited = cdc("audit", "-c", capture.folder / "cdc-1.toml")
    assert audited.code == 0, audited.out + audited.err
    for secret in ("former value", "changed value", "name 1", "postgres:", "postgresql:"):
        assert secret not in state.read_text(), "a value of a row, or an address, is in the file"


def test_import_refuses_an_incomplete_copy_and_a_slot_that_went_on(
    capture: CaptureSite, other_kafka: KafkaServer
) -> None:
    capture.sql("create table t (id int primary key, v text)", "create table u (name text primary key)")
    first = capture.running()
    capture.sql("insert into t select g, 'v' from generate_series(1, 10) g", "insert into u values ('a')")
    capture.settled(first)
    assert first.stop() == 0
    state = capture.folder / "state.jsonl"
    assert command(capture, capture.folder / "cdc-0.toml", "export", state).code == 0

    moved = replace(capture, bootstrap=other_kafka.bootstrap, daemons=capture.daemons)
    there = moved.write_config()
    copy_topics(capture.bootstrap, moved.bootstrap, topics_of(capture), skip_last=capture.topic("t"))
    incomplete = command(moved, there, "import", state, "--yes")
    damaged = capture.folder / "damaged.jsonl"
    damaged.write_bytes(state.read_bytes()[:-20])
    cut_off = command(moved, there, "import", damaged, "--yes")
    went_on = capture.running()
    capture.sql("insert into t values (11, 'v')")
    capture.settled(went_on)
    assert went_on.stop() == 0
    later = command(moved, moved.write_config(), "import", state, "--yes")

    assert (incomplete.code, "is not a complete copy" in incomplete.err) == (3, True), incomplete.err
    assert (cut_off.code, "damaged" in cut_off.err) == (2, True), cut_off.err
    assert (later.code, "the slot is at" in later.err) == (3, True), later.err


def test_a_lost_cluster_is_filled_again_from_the_tables_and_the_slot(
    capture: CaptureSite, other_kafka: KafkaServer
) -> None:
    """There is nothing to import. The first start on an empty cluster takes the slot and reads every table."""
    capture.sql("create table t (id int primary key, v text)", "insert into t values (1, 'before')")
    first = capture.running({"snapshot": {"mode": "initial"}})
    capture.settled(first)
    first.kill()
    capture.sql("insert into t values (2, 'while lost')")

    moved = replace(capture, bootstrap=other_kafka.bootstrap, daemons=capture.daemons)
    second = moved.running({"snapshot": {"mode": "initial"}})
    topic = moved.topic("t")
    until(lambda: len(read_log(moved.bootstrap, moved.name).fold(topic)) == 2, "both rows are there")
    rows = moved.settled(second).fold(topic)

    assert [row["v"] for _, row in sorted(rows.items())] == ["before", "while lost"]


def test_cache_stops_as_stale_on_the_new_cluster_and_equals_its_topics_after_a_rebuild(
    capture: CaptureSite, other_kafka: KafkaServer, valkey: Valkey
) -> None:
    sections: Sections = {"sinks.cache": {"kind": "cache", "url": valkey.url}}
    capture.sql("create table t (id int primary key, v text)")
    first = capture.running(sections)
    config = capture.folder / "cdc-0.toml"
    with SinkProcess(config, "cache") as sink:
        lsn = capture.sql("insert into t select g, 'v' from generate_series(1, 10) g", "delete from t where id = 3")
        capture.settled(first)
        assert cdc("wait", "--sink", "cache", "--lsn", lsn, "-c", config).code == 0
        assert sink.stop() == 0
    assert first.stop() == 0
    state = capture.folder / "state.jsonl"
    assert command(capture, config, "export", state).code == 0
    moved = replace(capture, bootstrap=other_kafka.bootstrap, daemons=capture.daemons)
    there = moved.write_config(sections)
    copy_topics(capture.bootstrap, moved.bootstrap, [capture.topic("t"), schema_topic(capture.name)])
    imported = command(moved, there, "import", state, "--yes")
    assert imported.code == 0, imported.err
    moved.running(sections)

    stopped = cdc("sink", "run", "cache", "-c", there)
    rebuilt = cdc("sink", "rebuild", "cache", "-c", there)
    lsn = moved.sql("insert into t values (11, 'v')", "delete from t where id = 4")
    with SinkProcess(there, "cache") as sink:
        waited = cdc("wait", "--sink", "cache", "--lsn", lsn, "-c", there)
        verified = cdc("verify", "cache", "--json", "-c", there)
        assert sink.stop() == 0

    assert (stopped.code, "cdc sink rebuild cache" in stopped.out + stopped.err) == (3, True), stopped.err
    assert rebuilt.code == 0, rebuilt.err
    assert waited.code == 0, waited.err
    assert verified.code == 0, verified.out + verified.err
