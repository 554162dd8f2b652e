"""How a start would end, by rule: facts in, verdict out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from msgspec import structs

from cdc.errors import BrokerUnreachable, ProgressDamaged, SourceRefused
from cdc.kafka.cluster_facts import BrokerFacts, TopicFacts
from cdc.lsn import Lsn
from cdc.model.left_out import LeftOut
from cdc.model.progress_record import Identity, Progress
from cdc.model.run_state import State
from cdc.progress.restore import Restored
from cdc.publish.topic_rules import control_wants, data_want
from cdc.replication.catalog_queries import SourceIdentity
from cdc.replication.eligibility import not_addable, without_key
from cdc.replication.slot import SlotFacts
from cdc.startup.judgement import LogFacts, StartFacts, judge
from tests.fixtures.capture.source_builders import SETTINGS, config, keyless_table, publication, table

CONFIG: Final = config(kafka="replication_factor = 3")
TABLE: Final = table()
WANTS: Final = (
    *control_wants("shop", CONFIG.kafka, row_bytes_max=1 << 24),
    data_want("shop.public.orders", CONFIG.kafka, row_bytes_max=1 << 24),
)
TOPICS: Final = {
    want.spec.topic: TopicFacts(
        topic=want.spec.topic,
        topic_id=f"id of {want.spec.topic}",
        partition_count=want.spec.partition_count,
        replication_factor=3,
        configs=want.spec.configs,
    )
    for want in WANTS
}
IDENTITY: Final = Identity(
    system_identifier="7",
    timeline=1,
    database="shop",
    database_oid=5,
    slot="cdc_shop",
    publication="cdc_shop",
    publication_oid=77,
    server_version=180006,
    partitions={name: facts.partition_count for name, facts in TOPICS.items()},
    topic_ids={name: facts.topic_id for name, facts in TOPICS.items()},
    tables={"public.orders": (TABLE.oid, 1000 + TABLE.oid), "public.dropped": (1, 2)},
)
RESTORED: Final = Restored(
    Progress(epoch=1, end_lsn=0x1000, commit_lsn=0xF00, verified_lsn=0xE00), IDENTITY, {}, Lsn(0), None
)
SLOT: Final = SlotFacts(
    name="cdc_shop", plugin="pgoutput", database="shop", confirmed_flush_lsn=Lsn(0x1000), wal_status="reserved"
)
BROKERS: Final = BrokerFacts(cluster_id="c", broker_count=3, configs={"transaction.max.timeout.ms": "900000"})
LOG: Final = LogFacts(brokers=BROKERS, restored=RESTORED, damage=None, wants=WANTS, topics=TOPICS)
FACTS: Final = StartFacts(
    identity=SourceIdentity("7", 1, False, "shop", 5, 180006),
    settings=SETTINGS,
    slots_used=1,
    tables=(TABLE,),
    outbox=None,
    replication_error=None,
    publication=publication(TABLE),
    slot=SLOT,
    wal_end=Lsn(0x1100),
    log=LOG,
)
NO_SLOT: Final = SlotFacts(name="cdc_shop", exists=False, slot_type="")
NOTHING: Final = replace(LOG, restored=Restored(None, None, {}, Lsn(0), None), topics=dict.fromkeys(TOPICS))
FIRST: Final = replace(
    FACTS,
    slot=NO_SLOT,
    publication=None,
    log=NOTHING,
)


def log(**changes: object) -> LogFacts:
    return replace(LOG, **changes)  # type: ignore[arg-type]


def without(*topics: str) -> LogFacts:
    return log(topics={**TOPICS, **dict.fromkeys(topics)})


@pytest.mark.parametrize("facts", [FACTS, FIRST], ids=["later start", "first start"])
def test_start_in_order_runs(facts: StartFacts) -> None:
    verdict = judge(CONFIG, facts)

    assert (verdict.runs, verdict.waits, verdict.stops, verdict.state) == (True, False, False, None)


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        (replace(FACTS, slot=NO_SLOT), State.GAP, "'cdc_shop' is gone"),
        (replace(FACTS, slot=replace(SLOT, invalidation="wal_removed")), State.GAP, "is lost (wal_removed)"),
        (replace(FACTS, slot=replace(SLOT, confirmed_flush_lsn=Lsn(0x1001))), State.GAP, "is at 0/1001"),
        (replace(FACTS, publication=None), State.GAP, "publication 'cdc_shop' is gone"),
        (replace(FACTS, publication=publication(TABLE, oid=78)), State.GAP, "created again"),
        (
            replace(FACTS, publication=publication(TABLE, tables={TABLE.oid: 1})),
            State.GAP,
            "did not have it for a time",
        ),
        (replace(FACTS, wal_end=Lsn(0xFFF)), State.DIVERGED, "the server's WAL ends at 0/FFF"),
        (replace(FACTS, identity=replace(FACTS.identity, timeline=2)), State.DIVERGED, "timeline 1"),
        (replace(FACTS, identity=replace(FACTS.identity, system_identifier="8")), State.DIVERGED, "identifier"),
        (replace(FACTS, identity=replace(FACTS.identity, database_oid=6)), State.DIVERGED, "database_oid"),
        (replace(FACTS, log=without("shop.public.orders")), State.MISCONFIGURED, "'shop.public.orders' was deleted"),
        (replace(FACTS, log=without("shop.__cuts")), State.MISCONFIGURED, "'shop.__cuts' was deleted"),
    ],
)
def test_damage_that_a_repair_levels_is_named_with_its_command(facts: StartFacts, state: State, words: str) -> None:
    verdict = judge(CONFIG, facts)

    assert verdict.stops
    assert verdict.error is not None
    assert verdict.state is state
    assert words in verdict.error.message
    assert verdict.error.command == "cdc slot recreate --resnapshot"


def test_slot_ahead_of_a_log_with_hidden_commits_is_decided_behind_the_fence() -> None:
    ahead = replace(FACTS, slot=replace(SLOT, confirmed_flush_lsn=Lsn(0x1001)))

    assert judge(CONFIG, replace(ahead, log=log(hidden=True))).runs
    assert judge(CONFIG, ahead).state is State.GAP


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (replace(FACTS, settings={**SETTINGS, "wal_level": "replica"}), "wal_level is 'replica'"),
        (replace(FACTS, identity=replace(FACTS.identity, in_recovery=True)), "standby"),
        (replace(FACTS, identity=replace(FACTS.identity, server_version_num=140012)), "PostgreSQL 14 is too old"),
        (replace(FACTS, replication_error=SourceRefused("no pg_hba.conf entry", hint="edit it")), "pg_hba"),
        (replace(FACTS, tables=(keyless_table(),), left_out=(without_key(keyless_table()),)), "no usable key"),
        (replace(FACTS, tables=()), "no table"),
        (replace(FIRST, settings={**SETTINGS, "max_replication_slots": "1"}), "all 1 replication slots are in use"),
        (replace(FIRST, slot=replace(SLOT, plugin="test_decoding")), "test_decoding"),
        (replace(FIRST, log=replace(NOTHING, brokers=replace(BROKERS, broker_count=1))), "has 1 broker"),
        (replace(FACTS, log=log(brokers=replace(BROKERS, configs={"transaction.max.timeout.ms": "9000"}))), "is 9000"),
        (replace(FIRST, slot=replace(SLOT, database="other")), "other"),
        (replace(FIRST, slot=replace(SLOT, invalidation="wal_removed")), "nothing was captured from it"),
        (replace(FIRST, creating_refused="role 'r' has no CREATE"), "role 'r' has no CREATE"),
        (replace(FIRST, left_out=(not_addable(TABLE, "cdc_shop", "not the owner"),)), "not the owner"),
        (replace(FIRST, log=replace(log(), restored=FIRST.log.restored, filled=["shop.public.orders"])),  # type: ignore[union-attr]
         "'shop.__progress' holds no position, but topic 'shop.public.orders' has records"),
        (replace(FACTS, log=log(damage=ProgressDamaged("not readable", hint="restore it"))), "not readable"),
        (replace(FACTS, log=log(restored=replace(RESTORED, identity=structs.replace(IDENTITY, slot="other")))),
         "written from slot 'other'"),
    ],
)  # fmt: skip
def test_what_only_an_operator_can_change_stops_a_start(facts: StartFacts, words: str) -> None:
    verdict = judge(CONFIG, facts)

    assert verdict.stops
    assert verdict.error is not None
    assert words in verdict.error.message
    assert verdict.error.hint
    assert verdict.error.command != "cdc slot recreate --resnapshot"


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda facts: replace(facts, slot=replace(SLOT, active_pid=7)), State.WAITING),
        (lambda facts: replace(facts, log=None, log_error=BrokerUnreachable("no answer")), State.WAITING),
    ],
    ids=["slot in use", "Kafka away"],
)
def test_what_time_changes_is_waited_for(change: Callable[[StartFacts], StartFacts], state: State) -> None:
    verdict = judge(CONFIG, change(FACTS))

    assert (verdict.waits, verdict.stops, verdict.state) == (True, False, state)


def test_lost_slot_is_a_gap_also_while_kafka_does_not_answer() -> None:
    away = replace(FACTS, log=None, log_error=BrokerUnreachable("no answer"))

    verdict = judge(CONFIG, replace(away, slot=replace(SLOT, invalidation="wal_removed")))

    assert verdict.state is State.GAP


def test_one_table_that_is_left_out_never_refuses_a_start() -> None:
    other = keyless_table()

    assert judge(CONFIG, replace(FACTS, tables=(TABLE, other), left_out=(without_key(other),))).runs


def test_new_table_without_a_topic_is_left_out_alone() -> None:
    by_hand = config(kafka="replication_factor = 3\ncreate_topics = false")
    new = data_want("shop.public.new", CONFIG.kafka, row_bytes_max=1 << 24)
    facts = replace(FACTS, log=log(wants=(*WANTS, new), topics={**TOPICS, new.spec.topic: None}))

    assert judge(by_hand, facts).runs
    assert judge(by_hand, replace(FACTS, log=without("shop.public.orders"))).stops


def test_table_that_does_not_fit_its_topic_is_left_out_alone() -> None:
    other = table(name="other", oid=99)
    changed = LeftOut("public.other", 99, "key_changed", "its key is (id, v) now", "-- give it its former key back")

    assert judge(CONFIG, replace(FACTS, tables=(TABLE, other), left_out=(changed,))).runs
    alone = judge(CONFIG, replace(FACTS, left_out=(replace(changed, table="public.orders", oid=TABLE.oid),)))
    assert (alone.rule, alone.state) == ("tables", State.MISCONFIGURED)


def test_publication_that_lost_a_table_is_a_gap_also_when_the_key_of_the_table_changed() -> None:
    changed = LeftOut("public.orders", TABLE.oid, "key_changed", "its key is (id, v) now", "")

    assert judge(CONFIG, replace(FACTS, publication=publication(), left_out=(changed,))).state is State.GAP


def test_encoding_that_does_not_fit_the_topics_refuses_a_start() -> None:
    refused = SourceRefused("the topic of public.orders has records in the format 'json'")

    verdict = judge(CONFIG, replace(FACTS, form_error=refused))

    assert (verdict.rule, verdict.error) == ("format", refused)


def test_another_source_is_named_before_what_is_missing_in_it() -> None:
    elsewhere = replace(
        FACTS,
        identity=replace(FACTS.identity, system_identifier="8"),
        slot=NO_SLOT,
        publication=None,
        creating_refused="no CREATE",
    )

    assert judge(CONFIG, elsewhere).state is State.DIVERGED
