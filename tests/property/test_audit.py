"""The audit finds every damage of the log, and reports none in an intact log."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.audit import auditor as auditing
from cdc.audit.audit_start import resume_offset
from cdc.audit.expected_counts import Check, CutPosition, PartitionCount
from cdc.audit.recomputed_counts import DamageKind, Recount, rolled
from cdc.lsn import Lsn
from cdc.model.log_record import LogRecord
from tests.fixtures.capture.audit_log import Cleaned, LogWriter, audited, data_partitions, do, harms

writes = st.tuples(
    st.sampled_from(["shop.public.a", "shop.public.b"]),
    st.integers(0, 1),
    st.integers(1, 3),
    st.sampled_from([0, 0, 3]),
)
events = st.one_of(
    st.lists(writes, min_size=1, max_size=3),
    st.sampled_from(["restart", "leave a table out", "wait", "next epoch"]),
)
steps = st.lists(events, max_size=14)
aged_steps = st.lists(st.one_of(events, st.just("leave a table out by an older version")), max_size=14)
HARMS: Final = [DamageKind.TORN, DamageKind.LOST, DamageKind.FOREIGN, DamageKind.DOUBLED, DamageKind.ALTERED]


def written(script: list[Any], *, keys: int = 1 << 30) -> LogWriter:
    """A log that capture wrote: cuts of every kind, aborted transactions, restarts, epochs, tables that come and go."""
    writer = LogWriter()
    writer.start()
    return written_on(writer, script, keys=keys)


def written_on(writer: LogWriter, script: list[Any], *, keys: int = 1 << 30) -> LogWriter:
    """More of it."""
    for step in script:
        if step == "restart":
            writer.die()
            writer.start()
        elif step == "leave a table out":
            writer.publisher.close()
            writer.start(["shop.public.a"])
        elif step == "leave a table out by an older version":
            writer.publisher.close()
            writer.start(["shop.public.a"], older=True)
        elif step == "wait":
            writer.clock.now_s += 60.0  # then a full map is due
        elif step == "next epoch":
            writer.publisher.close()
            writer.epoch += 1
            writer.end_lsn = 50
            writer.start(repairs=True)
        else:
            for topic, index, count, next_ordinal in step:
                writer.write(topic, index, count, keys=keys)
                if next_ordinal:
                    writer.commit(next_ordinal=next_ordinal)
            writer.commit()
    return writer


@given(script=aged_steps, stretch=st.sampled_from([1, 3, 4096]))
def test_intact_log_is_never_reported_and_everything_is_compared(script: list[Any], stretch: int) -> None:
    log = written(script).log

    with patch.object(auditing, "SECTION_OFFSETS", stretch):
        report = audited(log).report

    assert [finding.text for finding in report.findings] == []
    assert report.hidden == {}
    assert report.records == sum(len(log.records(topic)) for topic in {topic for topic, _ in data_partitions(log)})
    assert report.began is None


@settings(max_examples=60)
@given(script=steps, data=st.data())
@pytest.mark.parametrize("kind", HARMS)
def test_every_damage_is_found_where_it_is_and_named(kind: DamageKind, script: list[Any], data: st.DataObject) -> None:
    writer = written([*script, [("shop.public.a", 0, 3, 0)], [("shop.public.b", 0, 2, 0)]])
    harm = data.draw(st.sampled_from(harms(writer.log, kind)))
    do(writer.log, harm)

    report = audited(writer.log).report

    (finding,) = report.findings
    assert finding.partition == harm.partition
    assert finding.begin <= harm.offset < finding.end
    assert finding.kind == harm.kind
    if finding.offsets:
        assert finding.offsets == (harm.offset,)


@settings(max_examples=60)
@given(script=steps, data=st.data())
def test_several_damages_are_found_each_and_nothing_else(script: list[Any], data: st.DataObject) -> None:
    writer = written([*script, [("shop.public.a", 0, 3, 0)], [("shop.public.b", 0, 2, 0)]])
    everywhere = [harm for kind in HARMS for harm in harms(writer.log, kind)]
    chosen = data.draw(
        st.lists(st.sampled_from(everywhere), min_size=1, max_size=4, unique_by=lambda one: one.partition)
    )
    for harm in chosen:
        do(writer.log, harm)

    findings = audited(writer.log).report.findings

    assert sorted(finding.partition for finding in findings) == sorted(harm.partition for harm in chosen)


@given(script=steps, data=st.data())
def test_audit_that_begins_anywhere_finds_what_lies_behind(script: list[Any], data: st.DataObject) -> None:
    writer = written([*script, [("shop.public.a", 0, 3, 0)]])
    harm = data.draw(st.sampled_from(harms(writer.log, DamageKind.ALTERED)))
    do(writer.log, harm)
    whole = audited(writer.log).report
    begin = data.draw(st.integers(1, writer.log.end_offset(("shop.__cuts", 0))))

    report = audited(writer.log, begin=begin).report

    assert report.findings == [finding for finding in whole.findings if finding.cut.offset >= begin]


@given(script=steps, data=st.data())
def test_what_compaction_removed_is_no_finding_and_not_taken_for_good(script: list[Any], data: st.DataObject) -> None:
    log = written([*script, [("shop.public.a", 0, 3, 0)]], keys=3).log
    edges = {at: data.draw(st.integers(0, log.end_offset(at))) for at in data_partitions(log)}
    cleaned = Cleaned(log, compacted=edges)

    report = audited(cleaned).report

    assert report.findings == []
    total = sum(len(log.records(topic)) for topic in {topic for topic, _ in data_partitions(log)})
    left = sum(len(batch) for at in data_partitions(log) for batch in cleaned.read({at: 0}, None))
    assert bool(report.hidden) == (left < total)
    assert all(hidden.before <= log.end_offset(at) for at, hidden in report.hidden.items())


@given(script=steps, data=st.data())
def test_what_is_altered_or_foreign_is_found_where_compaction_may_have_been(
    script: list[Any], data: st.DataObject
) -> None:
    writer = written([*script, [("shop.public.a", 0, 3, 0)], [("shop.public.b", 0, 2, 0)]])
    harm = data.draw(
        st.sampled_from([one for kind in (DamageKind.ALTERED, DamageKind.FOREIGN) for one in harms(writer.log, kind)])
    )
    do(writer.log, harm)
    edges = {at: writer.log.end_offset(at) for at in data_partitions(writer.log)}

    (finding,) = audited(Cleaned(writer.log, compacted=edges)).report.findings

    assert finding.partition == harm.partition


@given(script=steps, data=st.data())
def test_what_retention_removed_is_no_finding_and_not_taken_for_good(script: list[Any], data: st.DataObject) -> None:
    log = written([*script, [("shop.public.a", 0, 3, 0)]]).log
    lows = {at: data.draw(st.integers(0, log.end_offset(at))) for at in data_partitions(log)}
    lows["shop.__cuts", 0] = data.draw(st.integers(0, log.end_offset(("shop.__cuts", 0)) - 1))

    report = audited(Cleaned(log, low=lows)).report

    assert report.findings == []
    assert all(hidden.before == lows[at] for at, hidden in report.hidden.items())
    if not lows["shop.__cuts", 0]:
        gone = {at for at in data_partitions(log) if any(one.offset < lows[at] for one in _records(log, at))}
        assert gone <= report.hidden.keys()


def test_record_behind_the_last_cut_is_reported_if_no_cut_covers_it_in_time() -> None:
    writer = written([[("shop.public.b", 0, 1, 0)]])
    partition = ("shop.public.b", 0)
    writer.log.append(partition, (b"x", b"foreign", None), transaction=-1)
    writer.log.committed.add(-1)

    assert audited(writer.log, waits=False).report.findings == []
    (finding,) = audited(writer.log).report.findings
    assert (finding.kind, finding.partition, finding.offsets) == (DamageKind.FOREIGN, partition, (2,))


@given(script=steps)
def test_audit_goes_on_where_it_was(script: list[Any]) -> None:
    writer = written([[("shop.public.b", 0, 2, 0)]])
    first = audited(writer.log)
    for _ in range(2):
        writer.write("shop.public.b", 0, 2)
        writer.commit()
    (last,) = harms(writer.log, DamageKind.ALTERED)[-1:]
    do(writer.log, last)

    first.catch_up()

    assert [finding.kind for finding in first.report.findings] == [DamageKind.ALTERED]


def test_what_led_to_a_repair_is_not_found_again_behind_it() -> None:
    writer = written([[("shop.public.b", 0, 1, 0)]])
    writer.log.append(("shop.public.b", 0), (b"x", b"foreign", None), transaction=-1)
    writer.log.committed.add(-1)
    repair = writer.log.end_offset(("shop.__cuts", 0))
    rest = written_on(writer, ["next epoch", [("shop.public.b", 0, 2, 0)]])

    begin = resume_offset(rest.log, "shop")

    first = next(one.offset for one in rest.log.records("shop.__cuts") if one.offset >= repair and one.value)
    assert begin == first + 1
    assert audited(rest.log, begin=begin).report.findings == []
    assert [finding.kind for finding in audited(rest.log).report.findings] == [DamageKind.FOREIGN]


def test_count_that_does_not_fit_its_hash_is_found() -> None:
    before, after = PartitionCount(0, 0, 0), PartitionCount(2, 3, rolled(0, b"k", b"v"))
    fold = Recount([Check(("t", 0), before, after, CutPosition(0, 1, Lsn(1)))])

    fold.take([LogRecord("t", 0, 0, 0, b"k", b"v", None)])

    assert [one.holds for one in fold.finish()] == [False]


def _records(log: Any, at: tuple[str, int]) -> list[Any]:
    return [one for one in log.records(at[0]) if one.partition == at[1]]
