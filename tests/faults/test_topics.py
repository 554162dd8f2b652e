"""Topics in a wrong state: capture names the problem, stops, and writes nothing (C8, C10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fixtures.servers.daemon import CaptureSite

_STOPS_S: Final = 120.0


@pytest.fixture
def admin(capture: CaptureSite) -> AdminClient:
    """An administrator's client; `capture` has a table `t` and has not run."""
    capture.sql("create table t (id int primary key)")
    return AdminClient({"bootstrap.servers": capture.bootstrap, "log_level": 3})


def test_lost_progress_topic_is_a_named_stop(capture: CaptureSite, admin: AdminClient) -> None:
    run_once(capture)
    delete(admin, f"{capture.name}.__progress")

    stop = capture.daemon().stopped_with()

    assert_named(stop, capture.topic("t"))
    assert len(capture.log().events) == 1


def test_damaged_progress_is_a_named_stop_whatever_the_damage(capture: CaptureSite, admin: AdminClient) -> None:
    run_once(capture)
    topic = f"{capture.name}.__progress"

    for key, value, named in (
        (capture.name, b'{"version":99,"epoch":1,"end_lsn":1}', "99"),
        (capture.name, b"\x00\x01not ours", "not readable"),
        (f"{capture.name}/identity", None, "identity"),
    ):
        produce(capture, topic, key, value)
        stop = capture.daemon().stopped_with()
        assert_named(stop, topic)
        assert named in stop["message"]


def test_data_topic_made_again_is_a_named_stop(capture: CaptureSite, admin: AdminClient) -> None:
    run_once(capture)
    delete(admin, capture.topic("t"))
    create(admin, capture.topic("t"), partitions=2, policy="compact")

    assert_named(capture.daemon().stopped_with(), capture.topic("t"))


def test_deleted_data_topic_is_a_named_stop(capture: CaptureSite, admin: AdminClient) -> None:
    run_once(capture)
    delete(admin, capture.topic("t"))

    assert_named(capture.daemon().stopped_with(), capture.topic("t"))


def test_topic_of_a_table_that_left_keeps_its_counts_until_it_is_deleted(
    capture: CaptureSite, admin: AdminClient
) -> None:
    capture.sql("create table u (id int primary key)")
    capture.running().stop()
    partition, without = f"{capture.topic('u')}-0", {"source": {"tables": ["public.t"]}}

    capture.running(without).stop()
    kept = [cut["changed"] for cut in capture.log().cuts if cut["full"]]
    delete(admin, capture.topic("u"))
    capture.running(without).stop()
    full = [cut["changed"] for cut in capture.log().cuts if cut["full"]]

    assert all(partition in changed for changed in kept)
    assert len(full) > len(kept)
    assert not any(partition in changed for changed in full[len(kept) :])


def test_deleted_data_topic_while_running_is_a_named_stop(capture: CaptureSite, admin: AdminClient) -> None:
    # Once the client does not find the topic, it waits for it as long as capture has patience.
    daemon = run_on(capture, {"transaction.timeout.ms": "12000"})
    delete(admin, capture.topic("t"))
    capture.sql("insert into t values (2)")

    assert_named(daemon.stopped_with(_STOPS_S), capture.topic("t"))


def test_limit_of_a_topic_lowered_while_running_is_a_named_stop(capture: CaptureSite, admin: AdminClient) -> None:
    capture.sql("alter table t add column body text")
    daemon = run_on(capture)
    entry = ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, capture.topic("t"), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()

    capture.sql("insert into t values (2, (select string_agg(md5(g::text), '') from generate_series(1, 3000) g))")

    assert_named(daemon.stopped_with(_STOPS_S), capture.topic("t"))
    assert [event.after["id"] for event in capture.log().events] == [1]


def test_more_partitions_than_recorded_is_a_named_stop(capture: CaptureSite, admin: AdminClient) -> None:
    run_once(capture)
    admin.create_partitions([NewPartitions(capture.topic("t"), 5)])[capture.topic("t")].result()
    until(lambda: partition_count(admin, capture.topic("t")) == 5, "the new partitions are there")

    stop = capture.daemon().stopped_with()

    assert_named(stop, capture.topic("t"))
    assert "5" in stop["message"]
    assert "2" in stop["message"]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_wrong_cleanup_policy_is_a_named_stop_with_the_command(
    capture: CaptureSite, admin: AdminClient, policy: str
) -> None:
    create(admin, capture.topic("t"), partitions=1, policy=policy)

    stop = capture.daemon().stopped_with()

    assert_named(stop, capture.topic("t"))
    assert "cleanup.policy" in stop["message"]
    assert "cleanup.policy=compact" in stop["command"]


def test_progress_topic_with_two_partitions_is_a_named_stop(capture: CaptureSite, admin: AdminClient) -> None:
    create(admin, f"{capture.name}.__progress", partitions=2, policy="compact")

    assert_named(capture.daemon().stopped_with(), f"{capture.name}.__progress")


def test_records_of_another_program_in_a_new_data_topic_are_a_named_stop(
    capture: CaptureSite, admin: AdminClient
) -> None:
    create(admin, capture.topic("t"), partitions=1, policy="compact")
    produce(capture, capture.topic("t"), "foreign", b"{}")

    assert_named(capture.daemon().stopped_with(), capture.topic("t"))


def test_another_program_that_writes_to_a_data_topic_costs_nothing_and_is_seen(
    capture: CaptureSite, admin: AdminClient
) -> None:
    daemon = run_on(capture)
    for partition in range(2):
        produce(capture, capture.topic("t"), "foreign", b"{}", partition)

    capture.sql("insert into t select generate_series(2, 20)")
    ours = [record for record in capture.settled(daemon).data if record.key != b"foreign"]

    assert sorted(record.after["id"] for record in ours) == list(range(1, 21))
    until(lambda: "another program writes" in str(daemon.events()), "it is logged")


def test_missing_topics_are_named_when_we_may_not_create_them(capture: CaptureSite, admin: AdminClient) -> None:
    stop = capture.daemon({"kafka": {"create_topics": False}}).stopped_with()

    assert_named(stop, f"{capture.name}.__")
    assert "kafka-topics" in stop["command"]


def test_existing_topic_is_adopted_with_its_own_partition_count(capture: CaptureSite, admin: AdminClient) -> None:
    create(admin, capture.topic("t"), partitions=7, policy="compact")
    capture.daemon().until_running()
    daemon = capture.daemons[-1]
    daemon.until_position(capture.sql("insert into t select generate_series(1, 200)"))

    assert daemon.stop() == 0
    again = capture.running()
    capture.sql("insert into t select generate_series(201, 300)")
    log = capture.settled(again)

    assert len(log.events) == 300
    assert {record.partition for record in log.topic(capture.topic("t"))} == set(range(7))
    assert log.faults() == []


def run_on(capture: CaptureSite, options: Mapping[str, str] | None = None) -> Any:
    """A daemon that has captured one row; `options` are those of its Kafka client."""
    daemon = capture.running({"kafka.options": dict(options or {})})
    daemon.until_position(capture.sql("insert into t values (1)"))
    return daemon


def run_once(capture: CaptureSite) -> None:
    """Capture one row and stop."""
    assert run_on(capture).stop() == 0


def assert_named(stop: dict[str, Any], topic: str) -> None:
    """A stop for an operator that names the topic."""
    assert stop["state"] == "MISCONFIGURED"
    assert stop["exit_code"] == 3
    assert topic in stop["message"]


def produce(capture: CaptureSite, topic: str, key: str, value: bytes | None, partition: int = 0) -> None:
    """Write one record past the daemon."""
    producer = Producer({"bootstrap.servers": capture.bootstrap, "log_level": 3})
    producer.produce(topic, key=key, value=value, partition=partition)
    assert producer.flush(30) == 0


def create(admin: AdminClient, topic: str, *, partitions: int, policy: str) -> None:
    """Make a topic as somebody else would."""
    config = {"cleanup.policy": policy, "max.message.bytes": str(32 << 20)}
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result()
    until(lambda: partition_count(admin, topic) == partitions, f"{topic} is there")


def delete(admin: AdminClient, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin.delete_topics([topic])[topic].result()
    until(lambda: partition_count(admin, topic) == 0, f"{topic} is gone")


def partition_count(admin: AdminClient, topic: str) -> int:
    """0 when the topic is not there."""
    found = admin.list_topics(timeout=60).topics.get(topic)
    return 0 if found is None or found.error is not None else len(found.partitions)
