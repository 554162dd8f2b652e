"""Topics as a real broker describes and creates them, and how capture interprets them."""

from __future__ import annotations

import time

import pytest

from cdc.errors import BrokerRefused, BrokerUnreachable, TopicMismatch
from cdc.kafka.admin import TopicAdmin
from cdc.kafka.cluster_facts import TopicFacts, TopicSpec
from cdc.publish.topic_rules import TopicWant, check, control_wants, data_want
from cdc.publish.topic_setup import ensure_topics
from tests.contract.kafka_clients import NOWHERE, WAIT_S, Broker, create_topic, settings_of

ROW_BYTES_MAX = 16 << 20


def _wants(kafka: Broker, name: str, *tables: str) -> list[TopicWant]:
    settings = settings_of(kafka)
    data = [data_want(f"{name}.public.{table}", settings, row_bytes_max=ROW_BYTES_MAX) for table in tables]
    return [*data, *control_wants(name, settings, row_bytes_max=ROW_BYTES_MAX)]


def _ensure(
    kafka: Broker, wants: list[TopicWant], recorded: dict[str, TopicFacts] | None = None
) -> dict[str, TopicFacts]:
    recorded = recorded or {}
    return ensure_topics(
        TopicAdmin(settings_of(kafka)),
        wants,
        kafka=settings_of(kafka),
        create=True,
        recorded_partitions={topic: facts.partition_count for topic, facts in recorded.items()},
        recorded_topic_ids={topic: facts.topic_id for topic, facts in recorded.items()},
    )


def _delete(kafka: Broker, topic: str) -> None:
    admin = TopicAdmin(settings_of(kafka))
    (future,) = admin._client.delete_topics([topic]).values()
    future.result(WAIT_S)
    end_s = time.monotonic() + WAIT_S
    while admin.describe([topic])[topic] is not None:
        assert time.monotonic() < end_s, "the broker still knows the deleted topic"


def test_a_created_topic_is_described_as_it_was_wanted(kafka: Broker, topic_prefix: str) -> None:
    wants = _wants(kafka, topic_prefix, "t")

    found = _ensure(kafka, wants)

    for want in wants:
        facts = found[want.spec.topic]
        assert facts.partition_count == want.spec.partition_count
        assert facts.replication_factor == 1
        assert facts.configs.items() >= want.spec.configs.items()
        found_weak = [problem.setting for problem in check(want, facts, kafka=settings_of(kafka))]
        assert found_weak == ["replication factor"], "it is accepted, and named"


def test_ids_and_counts_are_the_same_at_the_next_start(kafka: Broker, topic_prefix: str) -> None:
    wants = _wants(kafka, topic_prefix, "t")

    first = _ensure(kafka, wants)

    assert _ensure(kafka, wants, first) == first
    assert len({facts.topic_id for facts in first.values()}) == len(wants)


def test_an_existing_topic_is_adopted_with_its_count(kafka: Broker, topic_prefix: str) -> None:
    (want, *_) = _wants(kafka, topic_prefix, "t")
    create_topic(kafka, want.spec.topic, partitions=7, configs=want.spec.configs)

    assert _ensure(kafka, [want])[want.spec.topic].partition_count == 7


@pytest.mark.parametrize(
    ("setting", "value"),
    [("cleanup.policy", "delete"), ("cleanup.policy", "compact,delete"), ("max.message.bytes", "9")],
)
def test_a_topic_with_wrong_settings_is_refused(kafka: Broker, topic_prefix: str, setting: str, value: str) -> None:
    (want, *_) = _wants(kafka, topic_prefix, "t")
    create_topic(kafka, want.spec.topic, configs={**want.spec.configs, setting: value})

    with pytest.raises(TopicMismatch, match=f"{setting} is ") as caught:
        _ensure(kafka, [want])

    assert f"--add-config {setting}=" in caught.value.command


def test_a_topic_made_again_is_refused_and_a_deleted_one_not_made_again(kafka: Broker, topic_prefix: str) -> None:
    wants = _wants(kafka, topic_prefix, "t")
    topic = wants[0].spec.topic
    recorded = _ensure(kafka, wants)
    _delete(kafka, topic)

    with pytest.raises(TopicMismatch, match="was deleted: the records it had are lost"):
        _ensure(kafka, wants, recorded)
    assert TopicAdmin(settings_of(kafka)).describe([topic]) == {topic: None}

    create_topic(kafka, topic, partitions=4, configs=wants[0].spec.configs)
    with pytest.raises(TopicMismatch, match="was deleted and created again"):
        _ensure(kafka, wants, recorded)


def test_a_name_that_collides_with_an_existing_topic_names_both(kafka: Broker, topic_prefix: str) -> None:
    create_topic(kafka, f"{topic_prefix}.public_a.b")

    with pytest.raises(TopicMismatch) as caught:
        create_topic(kafka, f"{topic_prefix}.public.a_b")

    assert f"{topic_prefix}.public_a.b" in caught.value.message
    assert f"{topic_prefix}.public.a_b" in caught.value.message


def test_a_name_kafka_does_not_take_is_a_mismatch(kafka: Broker, topic_prefix: str) -> None:
    with pytest.raises(TopicMismatch, match="invalid"):
        create_topic(kafka, f"{topic_prefix} with a space")


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ({"replication_factor": 3}, "kafka.replication_factor"),
        ({"configs": {"cleanup.policy": "zork"}}, "setting of the topic"),
    ],
)
def test_what_the_broker_does_not_grant_is_refused_with_a_hint(
    kafka: Broker, topic_prefix: str, spec: dict[str, object], hint: str
) -> None:
    wanted = TopicSpec(topic=topic_prefix, **{"partition_count": 1, "replication_factor": 1, **spec})  # type: ignore[arg-type]

    with pytest.raises(BrokerRefused) as caught:
        TopicAdmin(settings_of(kafka)).create([wanted])

    assert hint in caught.value.hint
    assert caught.value.facts["topic"] == topic_prefix


def test_one_refused_topic_does_not_keep_the_others_from_being_created(kafka: Broker, topic_prefix: str) -> None:
    admin = TopicAdmin(settings_of(kafka))
    good = TopicSpec(topic=f"{topic_prefix}-good", partition_count=1, replication_factor=1)
    bad = TopicSpec(topic=f"{topic_prefix}-bad", partition_count=1, replication_factor=9)

    with pytest.raises(BrokerRefused, match=f"{topic_prefix}-bad"):
        admin.create([good, bad])

    admin.create([good])
    assert admin.describe([good.topic])[good.topic] is not None


def test_many_topics_are_created_and_described_together(
    kafka: Broker, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc.kafka.admin.DESCRIBE_TOPICS_MAX", 25)
    admin = TopicAdmin(settings_of(kafka))
    specs = [
        TopicSpec(topic=f"{topic_prefix}-{number}", partition_count=1, replication_factor=1) for number in range(60)
    ]

    admin.create(specs)
    found = admin.describe([*(spec.topic for spec in specs), f"{topic_prefix}-missing"])

    assert list(found) == [*(spec.topic for spec in specs), f"{topic_prefix}-missing"]
    assert [topic for topic, facts in found.items() if facts is None] == [f"{topic_prefix}-missing"]


def test_nothing_is_asked_for_nothing(kafka: Broker) -> None:
    admin = TopicAdmin(NOWHERE)

    assert admin.describe([]) == {}
    admin.create([])


def test_the_cluster_says_what_it_is(kafka: Broker) -> None:
    facts = TopicAdmin(settings_of(kafka)).broker_facts()

    assert facts.broker_count == 1
    assert facts.cluster_id
    assert int(facts.configs["transaction.max.timeout.ms"]) >= 60_000


def test_no_broker_is_unreachable_in_bounded_time_with_the_reason() -> None:
    start_s = time.monotonic()
    admin = TopicAdmin(NOWHERE)

    with pytest.raises(BrokerUnreachable, match="Connection refused"):
        admin.describe(["t"], timeout_s=0.5)
    with pytest.raises(BrokerUnreachable):
        admin.create([TopicSpec(topic="t", partition_count=1, replication_factor=1)], timeout_s=0.5)
    with pytest.raises(BrokerUnreachable):
        admin.broker_facts(timeout_s=0.5)

    assert time.monotonic() - start_s < 30.0
