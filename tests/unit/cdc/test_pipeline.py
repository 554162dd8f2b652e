"""The capture loop: when it commits, and that nothing is confirmed to PostgreSQL before the commit is known."""

from __future__ import annotations

import threading

import pytest

from cdc.capture.assembler import BatchLimits
from cdc.errors import BrokerUnreachable, DecodeError, OutcomeUnknown, SourceRefused
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition
from cdc.wire.pgoutput import Truncate
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.pipeline_rig import INSERT, Rig, opening, transaction
from tests.fixtures.capture.scripted_capture import NotingAside
from tests.fixtures.servers import customer_table

_TRUNCATE = Truncate((customer_table.OID,), cascade=False, restart_identity=False)


def test_batch_is_committed_as_soon_as_nothing_more_is_readable() -> None:
    rig = Rig(transaction(100, 110), transaction(110, 120), [])

    rig.step(3)

    assert rig.journal == ["write 2", "commit 120", "confirm 120"]
    assert rig.published == ["100.1", "110.1"]


def test_rows_that_wait_are_never_waited_on() -> None:
    """While complete transactions are buffered, reading the stream does not wait."""
    rig = Rig(transaction(100, 110), [])

    rig.step(3)

    assert rig.stream.waits_s[0] > 0
    assert rig.stream.waits_s[1] == 0
    assert rig.stream.waits_s[2] > 0


def test_postgresql_may_forget_only_what_is_committed() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.publisher.fails = OutcomeUnknown("the broker went away")

    with pytest.raises(OutcomeUnknown):
        rig.step(2)

    assert all(lsn <= 100 for lsn in rig.stream.confirmed)
    assert rig.publisher.visible == []


def test_rows_that_are_read_but_not_committed_are_not_confirmed() -> None:
    rig = Rig(transaction(100, 110), transaction(110, 120), transaction(120, 130))

    rig.step(3)

    assert all(lsn <= 100 for lsn in rig.stream.confirmed)


def test_nothing_is_confirmed_that_no_catalog_check_has_covered() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.verified = Lsn(105)

    rig.step(2)
    before = max(rig.stream.confirmed)
    rig.verified = Lsn(200)
    rig.step()

    assert before == 105
    assert max(rig.stream.confirmed) == 110


def test_position_verified_at_the_commit_goes_into_progress() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.verified = Lsn(105)

    rig.step(2)

    assert rig.publisher.verified == [105]


def test_batch_ends_at_the_cap_even_if_more_is_readable() -> None:
    rig = Rig(
        [*transaction(100, 110, rows=2), *transaction(110, 120, rows=2), *transaction(120, 130)],
        caps=BatchLimits(2, 1 << 30),
    )

    rig.step()

    assert rig.journal == ["write 2", "commit 110", "confirm 110", "write 2", "commit 120", "confirm 120"]


def test_busy_stream_is_committed_by_age_at_the_next_boundary() -> None:
    """The stream is never silent and reads never end at a boundary: an old batch still ends at its first commit."""
    rig = Rig(batch_age_max_s=1.0)
    ends = range(110, 200, 10)
    rig.will_read(*opening(100))
    for end_lsn in ends:
        rig.will_read(server.commit(end_lsn - 10, end_lsn), *opening(end_lsn))

    rig.step(len(ends) + 1, seconds=0.4)

    assert len(rig.publisher.positions) == 2
    assert all(position.next_ordinal == 0 for position in rig.publisher.positions)


def test_batch_age_of_the_configuration_is_honoured() -> None:
    rig = Rig(batch_age_max_s=5.0)
    for end_lsn in range(110, 200, 10):
        rig.will_read(*transaction(end_lsn - 10, end_lsn))

    rig.step(9, seconds=0.9)

    assert len(rig.publisher.positions) == 1


def test_foreign_wal_moves_progress_at_most_once_a_second() -> None:
    rig = Rig(*([server.keepalive(200 + number)] if number % 2 == 0 else [] for number in range(40)))

    rig.step(40, seconds=0.1)

    assert 4 <= len(rig.publisher.positions) <= 5
    assert rig.publisher.visible == []
    assert max(rig.stream.confirmed) == rig.publisher.positions[-1].end_lsn


def test_keepalive_is_confirmed_only_after_its_progress_is_committed() -> None:
    rig = Rig([server.keepalive(200)], [])

    rig.step(2)

    assert rig.journal.index("commit 200") < rig.journal.index("confirm 200")


def test_silent_source_writes_nothing() -> None:
    rig = Rig()

    rig.step(20, seconds=5.0)

    assert rig.publisher.positions == []
    assert rig.observer.caught_up_count == 20


def test_endless_keepalives_do_not_starve_idle_progress() -> None:
    """While other tables are busy the server sends keepalives without a pause; the slot must not hold their WAL."""
    rig = Rig(*([server.keepalive(200 + number)] for number in range(50)))

    rig.step(50, seconds=0.1)

    assert rig.stream.reads == []
    assert 4 <= len(rig.publisher.positions) <= 6
    assert max(rig.stream.confirmed) >= 230


def test_rows_before_endless_keepalives_are_published_soon() -> None:
    rig = Rig(transaction(100, 110), *([server.keepalive(200 + number)] for number in range(30)))

    rig.step(31, seconds=0.1)

    assert rig.published == ["100.1"]


def test_silence_inside_a_source_transaction_spreads_it_and_loses_nothing() -> None:
    """No Kafka transaction stays open across a wait for the source."""
    rig = Rig([*opening(100, rows=2500)])
    rig.step()
    assert rig.publisher.is_open

    rig.step(20, seconds=0.5)
    spread = list(rig.publisher.positions)
    rig.will_read(INSERT, server.commit(100, 110))
    rig.will_read()
    rig.step(2)

    assert spread == [StreamPosition(Lsn(100), Lsn(100), 2501)]
    assert rig.published[-1] == "100.2501"
    assert len(rig.published) == 2501
    assert (rig.publisher.positions[-1].end_lsn, rig.publisher.positions[-1].next_ordinal) == (110, 0)


def test_spread_position_never_confirms_the_transaction_it_is_inside_of() -> None:
    rig = Rig([*transaction(100, 110), *opening(120, rows=2500)])

    rig.step(20, seconds=0.5)

    assert rig.publisher.positions[-1].next_ordinal == 2501
    assert max(rig.stream.confirmed) == 110


def test_trickling_transaction_never_keeps_a_kafka_transaction_open_for_long() -> None:
    """The broker aborts a transaction after 60 s, and the same work would begin again."""
    rig = Rig([*opening(100, rows=2500)], *([INSERT] * (number % 2) + [server.keepalive(100)] for number in range(100)))
    open_s = longest_s = 0.0

    for _ in range(101):
        rig.step(seconds=1.0)
        open_s = open_s + 1.0 if rig.publisher.is_open else 0.0
        longest_s = max(longest_s, open_s)

    assert longest_s <= 10.0


def test_few_rows_of_a_silent_transaction_open_no_kafka_transaction() -> None:
    rig = Rig([*opening(100, rows=3)])

    rig.step(20, seconds=1.0)

    assert not rig.publisher.is_open
    assert rig.publisher.positions == []


def test_stop_publishes_complete_transactions_and_confirms_them() -> None:
    rig = Rig(transaction(100, 110))
    stop = threading.Event()
    rig.stream.heard = stop.set

    rig.pipeline.run(stop)

    assert rig.published == ["100.1"]
    assert max(rig.stream.confirmed) == 110


def test_stop_inside_a_transaction_publishes_no_part_of_it() -> None:
    rig = Rig([*opening(100, rows=2500)])

    rig.run_until_silent()

    assert rig.publisher.visible == []
    assert rig.publisher.positions == []
    assert max(rig.stream.confirmed) == 100


def test_worn_producer_is_replaced_after_its_last_commit_is_confirmed() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.publisher.retire_reason = "the commit was retried"

    with pytest.raises(OutcomeUnknown, match="the commit was retried"):
        rig.step(2)

    assert rig.journal == ["write 1", "commit 110", "confirm 110"]
    assert len(rig.observer.published_stats) == 1


def test_kafka_is_asked_every_ten_seconds_while_there_is_nothing_to_write() -> None:
    rig = Rig(transaction(100, 110))

    rig.step(26, seconds=1.0)
    assert rig.journal.count("check") == 2

    rig.publisher.away = True
    with pytest.raises(BrokerUnreachable):
        rig.step(10, seconds=1.0)


def test_kafka_is_not_asked_between_commits() -> None:
    rig = Rig(*[transaction(at, at + 10) for at in range(100, 500, 10)])

    rig.step(40, seconds=1.0)

    assert rig.publisher.positions[-1].end_lsn >= 490
    assert "check" not in rig.journal


def test_large_transaction_is_handed_over_in_slices() -> None:
    """Memory: buffered data is bounded, however large the transaction is."""
    rows = [INSERT] * 1000
    rig = Rig(opening(100, rows=1000), *(rows for _ in range(15)), [server.commit(100, 110)], [])

    rig.step(18)

    assert len(rig.published) == 16_000
    assert max(rig.publisher.written_at_once) <= 3000
    assert rig.publisher.positions == [StreamPosition(Lsn(110), Lsn(100))]


def test_large_rows_are_handed_over_in_slices_of_bytes() -> None:
    big = server.frame(INSERT)[:-6] + b"t\0\x0f\xff\xf0" + b"x" * 0x0FFFF0
    rig = Rig(opening(100, rows=0), *([big] for _ in range(10)), [server.commit(100, 110)], [])

    rig.step(13)

    assert len(rig.published) == 10
    assert max(rig.publisher.written_at_once) <= 3


def test_transaction_over_twice_the_cap_is_spread_with_its_position() -> None:
    rig = Rig([*transaction(100, 110, rows=9)], [], caps=BatchLimits(2, 1 << 30))

    rig.step(2)

    assert rig.publisher.positions == [
        StreamPosition(Lsn(100), Lsn(100), 5),
        StreamPosition(Lsn(100), Lsn(100), 9),
        StreamPosition(Lsn(110), Lsn(100)),
    ]
    assert rig.published == [f"100.{ordinal}" for ordinal in range(1, 10)]
    assert max(rig.stream.confirmed) == 110


def test_schema_records_travel_with_the_first_rows() -> None:
    rig = Rig(transaction(100, 110), [])
    record = customer_table.schema().record(customer_table.TOPIC, 1, Lsn(100))
    rig.planner.schemas = [record]

    rig.step(2)

    assert rig.publisher.schemas == [record]
    assert rig.journal[0] == "write 1"


def test_relation_is_planned_at_the_position_of_the_log() -> None:
    rig = Rig(transaction(100, 110), transaction(120, 130), [])

    rig.step(3)

    assert [(relation.name, at) for relation, at in rig.planner.planned] == [("customers", 100)]


def test_left_out_relation_is_read_over_and_confirmed() -> None:
    rig = Rig(transaction(100, 110), [])
    rig.planner.left_out = frozenset({"customers"})

    rig.step(2)

    assert rig.publisher.visible == []
    assert max(rig.stream.confirmed) == 110


def test_observer_hears_of_every_committed_batch() -> None:
    rig = Rig([*transaction(100, 110, rows=3), *transaction(110, 120)], [])

    rig.step(2)

    ((stats, position),) = rig.observer.published_stats
    assert (stats.row_count, stats.transaction_count, position.end_lsn) == (4, 2, 120)
    assert stats.byte_count > 4 * 50
    assert stats.commit_us == 1_700_000_000_123_456


def test_broken_stream_commits_nothing_more() -> None:
    rig = Rig([*transaction(100, 110), b"garbage"])

    with pytest.raises(DecodeError):
        rig.step()

    assert rig.publisher.positions == []
    assert rig.stream.confirmed == []


def test_truncate_deletes_what_the_log_has_and_nothing_is_open_while_it_is_read() -> None:
    rig = Rig(on_truncate="delete", caps=BatchLimits(2, 1 << 30))
    rig.live_keys.keys = {0: [b"a", b"b"], 1: [b"c"]}
    rig.will_read(*opening(100), _TRUNCATE, INSERT, server.commit(100, 110))
    rig.will_read()

    rig.step(2)

    assert rig.live_keys.asked == [[b"100.1"]]
    assert rig.observer.truncations == [("shop.public.t", 3)]
    assert rig.published == ["100.1", "100.2", "100.2", "100.2", "100.3"]
    assert [position.next_ordinal for position in rig.publisher.positions] == [2, 2, 0]


def test_truncate_of_a_table_without_a_key_passes() -> None:
    rig = Rig(on_truncate="delete")
    rig.planner.buffer.compacted = False
    rig.will_read(*opening(100), _TRUNCATE, server.commit(100, 110))
    rig.will_read()

    rig.step(2)

    assert rig.live_keys.asked == []
    assert rig.published == ["100.1"]


def test_what_is_written_beside_the_stream_comes_with_the_next_commit() -> None:
    aside = NotingAside(wants=True)
    rig = Rig(transaction(100, 110), [], aside=aside)

    rig.step(3)

    assert rig.journal == ["write 2", "commit 110", "confirm 110"]
    assert aside.wrote == [StreamPosition(Lsn(110), Lsn(100))]


def test_what_is_written_beside_an_idle_stream_is_committed_at_most_once_a_second() -> None:
    aside = NotingAside()
    rig = Rig([], aside=aside)
    rig.step(seconds=2.0)

    for _ in range(30):
        aside.wants = True
        rig.step(seconds=0.1)

    assert 2 <= len(aside.wrote) <= 3
    assert rig.publisher.visible == [b"100.0"] * len(aside.wrote)
    assert rig.publisher.positions == aside.wrote


def test_what_is_written_beside_the_stream_can_end_capture_when_it_is_durable() -> None:
    aside = NotingAside(wants=True, fails=SourceRefused("stop"))
    rig = Rig(transaction(100, 110), [], aside=aside)

    with pytest.raises(SourceRefused):
        rig.step(3)

    assert rig.journal == ["write 2", "commit 110", "confirm 110"]


def test_commit_that_failed_was_not_written_beside_the_stream() -> None:
    aside = NotingAside(wants=True)
    rig = Rig(transaction(100, 110), [], aside=aside)
    rig.publisher.fails = OutcomeUnknown("the broker went away")

    with pytest.raises(OutcomeUnknown):
        rig.step(3)

    assert aside.durable == 0
