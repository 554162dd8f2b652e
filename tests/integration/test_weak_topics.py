"""Topic settings on a real broker: those of new topics, and findings about existing topics."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from tests.fixtures.servers.commands import cdc
from tests.fixtures.servers.http_probe import metric
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite

_LAG = "max.compaction.lag.ms"


def settings(capture: CaptureSite, topic: str) -> dict[str, str]:
    """The settings of a topic in effect."""
    admin = AdminClient({"bootstrap.servers": capture.bootstrap, "log_level": 3})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return {name: entry.value for name, entry in admin.describe_configs([resource])[resource].result().items()}


def test_topics_with_rows_that_capture_creates_have_a_bound_for_deleted_rows(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", "create table k (v int)")
    capture.running({"source": {"keyless": ["public.k"]}, "kafka": {"compaction_lag_max_s": 90_000}})

    assert settings(capture, capture.topic("t"))[_LAG] == "90000000"
    for other in (capture.topic("k"), f"{capture.name}.__progress", f"{capture.name}.__cuts"):
        assert int(settings(capture, other)[_LAG]) > 1 << 60, other


def test_weak_settings_of_an_adopted_topic_are_in_log_status_doctor_and_metrics(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    topic = capture.topic("t")
    weak = {
        "cleanup.policy": "compact",
        "max.message.bytes": str(32 << 20),
        "unclean.leader.election.enable": "true",
        "delete.retention.ms": "1000",
    }
    admin = AdminClient({"bootstrap.servers": capture.bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(topic, 1, 1, config=weak)])[topic].result()
    until(lambda: topic in admin.list_topics(timeout=60).topics, f"{topic} is there")
    named = {"unclean.leader.election.enable", "delete.retention.ms", "max.compaction.lag.ms", "replication factor"}

    daemon = capture.running()
    logged = {event["setting"] for event in daemon.events("topic_setting_weak") if event["topic"] == topic}
    served = {one["setting"] for one in daemon.status()["weak_topics"] if one["topic"] == topic}
    port = daemon.events("http_listening")[0]["port"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    config = capture.write_config()
    status: dict[str, Any] = json.loads(cdc("status", "--json", "-c", config).out)
    doctor: dict[str, Any] = json.loads(cdc("doctor", "--json", "-c", config).out)
    findings = [one for one in doctor["findings"] if one["check"] == "topic_weak"]

    assert named <= logged
    assert named <= served
    assert metric(metrics, "cdc_topic_setting_findings", setting="unclean_leader_election_enable") == 1
    assert metric(metrics, "cdc_topic_setting_findings", setting="min_insync_replicas") == 0
    assert metric(metrics, "cdc_topic_setting_findings", setting="internal_replication_factor") > 0, "one broker"
    assert {"delete.retention.ms"} <= {one["setting"] for one in status["weak_topics"]}
    assert any("delete.retention.ms=604800000" in (one["command"] or "") for one in findings)
    assert any("max.compaction.lag.ms=604800000" in (one["command"] or "") for one in findings)
    assert doctor["ok"], "weak settings are warnings"
    assert "delete.retention.ms is 1000" in cdc("status", "-c", config).out


def test_topic_that_was_corrected_with_the_printed_settings_is_not_named_again(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")

    daemon = capture.running()

    of_rows = [one for one in daemon.status()["weak_topics"] if one["setting"] != "internal replication factor"]
    assert {one["setting"] for one in of_rows} <= {"replication factor"}
