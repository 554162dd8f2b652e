"""Weak settings of existing topics: which are reported, and how they are grouped and counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from cdc.config.load import parse
from cdc.config.settings import Kafka
from cdc.errors import ConfigError
from cdc.kafka.cluster_facts import TopicFacts
from cdc.publish.topic_rules import TopicWant, control_wants, data_want, dead_letters_want, sink_state_want
from cdc.publish.weak_topics import SETTINGS, counted, label_of, weak_settings
from cdc.telemetry.metrics import Metrics
from cdc.telemetry.topic_status import TopicStatus

KAFKA: Final = Kafka(bootstrap="broker:9092", replication_factor=3)
SIZE: Final = 1 << 24
WANTS: Final = [data_want(f"shop.public.t{number}", KAFKA, row_bytes_max=SIZE) for number in range(3)]
LAG: Final = "max.compaction.lag.ms"


def made(want: TopicWant, **changed: str) -> TopicFacts:
    """The topic that Kafka creates; `changed` are settings, with `__` for dots."""
    configs = {**want.spec.configs, **{name.replace("__", "."): value for name, value in changed.items()}}
    return TopicFacts(topic=want.spec.topic, topic_id="id", partition_count=4, replication_factor=3, configs=configs)


def found(**changed: str) -> list[tuple[str, str, int]]:
    weak = weak_settings(WANTS, {want.spec.topic: made(want, **changed) for want in WANTS}, KAFKA)
    return [(one.setting, one.found, len(one.topics)) for one in weak]


def test_topics_as_capture_makes_them_are_not_weak() -> None:
    assert found() == []
    assert weak_settings(WANTS, {}, KAFKA) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("min.insync.replicas", "1"),
        ("min.insync.replicas", "3"),
        ("unclean.leader.election.enable", "true"),
        ("delete.retention.ms", "86400000"),
        ("min.compaction.lag.ms", "0"),
        ("max.compaction.lag.ms", "9223372036854775807"),
    ],
)
def test_weak_setting_is_named_once_for_all_its_topics(setting: str, value: str) -> None:
    assert found(**{setting.replace(".", "__"): value}) == [(setting, value, 3)]


@pytest.mark.parametrize("value", ["86400000", "604800000"])
def test_shorter_compaction_lag_than_ours_is_not_weak(value: str) -> None:
    assert found(max__compaction__lag__ms=value) == []


def test_one_replica_is_weak_also_where_it_is_accepted() -> None:
    accepted = Kafka(bootstrap="broker:9092", replication_factor=1, allow_unreplicated=True)
    facts = replace(made(WANTS[0]), replication_factor=1)

    (weak,) = weak_settings(WANTS, {"shop.public.t0": facts}, accepted)

    assert (weak.setting, weak.found) == ("replication factor", "1")


def test_two_replicas_of_which_one_may_acknowledge_alone_are_weak() -> None:
    accepted = Kafka(bootstrap="broker:9092", replication_factor=2, allow_unreplicated=True)
    facts = replace(made(WANTS[0], min__insync__replicas="1"), replication_factor=2)

    weak = weak_settings(WANTS, {"shop.public.t0": facts}, accepted)

    assert {one.setting for one in weak} == {"replication factor", "min.insync.replicas"}


def test_two_replicas_that_must_both_acknowledge_are_not_weak_for_that() -> None:
    accepted = Kafka(bootstrap="broker:9092", replication_factor=2, allow_unreplicated=True)
    facts = replace(made(WANTS[0], min__insync__replicas="2"), replication_factor=2)

    weak = weak_settings(WANTS, {"shop.public.t0": facts}, accepted)

    assert {one.setting for one in weak} == {"replication factor"}


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_internal_topics_of_kafka_with_few_replicas_are_named(topic: str) -> None:
    internal = TopicFacts(topic=topic, topic_id="i", partition_count=50, replication_factor=1, configs={})

    (weak,) = weak_settings(WANTS, {topic: internal}, KAFKA)

    assert weak.setting == "internal replication factor"
    assert topic in str(weak)


def test_topics_are_counted_by_setting_with_labels_that_are_known_before() -> None:
    topics = {want.spec.topic: made(want, min__insync__replicas="1") for want in WANTS}
    counts = counted(weak_settings(WANTS, topics, KAFKA))

    assert counts["min_insync_replicas"] == 3
    assert sum(counts.values()) == 3
    assert list(counts) == [label_of(setting) for setting in SETTINGS]


def test_many_topics_have_one_line_and_a_few_commands() -> None:
    wants = [data_want(f"shop.public.t{number}", KAFKA, row_bytes_max=SIZE) for number in range(2000)]
    topics = {want.spec.topic: made(want, min__insync__replicas="1") for want in wants}

    (weak,) = weak_settings(wants, topics, KAFKA)

    assert "2000 topics ('shop.public.t0', ...)" in str(weak)
    assert len(weak.command.splitlines()) == 5


def test_deleted_rows_leave_topics_with_rows_in_bounded_time_and_other_topics_have_no_bound() -> None:
    progress, cuts, schema, signals = control_wants("shop", KAFKA, row_bytes_max=SIZE)
    bounded = [WANTS[0], sink_state_want("shop.__blocked.s", KAFKA)]
    others = [progress, cuts, schema, signals, dead_letters_want("shop.__dlq.s", KAFKA, row_bytes_max=SIZE),
              data_want("shop.public.k", KAFKA, row_bytes_max=SIZE, compacted=False)]  # fmt: skip

    assert [want.spec.configs.get(LAG) for want in bounded] == ["604800000"] * 2
    assert not any(LAG in want.spec.configs for want in others)
    unbounded = Kafka(bootstrap="b:1", compaction_lag_max_s=0)
    assert LAG not in data_want("t", unbounded, row_bytes_max=SIZE).spec.configs


def test_bound_never_shortens_the_time_that_readers_have_for_a_tombstone() -> None:
    configs = data_want("t", Kafka(bootstrap="b:1", compaction_lag_max_s=86_400), row_bytes_max=SIZE).spec.configs

    assert int(configs[LAG]) >= int(configs["min.compaction.lag.ms"])
    assert int(configs["delete.retention.ms"]) == 7 * 86_400_000


def test_bound_below_the_audit_window_is_refused() -> None:
    text = 'name = "s"\n[source]\ndsn = "dbname=s"\n[kafka]\nbootstrap = "k:1"\ncompaction_lag_max_s = {}\n'

    with pytest.raises(ConfigError, match="expected 0, or at least 86400"):
        parse(text.format(3600), {})
    assert parse(text.format(86_400), {}).kafka.compaction_lag_max_s == 86_400


def test_metric_falls_back_to_zero_when_a_topic_was_corrected() -> None:
    metrics = Metrics()
    status = TopicStatus(metrics)
    (weak,) = weak_settings(WANTS[:1], {"shop.public.t0": made(WANTS[0], min__insync__replicas="1")}, KAFKA)

    status.topics_checked([weak.document], counted([weak]))
    assert b'cdc_topic_setting_findings{pipeline="",setting="min_insync_replicas"} 1.0' in metrics.render()
    assert status.document == [weak.document]
    status.topics_checked([], counted([]))

    assert b'cdc_topic_setting_findings{pipeline="",setting="min_insync_replicas"} 0.0' in metrics.render()
    assert status.document == []
