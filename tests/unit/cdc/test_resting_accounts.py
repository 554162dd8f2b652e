"""Full maps of the cut index keep every count until its topic is deleted; what that means for readers."""

from __future__ import annotations

import pytest

from cdc.audit.expected_counts import Check, ExpectedCounts
from cdc.audit.recomputed_counts import DamageKind
from cdc.cutindex.lookup import cut_before
from cdc.lsn import Lsn
from cdc.model.progress_record import Cut
from cdc.progress.record_format import decode
from cdc.publish.ledger import Ledger
from cdc.verify.verified_cut import CutIndex
from sinks.warehouse.lake.cut_position import START
from sinks.warehouse.log.span import next_span
from tests.fixtures.capture.audit_log import LogWriter, audited, do, harms

HERE, AWAY = "shop.public.a", "shop.public.b"


def cuts(writer: LogWriter) -> list[tuple[int, Cut]]:
    records = writer.log.records("shop.__cuts")
    return [(one.offset, decode(one.value, Cut, "cuts")) for one in records if one.value is not None]


def newest(writer: LogWriter) -> Cut:
    return cuts(writer)[-1][1]


def left(*, older: bool = False) -> LogWriter:
    """A table that had two records leaves, and capture starts without it."""
    writer = LogWriter()
    writer.start()
    writer.write(AWAY, 0, 2)
    writer.commit()
    writer.publisher.close()
    writer.start([HERE], older=older)
    return writer


def test_account_of_a_table_that_left_is_in_every_full_map() -> None:
    writer = left()
    of_first_start = newest(writer).changed[f"{AWAY}-0"]
    writer.publisher.close()
    writer.start([HERE])

    assert newest(writer).full
    assert newest(writer).changed[f"{AWAY}-0"] == of_first_start
    assert of_first_start[:2] == (2, 2)


def test_table_that_comes_back_within_a_run_is_counted_on() -> None:
    writer = left()

    writer.write(AWAY, 0, 3)
    writer.commit()

    assert newest(writer).changed[f"{AWAY}-0"][:2] == (6, 5)
    assert audited(writer.log).report.findings == []


def test_partition_is_in_a_cut_between_only_when_it_was_touched() -> None:
    writer = left()

    writer.write(HERE, 0, 1)
    writer.commit()

    assert set(newest(writer).changed) == {f"{HERE}-0"}


def test_account_goes_with_its_topic() -> None:
    writer = left()
    writer.delete(AWAY)
    writer.publisher.close()
    writer.start([HERE])

    assert f"{AWAY}-0" not in newest(writer).changed


def test_counts_are_not_taken_from_a_recreated_topic() -> None:
    writer = left()
    writer.directory.ids[AWAY] = "somebody's"
    writer.publisher.close()
    writer.start([HERE])

    assert f"{AWAY}-0" not in newest(writer).changed


def test_account_of_a_topic_that_may_not_be_looked_at_stays() -> None:
    writer = left()
    writer.directory.refused = frozenset({AWAY})
    writer.publisher.close()
    writer.start([HERE])

    assert newest(writer).changed[f"{AWAY}-0"][:2] == (2, 2)


def test_repair_accepts_the_records_of_a_topic_without_a_writer() -> None:
    writer = left()
    writer.log.append((AWAY, 0), (b"x", b"foreign", None), transaction=-1)
    writer.log.committed.add(-1)
    writer.publisher.close()
    writer.epoch += 1
    repair = writer.log.end_offset(("shop.__cuts", 0))
    writer.start([HERE], repairs=True)

    assert newest(writer).changed[f"{AWAY}-0"][:2] == (4, 2)
    first = next(offset for offset, _ in cuts(writer) if offset >= repair)
    assert audited(writer.log, begin=first + 1).report.findings == []


def test_ledger_forgets_that_an_account_rests_when_it_is_opened() -> None:
    ledger = Ledger()
    told = (2, 2, "0" * 16)
    ledger.rest((AWAY, 0), end_offset=3, before=told)
    ledger.open((AWAY, 0), end_offset=3, before=told)
    ledger.rest((AWAY, 0), end_offset=9, before=(9, 9, "0" * 16))

    ledger.write((AWAY, 0), [(b"k", b"v", None)])

    assert ledger.delivered({(AWAY, 0): 3}) is None
    assert ledger.changed(full=True)[f"{AWAY}-0"][:2] == (4, 3)


@pytest.mark.parametrize("kind", [DamageKind.ALTERED, DamageKind.FOREIGN, DamageKind.LOST, DamageKind.TORN])
def test_damage_of_the_first_records_behind_the_return_is_found_and_named(kind: DamageKind) -> None:
    writer = left()
    writer.write(AWAY, 0, 3)
    writer.commit()
    harm = harms(writer.log, kind)[-1]
    do(writer.log, harm)

    (finding,) = audited(writer.log).report.findings

    assert (finding.kind, finding.partition) == (kind, (AWAY, 0))


@pytest.mark.parametrize("restarted", [False, True])
def test_index_of_an_older_version_may_continue_or_restart_counts_after_a_return(restarted: bool) -> None:
    writer = left(older=True)
    if restarted:
        writer.publisher.close()
        writer.start()  # by this version
    writer.write(AWAY, 0, 3)
    writer.commit()

    assert newest(writer).changed[f"{AWAY}-0"][1] == (3 if restarted else 5)
    assert audited(writer.log).report.findings == []


def test_check_is_of_one_account_in_an_index_of_this_version_and_of_two_in_an_older_one() -> None:
    for older in (False, True):
        writer = left(older=older)
        writer.write(AWAY, 0, 3)
        writer.commit()
        index = ExpectedCounts(from_beginning=True)
        found = [one for offset, cut in cuts(writer) for one in index.take(offset, cut)]

        last = found[-1]
        assert isinstance(last, Check)
        assert (last.otherwise is not None) == older


def test_lake_goes_on_over_a_table_that_was_away() -> None:
    writer = left()
    writer.publisher.close()
    writer.start()
    writer.write(AWAY, 0, 3)
    writer.commit()

    span = next_span(START, cuts(writer), events_max=1_000)

    assert span is not None
    assert span.ranges[AWAY, 0] == (0, 6, 5)


def test_reading_from_an_lsn_does_not_restart_an_idle_topic() -> None:
    writer = left()
    writer.write(HERE, 0, 1)
    writer.commit()

    place = cut_before(writer.log, "shop", Lsn(writer.end_lsn))

    assert place is not None
    assert place.offsets[AWAY, 0] == 2


def test_verification_knows_the_account_of_a_topic_that_rests() -> None:
    writer = left()
    index = CutIndex()
    for _, cut in cuts(writer)[-1:]:
        index.take(cut)

    assert {at: account.count for at, account in index.topic(AWAY).items()} == {0: 2}
