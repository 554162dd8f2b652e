"""The causes that follow from evidence: every kind once, the root before its consequences, and honest otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from cdc.config.load import parse
from cdc.model.wal_alarm import WalRoom
from cdc.replication.source_activity import LockWait, Sender
from cdc.why import evidence as evidence_of
from cdc.why import gathering
from cdc.why.cause import KINDS, Cause, Level, ranked
from cdc.why.diagnosis import document, exit_code
from cdc.why.evidence import (
    Evidence,
    Failure,
    KafkaEvidence,
    Reach,
    SnapshotEvidence,
    StartEvidence,
)
from cdc.why.reach import reach_urls
from cdc.why.rules import concerning, find_causes, is_healthy
from tests.fixtures.capture.why_scenes import (
    CACHE,
    DEAD,
    DOWN,
    EVERY,
    HEALTHY,
    KAFKA,
    LAGGING,
    MB,
    PREPARED,
    PSQL,
    RUNNING,
    SLOT,
    SOURCE,
    UNREAD,
    failure,
    next_start,
    of_capture,
    of_sink,
    of_snapshot,
    of_source,
    silent_kafka,
    silent_source,
    store_waits,
    waiting,
)
from tests.fixtures.servers.manual_clock import ManualClock


@pytest.mark.parametrize("scene", EVERY)
def test_cause_that_the_evidence_shows_is_named_first(scene: str) -> None:
    code, evidence = EVERY[scene]

    first = find_causes(evidence)[0]

    assert first.code == code
    assert first.says
    assert "  " not in first.says
    assert first.document()["page"].startswith("docs/howto/")


def test_password_that_only_this_command_lacks_is_a_risk_while_capture_runs() -> None:
    running, down = (find_causes(EVERY[f"no password for {of}"][1])[0] for of in ("this command", "the source"))

    assert (running.level, down.level) == (Level.RISK, Level.STOPPED)
    assert "capture still follows the log" in running.evidence
    assert running.says.endswith("source.password_command: aws failed with exit code 1")


def test_every_declared_cause_has_a_scene() -> None:
    assert {code for code, _ in EVERY.values()} == {kind.code for kind in KINDS}


def test_healthy_pipeline_has_no_cause_and_says_what_follows() -> None:
    found = document(HEALTHY)

    assert find_causes(HEALTHY) == []
    assert found["says"] == "nothing is wrong: capture follows the log, lag 0.1 s, 2 sinks follow"
    assert exit_code(found) == 0


_DEAD_KAFKA: Final = silent_kafka("BrokerUnreachable", "refused").kafka
_DEAD_SOURCE: Final = silent_source("SourceUnreachable", "refused").source
_ROOTS: Final[Mapping[str, tuple[Evidence, list[str]]]] = {
    "Kafka down, so capture and a sink wait": (
        replace(
            waiting("broker", "BrokerUnreachable"),
            kafka=_DEAD_KAFKA,
            sinks=(replace(CACHE, state="WAITING", reason="broker", cause=failure("BrokerUnreachable")),),
        ),
        ["broker-unreachable"],
    ),
    "Kafka down, so WAL piles up": (
        replace(
            waiting("broker", "BrokerUnreachable"),
            kafka=_DEAD_KAFKA,
            source=replace(SOURCE, room=WalRoom(5 * MB, 100 * MB)),
        ),
        ["broker-unreachable", "wal-grows"],
    ),
    "both servers down": (
        replace(waiting("source", "SourceUnreachable"), kafka=_DEAD_KAFKA, source=_DEAD_SOURCE),
        ["source-unreachable", "broker-unreachable"],
    ),
    "slot lost, so capture is down": (next_start("slot", "SourceGap"), ["slot-lost", "capture-down"]),
    "capture down, and a sink is behind": (
        replace(DEAD, sinks=(replace(CACHE, state="CATCHING_UP", lag_s=100.0),)),
        ["capture-down", "sink-behind"],
    ),
    "slow broker delays capture, and a snapshot is paused": (
        replace(
            HEALTHY,
            capture=replace(LAGGING, snapshots=(SnapshotEvidence(table="public.t", state="paused"),)),
            kafka=replace(KAFKA, round_trip_s=0.9),
        ),
        ["broker-slow", "snapshot-paused"],
    ),
    "full store blocks a sink beside old dead letters": (
        replace(
            store_waits(answers=True, problems={"memory": "full"}),
            sinks=(
                replace(
                    store_waits(answers=True, problems={"memory": "full"}).sinks[0],
                    blocked=1,
                    blocked_tables=("public.t",),
                ),
            ),
        ),
        ["store-full", "key-blocked"],
    ),
    "transaction holds WAL that piles up": (
        of_source(writers=(PSQL,), room=WalRoom(20 * MB, 100 * MB)),
        ["long-transaction", "wal-grows"],
    ),
    "everything is down": (
        replace(
            DEAD,
            source=_DEAD_SOURCE,
            kafka=_DEAD_KAFKA,
            start=StartEvidence(rule="source", failure=failure("SourceUnreachable"), state="WAITING"),
            sinks=(replace(CACHE, failure=failure("BrokerUnreachable")),),
        ),
        ["source-unreachable", "broker-unreachable", "capture-down"],
    ),
}


@pytest.mark.parametrize("scene", _ROOTS)
def test_root_cause_stands_before_its_consequences(scene: str) -> None:
    evidence, codes = _ROOTS[scene]

    assert [one.code for one in find_causes(evidence)] == codes


def test_cause_that_two_rules_find_is_named_once_with_the_evidence_of_both() -> None:
    first = Cause(code="slot-lost", part="source", says="it is lost", evidence=("a", "b"))
    again = Cause(code="slot-lost", part="source", says="gone", evidence=("b", "c"), hint="h", needs_operator=True)

    (found,) = ranked([first, again])

    assert (found.says, found.evidence, found.hint, found.needs_operator) == ("it is lost", ("a", "b", "c"), "h", True)


def test_order_does_not_depend_on_the_order_of_the_rules() -> None:
    causes = find_causes(replace(DEAD, source=replace(SOURCE, clock_s=99.0, slot=UNREAD, writers=(PSQL,))))

    assert ranked(reversed(causes)) == causes
    assert [one.level for one in causes] == sorted(one.level for one in causes)


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        (HEALTHY, 0),
        (of_source(clock_s=60.0), 0),
        (DEAD, 1),
        (of_sink(state="PAUSED"), 1),
        (next_start("slot", "SourceGap"), 3),
        (of_sink(state="GAP", cause=failure("SinkGap")), 3),
        (replace(next_start("topic", "TopicMismatch"), capture=RUNNING, source=SOURCE), 3),
    ],
    ids=["healthy", "a risk", "down", "paused", "slot lost", "sink gap", "only the next start fails"],
)
def test_exit_code_says_whether_an_operator_must_act(evidence: Evidence, code: int) -> None:
    assert exit_code(document(evidence)) == code


def test_running_capture_whose_next_start_fails_is_a_risk_and_not_a_stop() -> None:
    running = replace(next_start("topic", "TopicMismatch"), capture=RUNNING, source=SOURCE)

    (found,) = find_causes(running)

    assert (found.code, found.level, found.needs_operator) == ("topic-changed", Level.RISK, True)
    assert not is_healthy([found])


def test_sink_is_not_blamed_for_another_sink_and_is_for_the_pipeline() -> None:
    other = replace(CACHE, name="find", kind="search", state="PAUSED")
    causes = find_causes(replace(DEAD, sinks=(CACHE, other)))

    assert [one.part for one in concerning(causes, "cache")] == ["capture"]
    assert [one.part for one in concerning(causes, "find")] == ["capture", "sink find"]
    assert [one.part for one in concerning(causes, "capture")] == ["capture"]
    assert concerning(causes, "") == causes


def test_question_about_snapshots_gets_all_causes_that_delay_one() -> None:
    paused = of_snapshot("paused")
    causes = find_causes(replace(paused, sinks=(replace(CACHE, state="PAUSED"),)))

    assert [one.code for one in concerning(causes, "snapshot")] == ["snapshot-paused"]


def test_capture_that_runs_elsewhere_is_healthy_and_its_silence_is_named() -> None:
    found = document(replace(HEALTHY, capture=replace(DOWN, reach=None), unread={"capture": DOWN.why_not}))

    assert found["healthy"]
    assert "its /status cannot be read" in found["says"]
    assert found["unread"] == [{"what": "capture", "why": DOWN.why_not}]


def test_backlog_says_when_it_will_be_over() -> None:
    slot = replace(SLOT, lag_bytes=100 * MB)
    source = replace(
        SOURCE, slot=slot, confirmed_rate=12.0 * MB, wal_rate=2.0 * MB, sender=Sender("catchup", 0.0, 0.0, 50 * MB)
    )

    (found,) = find_causes(replace(HEALTHY, capture=LAGGING, source=source))

    assert "at the present rate it catches up in 10 s" in found.evidence
    assert "PostgreSQL has 50.0 MiB of WAL left to decode" in found.evidence


def test_unexplained_lag_lists_what_was_checked() -> None:
    (found,) = find_causes(of_capture(state="CATCHING_UP", lag_s=40.0, rows_per_s=0.0))

    assert found.code == "lag-unexplained"
    assert any(fact.startswith("Kafka: 3 brokers") for fact in found.evidence)


def test_transaction_of_the_slot_is_named_while_the_slot_is_being_created() -> None:
    being_made = replace(SLOT, confirmed_flush_lsn=None)
    evidence = replace(
        of_capture(state="STARTING", state_s=3.0), source=replace(SOURCE, slot=being_made, writers=(PSQL, PREPARED))
    )

    first = find_causes(evidence)[0]

    assert first.says == "the transaction of pid 4711 (psql) blocks the creation of the slot"
    assert "1 more write transactions are open" in first.evidence
    assert first.command == "select pg_terminate_backend(4711);"


def test_lock_that_delays_only_a_check_of_a_running_capture_does_not_count_as_a_stop() -> None:
    (found,) = find_causes(of_source(lock_waits=(LockWait("cdc watch", 5.0, PSQL),)))

    assert (found.code, found.level) == ("table-locked", Level.SLOW)


def test_kafka_that_another_collector_has_read_counts_as_slow_and_not_as_down() -> None:
    config = parse('name = "shop"\n[source]\ndsn = "dbname=shop"\n[kafka]\nbootstrap = "127.0.0.1:1"\n', {})
    late: dict[str, Any] = {
        evidence_of.KAFKA: KafkaEvidence(failure=failure("BrokerUnreachable")),
        evidence_of.CAPTURE: RUNNING,
    }
    late[evidence_of.SOURCE] = SOURCE

    down = gathering._assembled(config, ManualClock(), late, {})
    slow = gathering._assembled(config, ManualClock(), {**late, evidence_of.STOP: None}, {})

    assert [one.code for one in find_causes(down)] == ["broker-unreachable"]
    assert [(one.code, one.level) for one in find_causes(slow)] == [("broker-slow", Level.RISK)]


def test_sink_that_capture_reports_is_not_also_unread_while_kafka_is_down() -> None:
    config = parse('name = "shop"\n[source]\ndsn = "dbname=shop"\n[kafka]\nbootstrap = "127.0.0.1:1"\n', {})
    found: dict[str, Any] = {
        evidence_of.KAFKA: KafkaEvidence(failure=failure("BrokerUnreachable")),
        evidence_of.CAPTURE: replace(RUNNING, sinks={"fast": {"state": "RUNNING"}}),
        evidence_of.SOURCE: SOURCE,
    }
    late = dict.fromkeys(("sink fast", "sink other"), "no answer within 8 s")

    unread = gathering._assembled(config, ManualClock(), found, dict(late)).unread

    assert set(late) & set(unread) == {"sink other"}


def test_sink_that_waits_without_an_error_says_for_what_in_words() -> None:
    (cause,) = find_causes(of_sink(state="WAITING", reason="tables"))

    assert cause.says == "sink cache waits: its tables are not captured, or its views not published, yet"


def test_address_of_a_store_says_whether_its_name_network_or_port_is_wrong() -> None:
    found = [find_causes(EVERY[of][1])[0] for of in ("name of a store", "store that does not run")]

    assert found[0].says == "the host name of the store of sink cache does not resolve: cache:6379"
    assert found[1].evidence[0] == "TCP connection to cache:6379: refused, no program listens there"
    assert found[1].hint.startswith("start the store")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://127.0.0.1:1/0", "127.0.0.1:1"),
        ("http://127.0.0.1:1/", "127.0.0.1:1"),
        ("https://[::1]:1", "::1:1"),
        ("redis://nothing.invalid", "nothing.invalid:6379"),
    ],
)
def test_address_of_a_store_is_read_from_its_url(url: str, address: str) -> None:
    (found,) = reach_urls(url, ManualClock())

    assert found.address == address
    assert found.outcome in {"refused", "unresolved", "unreachable"}


def test_brokers_that_refuse_are_told_apart_from_the_one_that_does_not_answer() -> None:
    reach = (Reach("a:9092", "refused"), Reach("b:9092", "answers"), Reach("c:9092", "refused"))
    kafka = KafkaEvidence(failure=Failure("BrokerUnreachable", "no answer"), reach=reach)

    found = document(replace(HEALTHY, kafka=kafka))["causes"][0]

    assert found["says"] == (
        "Kafka on b:9092 accepts the connection but does not answer, and no program listens on a:9092, c:9092"
    )
