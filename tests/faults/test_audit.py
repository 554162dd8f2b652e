"""The audit on a real broker: it names what other programs did to the log, and reports no intact log."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.fixtures.capture.repair_scenes import repaired
from tests.fixtures.capture.snapshot_waits import INITIAL, complete
from tests.fixtures.faults.workload import SCHEMA, writing
from tests.fixtures.servers.commands import Ran, cdc
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from tests.fixtures.servers.daemon import CaptureSite, Sections

FOLLOWED: Final[Sections] = {"audit": {"enabled": True, "interval_s": 0.2}, "capture": {"catalog_check_s": 0.2}}
SMALL: Final[Sections] = {**FOLLOWED, "capture": {"batch_rows_max": 40, "catalog_check_s": 0.2}}
KILLS: Final = 2
# The cleaner has no lag to respect, and segments that are closed at once.
EAGER: Final = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "100",
    "max.message.bytes": str(32 << 20),
}


def test_log_is_whole_after_kill_9_at_random_moments_and_every_record_is_compared(capture: CaptureSite) -> None:
    capture.sql(*SCHEMA)
    chance = random.Random(seed())

    with writing(capture.dsn, seed()):
        for _ in range(KILLS):
            daemon = capture.running(SMALL)
            time.sleep(chance.uniform(0, 1))  # the moment is what the test is about
            daemon.kill()
            assert daemon.events("audit_found") == []
    daemon = capture.running(SMALL)
    log = capture.settled(daemon)
    whole = audit(capture)

    assert whole["ok"]
    assert whole["not_auditable"] == []
    assert whole["from_lsn"] is None
    assert whole["records"] == len(log.data) + len(log.topic(f"{capture.name}.__schema"))
    assert whole["cuts"] >= len(log.cuts)
    read = "the daemon's own audit has read it"
    until(lambda: (daemon.status()["audit"] or {}).get("records", 0) >= whole["records"], read)
    assert daemon.status()["audit"]["findings"] == 0


def test_record_of_another_program_is_named_by_command_and_daemon_and_repaired(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)", "insert into t values (1)")
    sections: Sections = {**INITIAL, **FOLLOWED, "audit": {**FOLLOWED["audit"], "on_finding": "warn"}}
    warned = capture.running(sections)
    warned.until_position(capture.sql("insert into t select generate_series(2, 20)"))
    topic = capture.topic("t")
    (offset,) = produce(capture, topic, b'{"id":999}', b"{}")
    warned.until_position(capture.sql("insert into t select generate_series(21, 60)"))
    found = refused(cdc("audit", "--json", "-c", capture.write_config()))
    shown = cdc("audit", "--topic", f"*.{topic.rpartition('.')[2]}", "-c", capture.write_config())
    until(lambda: (warned.status()["audit"] or {}).get("findings"), "the daemon has found it, too")
    assert warned.stop() == 0
    stop = capture.daemon({**INITIAL, **FOLLOWED}).stopped_with()

    assert [(one["kind"], one["topic"], one["offsets"]) for one in found] == [("foreign", topic, [offset])]
    assert shown.code == 3
    assert f"{topic}-0 between offsets" in shown.out + shown.err
    assert "try: cdc slot recreate --resnapshot" in shown.err
    assert (stop["state"], stop["exit_code"]) == ("DIVERGED", 3)
    assert (stop["topic"], stop["kind"]) == (topic, "foreign")
    repaired(capture, stop["command"], sections={**INITIAL, **FOLLOWED})
    again = capture.running({**INITIAL, **FOLLOWED})
    again.until_position(capture.sql("insert into t select generate_series(61, 90)"))
    until(lambda: (again.status()["audit"] or {}).get("records", 0) >= 30, "the new epoch is followed")
    log = complete(capture, again, "public.t")
    assert again.status()["audit"]["findings"] == 0
    foreign = [record.value for record in log.topic(topic) if record.key == b'{"id":999}']
    assert foreign[-1] is None, "the repair has taken the foreign key away"


def test_event_that_is_dropped_after_it_was_accounted_for_is_named(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    daemon = capture.running(mutant="drop_accounted:50")
    daemon.until_position(
        capture.sql(*(f"insert into t select generate_series({n}, {n + 9})" for n in range(1, 200, 10)))
    )
    assert daemon.stop() == 0

    found = refused(cdc("audit", "--json", "-c", capture.write_config()))

    dropped = 200 - len(capture.log().events)
    assert dropped > 0
    assert sum(one["expected"] - one["found"] for one in found) == dropped
    assert {one["kind"] for one in found} == {"lost"}


def test_event_that_is_dropped_before_it_was_accounted_for_is_not_seen(capture: CaptureSite) -> None:
    """What the audit cannot do: it knows of the source only what capture has told the cut index."""
    capture.sql("create table t (id int primary key, v text)")
    daemon = capture.running(mutant="drop_unaccounted:vanishes")
    capture.sql("insert into t values (1, 'stays')", "insert into t values (2, 'vanishes')")
    log = capture.settled(daemon)

    assert audit(capture)["ok"]
    assert len(log.events) == 1


def test_compacted_topic_is_reported_as_not_auditable_and_not_as_damaged(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key, v text)")
    topic = capture.topic("t")
    admin = AdminClient({"bootstrap.servers": capture.bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(topic, 1, 1, config=EAGER)])[topic].result()
    daemon = capture.running()
    daemon.until_position(capture.sql("insert into t values (1, 'first')", *["update t set v = v || 'x'"] * 20))

    def compacted() -> bool:
        capture.sql("update t set v = 'again'")  # closes the segment before
        return len(capture.log().topic(topic)) < 15

    until(compacted, "the cleaner was there", within_s=120, every_s=1.0)
    # The last one, so that there is a range that is whole.
    daemon.until_position(capture.sql("insert into t values (2, 'last')"))
    after = audit(capture)

    assert after["ok"]
    (hidden,) = after["not_auditable"]
    assert (hidden["topic"], hidden["partition"]) == (topic, 0)
    assert 20 < hidden["before_offset"] <= capture.log().topic(topic)[-1].offset


def test_audit_says_what_is_missing_before_anything_is_compared(capture: CaptureSite) -> None:
    config = capture.write_config()

    nothing, wrong = cdc("audit", "-c", config), cdc("audit", "--from-lsn", "x", "--since-last", "-c", config)

    assert (nothing.code, wrong.code) == (3, 2)
    assert "has no cuts" in nothing.err
    assert "try: cdc run" in nothing.err


def test_audit_goes_on_behind_the_last_one(capture: CaptureSite) -> None:
    capture.sql("create table t (id int primary key)")
    daemon = capture.running()
    middle = capture.sql("insert into t select generate_series(1, 30)")
    daemon.until_position(middle)
    first = audit(capture, "--since-last")
    daemon.until_position(capture.sql("insert into t values (31)"))

    second, by_lsn = audit(capture, "--since-last"), audit(capture, "--from-lsn", str(middle))

    assert (first["records"], second["records"], by_lsn["records"]) == (31, 1, 1)


def audit(capture: CaptureSite, *options: str) -> dict[str, Any]:
    """What `cdc audit` says of a log that is whole."""
    ran = cdc("audit", "--json", *options, "-c", capture.write_config())
    assert ran.code == 0, ran.err + ran.out
    found: dict[str, Any] = json.loads(ran.out)
    return found


def refused(ran: Ran) -> list[dict[str, Any]]:
    """The findings of an audit that must have some."""
    assert ran.code == 3, ran.err + ran.out
    error = json.loads(ran.err)["error"]
    assert (error["class"], error["state"]) == ("LogDamaged", "DIVERGED")
    found: list[dict[str, Any]] = json.loads(ran.out)["findings"]
    return found


def produce(capture: CaptureSite, topic: str, key: bytes, value: bytes) -> list[int]:
    """Write a record past the daemon; returns its offset."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": capture.bootstrap, "log_level": 3})

    def delivered(_: object, message: Message) -> None:
        offset = message.offset()
        assert offset is not None
        offsets.append(offset)

    producer.produce(topic, key=key, value=value, partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    return offsets
