"""The doctor's findings about Kafka."""

from __future__ import annotations

from cdc.config.settings import Config
from cdc.doctor.action_checks import check_actions
from cdc.doctor.broker_checks import check_broker, wanted_topics
from cdc.doctor.finding import Finding, Level
from cdc.doctor.sink_rights import MissingRights
from cdc.kafka.cluster_facts import BrokerFacts, TopicFacts
from tests.fixtures.capture.source_builders import config, keyless_table, table

BROKERS = BrokerFacts(cluster_id="c1", broker_count=3, configs={"transaction.max.timeout.ms": "900000"})


def look(
    settings: Config,
    *,
    cluster: BrokerFacts = BROKERS,
    existing: dict[str, dict[str, str]] | None = None,
    replicas: int = 3,
    offline: int = 0,
    tables: int = 1,
) -> list[Finding]:
    """Return findings that are not OK; `existing`: topics with the required settings, except for these."""
    wants = wanted_topics(settings, [table()] if tables == 1 else [table(f"t{n}") for n in range(tables)])
    topics = {
        want.spec.topic: TopicFacts(
            topic=want.spec.topic,
            topic_id="id",
            partition_count=want.spec.partition_count,
            replication_factor=replicas,
            offline=offline,
            configs={**want.spec.configs, **(existing or {})[want.spec.topic]},
        )
        if want.spec.topic in (existing or {})
        else None
        for want in wants
    }
    return [f for f in check_broker(cluster, wants, topics, settings) if f.level is not Level.OK]


def test_topics_wanted_are_the_control_topics_and_one_of_each_table_that_can_be_captured() -> None:
    wants = wanted_topics(config(), [table(), keyless_table("bad"), keyless_table("log", keyless=True)])

    assert [want.spec.topic for want in wants] == [
        "shop.__progress",
        "shop.__cuts",
        "shop.__schema",
        "shop.__signals",
        "shop.public.orders",
        "shop.public.log",
    ]


def test_three_brokers_and_no_topics_are_fine() -> None:
    assert look(config()) == []


def test_unreplicated_topics_are_an_error_until_they_are_allowed() -> None:
    (refused,) = look(config(kafka="replication_factor = 1"))
    (allowed,) = look(config(kafka="replication_factor = 1\nallow_unreplicated = true"))

    assert refused.level is Level.ERROR
    assert "allow_unreplicated" in refused.command
    assert allowed.level is Level.WARNING


def test_more_replicas_than_brokers_are_an_error() -> None:
    (finding,) = look(config(), cluster=BrokerFacts(cluster_id="c", broker_count=1, configs={}))

    assert finding.level is Level.ERROR
    assert "there is one broker" in finding.message


def test_missing_topic_made_by_hand_gets_its_command() -> None:
    found = look(config(kafka="create_topics = false"))

    assert len(found) == 5
    assert all(f.level is Level.ERROR and "--create --topic" in f.command for f in found)


def test_existing_topic_with_other_settings_is_named_with_the_command() -> None:
    existing = {"shop.public.orders": {"cleanup.policy": "delete", "delete.retention.ms": "1000"}}

    found = look(config(), existing=existing)

    assert [f.level for f in found] == [Level.ERROR, Level.WARNING]
    assert "cleanup.policy is delete, must be compact" in found[0].message
    assert "--add-config cleanup.policy=compact" in found[0].command


def test_topics_that_differ_in_the_same_way_are_one_finding_with_their_number() -> None:
    existing: dict[str, dict[str, str]] = {f"shop.public.t{n}": {} for n in range(40)}

    (refused,) = look(config(), existing=existing, replicas=1, tables=40)
    (allowed,) = look(
        config(kafka="replication_factor = 1\nallow_unreplicated = true"), existing=existing, replicas=1, tables=40
    )

    assert refused.level is Level.ERROR
    assert refused.message.startswith("40 topics ('shop.public.t0', ...): replication factor is 1, must be at least 3")
    assert (allowed.level, allowed.check) == (Level.WARNING, "replication_factor")


def test_partitions_without_a_leader_are_an_error_that_names_their_topics() -> None:
    existing: dict[str, dict[str, str]] = {f"shop.public.t{n}": {} for n in range(5)}

    (finding,) = look(config(), existing=existing, offline=2, tables=5)
    (single,) = look(config(), existing={"shop.public.orders": {}}, offline=1)

    assert (finding.level, finding.check, finding.command) == (Level.ERROR, "topic_offline", "cdc why")
    assert finding.message.startswith(
        "10 partitions of 'shop.public.t0', 'shop.public.t1', 'shop.public.t2' and 2 more have no leader: nothing can"
    )
    assert single.message.startswith("1 partition of 'shop.public.orders' has no leader")


def test_short_transaction_limit_of_the_brokers_is_an_error() -> None:
    cluster = BrokerFacts(cluster_id="c", broker_count=3, configs={"transaction.max.timeout.ms": "1000"})

    (finding,) = look(config(), cluster=cluster)

    assert finding.check == "transaction_timeout"


def test_topic_of_actions_is_a_warning_where_nothing_creates_it_or_a_right_is_missing() -> None:
    by_hand = config(kafka="create_topics = false")
    exists = TopicFacts(
        topic="shop.__actions",
        topic_id="id",
        partition_count=1,
        replication_factor=3,
        configs={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
    )
    lacking = MissingRights("topic shop.__actions", ("WRITE",), "kafka-acls.sh --add")

    (missing,) = check_actions(by_hand, None, [])
    (refused,) = check_actions(by_hand, exists, [lacking])

    assert list(check_actions(config(), None, [])) == []
    assert list(check_actions(by_hand, exists, [])) == []
    assert (missing.level, missing.message) == (
        Level.WARNING,
        "topic 'shop.__actions' does not exist, and kafka.create_topics is false: actions are not recorded",
    )
    assert "--create" in missing.command
    assert refused.message == "topic shop.__actions records actions, and the user lacks WRITE"
    assert refused.command == "kafka-acls.sh --add"
