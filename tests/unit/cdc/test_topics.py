"""The required form of a topic, and what happens if a topic is missing or differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from cdc.config.settings import Kafka
from cdc.errors import ConfigError, TopicMismatch
from cdc.kafka.cluster_facts import TopicFacts, TopicSpec
from cdc.publish.topic_rules import (
    TopicKind,
    TopicWant,
    check,
    collision,
    control_wants,
    create_command,
    data_want,
    message_bytes_max,
)
from cdc.publish.topic_setup import PROBLEMS_SHOWN_MAX, ensure_topics, refuse_unfit_topics

KAFKA = Kafka(bootstrap="broker:9092")
ROW_BYTES_MAX = 16 << 20


class FakeCluster:
    """Topics in memory; counts requests."""

    def __init__(self, *topics: TopicFacts) -> None:
        self.topics = {facts.topic: facts for facts in topics}
        self.requests: list[str] = []

    def describe(self, topics: Iterable[str]) -> Mapping[str, TopicFacts | None]:
        self.requests.append("describe")
        return {topic: self.topics.get(topic) for topic in topics}

    def create(self, specs: Sequence[TopicSpec]) -> None:
        self.requests.append("create")
        for spec in specs:
            self.topics[spec.topic] = made(spec)


def made(spec: TopicSpec, *, topic_id: str = "", **changed: str) -> TopicFacts:
    """The topic that Kafka creates from `spec`; `changed` are settings, with `__` for dots."""
    return TopicFacts(
        topic=spec.topic,
        topic_id=topic_id or f"id-of-{spec.topic}",
        partition_count=spec.partition_count,
        replication_factor=spec.replication_factor,
        configs={**spec.configs, **{name.replace("__", "."): value for name, value in changed.items()}},
    )


def want(topic: str = "shop.public.t", *, compacted: bool = True, kafka: Kafka = KAFKA) -> TopicWant:
    return data_want(topic, kafka, row_bytes_max=ROW_BYTES_MAX, compacted=compacted)


def ensure(
    cluster: FakeCluster,
    *wants: TopicWant,
    kafka: Kafka = KAFKA,
    create: bool = True,
    partitions: Mapping[str, int] | None = None,
    ids: Mapping[str, str] | None = None,
) -> dict[str, TopicFacts]:
    return ensure_topics(
        cluster,
        wants,
        kafka=kafka,
        create=create,
        recorded_partitions=partitions or {},
        recorded_topic_ids=ids or {},
    )


def test_a_data_topic_keeps_the_latest_record_of_each_key() -> None:
    spec = want().spec

    assert (spec.partition_count, spec.replication_factor) == (4, 3)
    assert spec.configs == {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "86400000",
        "max.compaction.lag.ms": "604800000",
        "delete.retention.ms": "604800000",
        "segment.ms": "3600000",
        "max.message.bytes": "16777216",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "LogAppendTime",
    }


def test_a_topic_without_keys_is_not_compacted() -> None:
    assert want(compacted=False).spec.configs["cleanup.policy"] == "delete"


def test_control_topics_have_one_partition_and_cuts_outlive_tombstones() -> None:
    wants = control_wants("shop", KAFKA, row_bytes_max=ROW_BYTES_MAX)
    progress, cuts, _, _ = wants

    names = ["shop.__progress", "shop.__cuts", "shop.__schema", "shop.__signals"]
    assert [one.spec.topic for one in wants] == names
    assert {one.spec.partition_count for one in wants} == {1}
    assert [one.spec.configs["cleanup.policy"] for one in wants] == ["compact", "delete", "compact", "delete"]
    assert int(cuts.spec.configs["retention.ms"]) >= int(want().spec.configs["delete.retention.ms"])
    assert int(progress.spec.configs["segment.bytes"]) >= int(progress.spec.configs["max.message.bytes"])


def test_small_rows_do_not_make_progress_records_too_large() -> None:
    assert message_bytes_max(1024) == 4 << 20
    assert message_bytes_max(64 << 20) == 64 << 20


@pytest.mark.parametrize("compacted", [True, False])
def test_a_topic_of_our_own_making_has_no_problems(*, compacted: bool) -> None:
    wanted = want(compacted=compacted)

    assert check(wanted, made(wanted.spec), kafka=KAFKA) == []


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_wrong_cleanup_policy_is_refused_with_the_command_that_mends_it(policy: str) -> None:
    wanted = want()

    problems = check(wanted, made(wanted.spec, cleanup__policy=policy), kafka=KAFKA)

    assert [problem.refused for problem in problems] == [True]
    assert str(problems[0]) == f"topic 'shop.public.t': cleanup.policy is {policy}, must be compact"
    assert problems[0].command == (
        "kafka-configs.sh --bootstrap-server broker:9092 --alter --entity-type topics --entity-name shop.public.t "
        "--add-config cleanup.policy=compact"
    )


def test_a_topic_that_takes_larger_records_is_fine_and_one_that_takes_smaller_ones_is_not() -> None:
    wanted = want()

    assert check(wanted, made(wanted.spec, max__message__bytes=str(32 << 20)), kafka=KAFKA) == []
    (problem,) = check(wanted, made(wanted.spec, max__message__bytes="1048588"), kafka=KAFKA)
    assert (problem.setting, problem.refused) == ("max.message.bytes", True)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("min.compaction.lag.ms", "0"),
        ("delete.retention.ms", "86400000"),
        ("min.insync.replicas", "1"),
        ("unclean.leader.election.enable", "true"),
    ],
)
def test_settings_that_weaken_only_the_audit_are_advice(setting: str, value: str) -> None:
    wanted = want()

    (problem,) = check(wanted, made(wanted.spec, **{setting: value}), kafka=KAFKA)

    assert (problem.setting, problem.refused) == (setting, False)
    assert f"--add-config {setting}=" in problem.command


@pytest.mark.parametrize(("retention_ms", "refused"), [("604800000", True), ("-1", False), ("1000000000", False)])
def test_cuts_must_outlive_tombstones(*, retention_ms: str, refused: bool) -> None:
    cuts = control_wants("shop", KAFKA, row_bytes_max=ROW_BYTES_MAX)[1]

    problems = check(cuts, made(cuts.spec, retention__ms=retention_ms), kafka=KAFKA)

    assert bool(problems) == refused
    assert all(problem.refused for problem in problems)


def test_another_partition_count_than_the_recorded_one_is_refused() -> None:
    wanted = want()
    facts = made(wanted.spec)

    assert check(wanted, facts, kafka=KAFKA, recorded_partitions=4) == []
    (problem,) = check(wanted, facts, kafka=KAFKA, recorded_partitions=8)
    assert (problem.setting, problem.found, problem.refused) == ("partition count", "4", True)


def test_topic_that_was_made_again_is_named_with_the_command_that_repairs_it() -> None:
    wanted = want()
    topic = wanted.spec.topic

    with pytest.raises(TopicMismatch) as caught:
        refuse_unfit_topics(
            [wanted],
            {topic: made(wanted.spec, topic_id="new")},
            kafka=KAFKA,
            recorded_partitions={},
            recorded_topic_ids={topic: "old"},
        )

    assert caught.value.message == f"topic {topic!r} was deleted and created again: the records it had are lost"
    assert caught.value.command == "cdc slot recreate --resnapshot"


def test_a_control_topic_with_several_partitions_is_refused() -> None:
    progress = control_wants("shop", KAFKA, row_bytes_max=ROW_BYTES_MAX)[0]
    facts = TopicFacts(
        topic="shop.__progress", topic_id="x", partition_count=3, replication_factor=3, configs=progress.spec.configs
    )

    assert [problem.setting for problem in check(progress, facts, kafka=KAFKA)] == ["partition count"]


def test_refused_problems_come_first() -> None:
    wanted = want()
    facts = made(wanted.spec, min__compaction__lag__ms="0", cleanup__policy="delete")

    assert [problem.refused for problem in check(wanted, facts, kafka=KAFKA)] == [True, False]


def test_few_replicas_are_refused_unless_allowed() -> None:
    allowed = Kafka(bootstrap="broker:9092", replication_factor=1, allow_unreplicated=True)
    wanted = want(kafka=allowed)

    (accepted,) = check(wanted, made(wanted.spec), kafka=allowed)
    assert (accepted.setting, accepted.found, accepted.refused) == ("replication factor", "1", False)
    (problem,) = check(wanted, made(wanted.spec), kafka=KAFKA)
    assert (problem.setting, problem.found, problem.refused) == ("replication factor", "1", True)


def test_names_that_kafka_cannot_tell_apart_are_found() -> None:
    assert collision(["shop.public.a_b", "shop.public.c"]) is None
    assert collision(["shop.public.a_b", "shop.public_a.b"]) == ("shop.public.a_b", "shop.public_a.b")


def test_missing_topics_are_created_in_one_request() -> None:
    cluster = FakeCluster()
    wants = [want(f"shop.public.t{number}") for number in range(2000)]

    found = ensure(cluster, *wants)

    assert set(found) == {one.spec.topic for one in wants}
    assert cluster.requests == ["describe", "create", "describe"]


def test_an_existing_topic_is_adopted_with_its_partition_count() -> None:
    cluster = FakeCluster(
        TopicFacts(
            topic="shop.public.t",
            topic_id="x",
            partition_count=12,
            replication_factor=3,
            configs=want().spec.configs,
        )
    )

    assert ensure(cluster, want())["shop.public.t"].partition_count == 12
    assert cluster.requests == ["describe"]


@pytest.mark.parametrize(
    ("partitions", "ids"), [({"shop.public.t": 4}, {}), ({}, {"shop.public.t": "x"})], ids=["count", "id"]
)
def test_a_recorded_topic_that_is_gone_is_never_made_again(partitions: dict[str, int], ids: dict[str, str]) -> None:
    cluster = FakeCluster()

    with pytest.raises(TopicMismatch, match=r"'shop\.public\.t' was deleted"):
        ensure(cluster, want(), want("shop.public.new"), partitions=partitions, ids=ids)
    assert "create" not in cluster.requests


def test_nothing_is_created_when_that_is_turned_off() -> None:
    cluster = FakeCluster()

    with pytest.raises(TopicMismatch, match=r"kafka\.create_topics is false") as caught:
        ensure(cluster, want(), create=False)

    assert caught.value.command == create_command(want().spec, KAFKA)
    assert "--config cleanup.policy=compact" in caught.value.command
    assert "--partitions 4 --replication-factor 3" in caught.value.command


def test_an_unreplicated_topic_is_not_created_unless_allowed() -> None:
    kafka = Kafka(bootstrap="broker:9092", replication_factor=1)

    with pytest.raises(ConfigError, match=r"kafka\.replication_factor is 1, must be at least 3"):
        ensure(FakeCluster(), want(kafka=kafka), kafka=kafka)


def test_colliding_names_are_refused_before_anything_is_created() -> None:
    cluster = FakeCluster()

    with pytest.raises(TopicMismatch, match=r"'shop\.public\.a_b' and 'shop\.public_a\.b'"):
        ensure(cluster, want("shop.public.a_b"), want("shop.public_a.b"))
    assert "create" not in cluster.requests


def test_a_topic_made_again_is_refused() -> None:
    cluster = FakeCluster(made(want().spec, topic_id="new"))

    with pytest.raises(TopicMismatch, match="was deleted and created again") as caught:
        ensure(cluster, want(), ids={"shop.public.t": "old"})

    assert caught.value.facts["topic"] == "shop.public.t"
    assert caught.value.command == "cdc slot recreate --resnapshot"


def test_advice_does_not_stop_capture() -> None:
    facts = made(want().spec, min__compaction__lag__ms="0")

    assert ensure(FakeCluster(facts), want()) == {"shop.public.t": facts}


def test_many_problems_are_counted_and_a_few_of_them_shown() -> None:
    wants = [want(f"shop.public.t{number}") for number in range(20)]
    cluster = FakeCluster(*(made(one.spec, cleanup__policy="delete") for one in wants))

    with pytest.raises(TopicMismatch) as caught:
        ensure(cluster, *wants)

    assert caught.value.message.count("cleanup.policy") == PROBLEMS_SHOWN_MAX
    assert caught.value.message.endswith("; and 15 more")


def test_a_topic_that_vanishes_meanwhile_is_an_error() -> None:
    class Vanishing(FakeCluster):
        def create(self, specs: Sequence[TopicSpec]) -> None:
            pass

    with pytest.raises(TopicMismatch, match="was deleted while it was checked"):
        ensure(Vanishing(), want())


def test_kinds_say_which_topics_are_of_one_partition() -> None:
    assert {kind for kind in TopicKind if not kind.single} == {
        TopicKind.DATA,
        TopicKind.KEYLESS,
        TopicKind.EVENTS,
        TopicKind.REFUSED,
    }
