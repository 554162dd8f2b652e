"""The cut index against an independent reader, which counts and hashes the records by the documented definition."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fixtures.capture.rolling_hash import rolled
from tests.fixtures.faults.workload import KEYS, SCHEMA, writing
from tests.fixtures.servers.daemon import CaptureSite, capture_site
from tests.fixtures.servers.running_servers import fresh_database
from tests.fixtures.servers.seed import seed
from tests.fixtures.servers.transaction_state import PREPARE_COMMIT, transaction_states
from tests.fixtures.servers.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.capture.topic_log import LogRecord, TopicLog
    from tests.fixtures.servers.running_servers import KafkaServer, PostgresServer

WRITTEN: Final = 120  # transactions of the workload
_PRODUCERS: Final = 8  # that a start fences


@pytest.fixture(scope="module")
def busy(
    postgres: PostgresServer, kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[CaptureSite, TopicLog]]:
    """What a daemon with small caps made of two busy moments with a restart between; all tests here look at it."""
    name = f"t{uuid.uuid4().hex[:10]}"
    with (
        fresh_database(postgres) as database,
        capture_site(name, database.dsn, kafka.bootstrap, tmp_path_factory.mktemp("cuts")) as capture,
    ):
        yield capture, busy_log(capture)


def test_cuts_agree_with_what_an_independent_reader_counts(busy: tuple[CaptureSite, TopicLog]) -> None:
    _, log = busy

    assert len(log.cuts) > 20
    assert any(cut["next_ordinal"] for cut in log.cuts)
    assert cut_faults(log) == []


def test_full_cuts_have_every_partition_and_come_at_each_start(busy: tuple[CaptureSite, TopicLog]) -> None:
    _, log = busy

    full = [cut for cut in log.cuts if cut["full"]]
    partitions = {f"{topic}-{partition}" for topic, partition in log.records if ".__" not in topic}
    assert log.cuts[0]["full"]
    assert len(full) >= 2
    assert all(partitions <= set(cut["changed"]) for cut in full)
    assert full[0]["tables"] == dict.fromkeys(KEYS, "complete")


def test_data_progress_and_cut_are_one_kafka_transaction(busy: tuple[CaptureSite, TopicLog]) -> None:
    """Asked of the broker's own record of transactions. Each producer begins with a sentinel."""
    capture, log = busy
    control = {f"{capture.name}.__progress-0", f"{capture.name}.__cuts-0"}

    states = transaction_states(capture.bootstrap, capture.name)
    committed = [partitions for state, partitions in states if state == PREPARE_COMMIT]
    later = iter(committed)

    assert committed[:_PRODUCERS] == [control] * _PRODUCERS, "the sentinels"
    assert all(control <= transaction for transaction in committed)
    assert len(log.cuts) == len(log.progress)
    sentinels = len(committed) - len(log.cuts)
    assert sentinels > 0
    assert sentinels % _PRODUCERS == 0
    for cut in log.cuts:
        assert cut["full"] or any(transaction - control == set(cut["changed"]) for transaction in later), cut


def test_progress_and_cuts_say_the_same_position_and_never_go_back(busy: tuple[CaptureSite, TopicLog]) -> None:
    _, log = busy

    fields = ("epoch", "end_lsn", "commit_lsn", "next_ordinal", "verified_lsn")
    cuts = [tuple(cut[field] for field in fields) for cut in log.cuts]
    assert [tuple(record[field] for field in fields) for record in log.progress] == cuts
    assert [cut[:4] for cut in cuts] == sorted(cut[:4] for cut in cuts)


def busy_log(capture: CaptureSite) -> TopicLog:
    """Write, restart, write, and read what came of it."""
    capture.sql(*SCHEMA)
    settings = {"capture": {"batch_rows_max": 30, "catalog_check_s": 0.2}}
    daemon = capture.running(settings)
    with writing(capture.dsn, seed(), writers=2) as work:
        until(lambda: work.transactions > WRITTEN, "the writers write")
        daemon.stop()
        count = work.transactions
        daemon = capture.running(settings)
        until(lambda: work.transactions > count + WRITTEN, "the writers write on")
    capture.sql("insert into bulk (n) select g from generate_series(1, 200) g")
    capture.settled(daemon)
    daemon.stop()  # an idle daemon commits positions: the log must stand still while the broker's record is read
    return capture.log()


def cut_faults(log: TopicLog) -> list[str]:
    """Every number of every cut that is not what the records themselves give."""
    faults = []
    index = {partition: list(states(records)) for partition, records in log.records.items()}
    for number, cut in enumerate(log.cuts):
        for name, (next_offset, count, rolling) in cut["changed"].items():
            topic, _, partition = name.rpartition("-")
            records = log.records[(topic, int(partition))]
            covered = [record for record in records if record.offset < next_offset]
            wanted = index[(topic, int(partition))][len(covered)]
            if (count, rolling) != wanted:
                faults.append(f"cut {number}, {name}: says {(count, rolling)}, the records give {wanted}")
            if covered and covered[-1].offset != next_offset - 1:
                faults.append(f"cut {number}, {name}: {next_offset} does not follow record {covered[-1].offset}")
            faults += misplaced(number, cut, name, records, len(covered))
    return faults


def misplaced(number: int, cut: dict[str, Any], name: str, records: list[LogRecord], covered: int) -> Iterator[str]:
    """A cut with next_ordinal 0 holds exactly the transactions that commit below its end_lsn."""
    if cut["next_ordinal"] or ".__" in name:
        return
    inside = [record for record in records[:covered] if record.value is not None]
    beyond = [record for record in records[covered:] if record.value is not None]
    if inside and inside[-1].position[1] >= cut["end_lsn"]:
        yield f"cut {number}, {name}: {inside[-1].position} is at or behind end_lsn {cut['end_lsn']}"
    if beyond and beyond[0].position[1] < cut["end_lsn"]:
        yield f"cut {number}, {name}: {beyond[0].position} is missing below end_lsn {cut['end_lsn']}"


def states(records: list[LogRecord]) -> Iterator[tuple[int, str]]:
    """(count, rolling hash) before the first record and after each one."""
    rolling = 0
    yield 0, f"{rolling:016x}"
    for count, record in enumerate(records, 1):
        rolling = rolled(rolling, record.key, record.value)
        yield count, f"{rolling:016x}"
