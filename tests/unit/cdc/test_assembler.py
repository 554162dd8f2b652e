"""Transactions, the skip rule and ordinals, case by case; tests/property/test_assembler.py has all histories."""

from __future__ import annotations

from typing import Literal

import pytest

from cdc.capture.assembler import Assembler, BatchFull, BatchLimits, DescribedAgain, Stop, Truncated, Unplanned
from cdc.errors import DecodeError, SourceRefused
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition, TopicBuffer
from cdc.wire.pgoutput import Insert, Message, Truncate, Tuple
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.scripted_capture import NotingTranscoder, Row, no_side_topics
from tests.fixtures.servers import customer_table

_ROW: Tuple = (b"7", b"Ann", None)
_INSERT = Insert(customer_table.OID, _ROW)
_LEFT_OUT = customer_table.relation(2, name="left_out")


class Feeder:
    """An assembler with a planner that leaves out `left_out`; records every row."""

    def __init__(
        self,
        start: StreamPosition,
        *,
        caps: BatchLimits = BatchLimits(1000, 1 << 30),  # noqa: B008 - frozen
        on_truncate: Literal["delete", "stop", "ignore"] = "stop",
    ) -> None:
        self.assembler = Assembler(start, epoch=1, caps=caps, on_truncate=on_truncate, side=no_side_topics())
        self.rows: list[Row] = []
        self.planned: list[str] = []
        self.described_again: list[str] = []
        self.stop: Stop | None = None

    @property
    def ids(self) -> list[tuple[int, int]]:
        """(commit_lsn, ordinal) of every row so far."""
        return [(commit_lsn, ordinal) for commit_lsn, ordinal, _ in self.rows]

    def feed(self, *parts: Message | bytes, hasten: bool = False) -> int:
        """Feed until the batch is full, a TRUNCATE or the end; returns how many frames were taken."""
        frames = [part if isinstance(part, bytes) else server.frame(part) for part in parts]
        at = 0
        while at < len(frames):
            at, self.stop = self.assembler.feed(frames, at, hasten=hasten)
            if isinstance(self.stop, Unplanned):
                relation = self.stop.relation
                self.planned.append(relation.name)
                transcoder = NotingTranscoder(self.rows, TopicBuffer(customer_table.TOPIC, 1))
                self.assembler.plan(relation, None if relation.name == "left_out" else transcoder)
            elif isinstance(self.stop, DescribedAgain):
                self.described_again.append(self.stop.relation.name)
            elif self.stop is not None:
                break
        return at


def _at(end_lsn: int, commit_lsn: int = 0, next_ordinal: int = 0) -> StreamPosition:
    return StreamPosition(Lsn(end_lsn), Lsn(commit_lsn), next_ordinal)


def _transaction(commit_lsn: int, end_lsn: int, rows: int = 1) -> list[Message]:
    inserts: list[Message] = [_INSERT] * rows
    return [server.begin(commit_lsn), customer_table.relation(), *inserts, server.commit(commit_lsn, end_lsn)]


def test_ordinals_start_at_one_in_every_transaction() -> None:
    feeder = Feeder(_at(100))

    feeder.feed(*_transaction(100, 110, rows=2), *_transaction(120, 130, rows=1))

    assert feeder.ids == [(100, 1), (100, 2), (120, 1)]
    assert feeder.assembler.position.end_lsn == 130
    assert feeder.assembler.transaction_count == 2


def test_each_description_of_a_planned_relation_is_reported_also_if_nothing_in_it_changed() -> None:
    """The catalog may have had the table under another name since."""
    feeder = Feeder(_at(100))

    feeder.feed(*_transaction(100, 110), *_transaction(120, 130), *_transaction(140, 150))

    assert (feeder.planned, feeder.described_again) == (["customers"], ["customers", "customers"])
    assert feeder.ids == [(100, 1), (120, 1), (140, 1)]


def test_transaction_below_the_start_is_not_published_again() -> None:
    feeder = Feeder(_at(110))

    feeder.feed(*_transaction(100, 110), *_transaction(120, 130))

    assert feeder.ids == [(120, 1)]


def test_transaction_whose_commit_starts_where_the_last_one_ended_is_published() -> None:
    """The skip rule is strict: a commit record can start exactly at the end of the previous one."""
    feeder = Feeder(_at(110))

    feeder.feed(*_transaction(100, 110), *_transaction(110, 120))

    assert feeder.ids == [(110, 1)]


def test_first_transaction_at_the_very_start_position_is_published() -> None:
    feeder = Feeder(_at(100))

    feeder.feed(*_transaction(100, 110))

    assert feeder.ids == [(100, 1)]


def test_resume_inside_a_spread_transaction_goes_on_with_the_next_ordinal() -> None:
    feeder = Feeder(_at(100, 200, 3))

    feeder.feed(*_transaction(90, 100), *_transaction(200, 210, rows=4), *_transaction(210, 220))

    assert feeder.ids == [(200, 3), (200, 4), (210, 1)]


def test_keepalives_before_the_rest_of_a_spread_transaction_keep_its_place() -> None:
    """Otherwise idle progress would forget that the first events are in the log, and a crash repeats them."""
    feeder = Feeder(_at(100, 200, 3))

    feeder.feed(server.keepalive(150), server.keepalive(200))

    position = feeder.assembler.position
    assert (position.commit_lsn, position.next_ordinal) == (200, 3)
    assert position.end_lsn <= 200


def test_keepalive_between_transactions_moves_the_position() -> None:
    feeder = Feeder(_at(100))

    feeder.feed(server.keepalive(150), server.keepalive(140))

    assert feeder.assembler.position.end_lsn == 150
    assert feeder.assembler.position.next_ordinal == 0
    assert feeder.assembler.advanced


def test_keepalive_inside_a_transaction_moves_nothing() -> None:
    feeder = Feeder(_at(100))

    feeder.feed(server.begin(120), customer_table.relation(), _INSERT, server.keepalive(500))

    assert feeder.assembler.position == _at(100)
    assert feeder.assembler.in_transaction


def test_spread_position_names_the_first_event_that_is_not_in_the_log() -> None:
    feeder = Feeder(_at(100))
    feeder.feed(server.begin(120), customer_table.relation(), _INSERT, _INSERT)

    position = feeder.assembler.reach()

    assert position == _at(100, 120, 3)


def test_rows_of_left_out_tables_take_ordinals_but_publish_nothing() -> None:
    """Adding a table to the configuration must not shift the ordinals of the others."""
    feeder = Feeder(_at(100))
    other = Insert(2, _ROW)

    feeder.feed(server.begin(100), _LEFT_OUT, customer_table.relation(), other, _INSERT, other, _INSERT)

    assert feeder.ids == [(100, 2), (100, 4)]
    assert feeder.assembler.row_count == 2


def test_relation_is_planned_once_and_again_when_its_shape_changes() -> None:
    feeder = Feeder(_at(100))
    changed = customer_table.relation(name="renamed")

    feeder.feed(*_transaction(100, 110), *_transaction(120, 130), server.begin(140), changed, changed)

    assert feeder.planned == ["customers", "renamed"]


@pytest.mark.parametrize(
    ("rows", "size", "taken"),
    [(2, 1 << 30, 5), (3, 1 << 30, 9), (1000, 600, 5), (1000, 1 << 30, 9)],
)
def test_batch_ends_at_the_first_commit_at_or_over_a_cap(rows: int, size: int, taken: int) -> None:
    feeder = Feeder(_at(100), caps=BatchLimits(rows, size))

    assert feeder.feed(*_transaction(100, 110, rows=2), *_transaction(120, 130, rows=1)) == taken
    assert not feeder.assembler.in_transaction


def test_batch_in_haste_ends_at_the_next_commit() -> None:
    feeder = Feeder(_at(100))
    feeder.feed(server.begin(100), customer_table.relation())

    taken = feeder.feed(_INSERT, server.commit(100, 110), *_transaction(120, 130), hasten=True)

    assert (taken, feeder.stop) == (2, BatchFull())


def test_transaction_over_twice_the_cap_is_spread() -> None:
    feeder = Feeder(_at(100), caps=BatchLimits(2, 1 << 30))

    taken = feeder.feed(*_transaction(100, 110, rows=9))

    assert feeder.stop == BatchFull()
    assert feeder.assembler.in_transaction
    assert (taken, feeder.assembler.row_count) == (6, 4)


def test_taken_counts_from_zero_again() -> None:
    feeder = Feeder(_at(100), caps=BatchLimits(1, 1 << 30))
    feeder.feed(*_transaction(100, 110))

    feeder.assembler.taken()

    found = feeder.assembler
    assert (found.row_count, found.byte_count, found.transaction_count) == (0, 0, 0)
    assert not found.advanced


def test_truncate_stops_capture_and_names_the_table() -> None:
    feeder = Feeder(_at(100))
    feeder.feed(server.begin(100), customer_table.relation())

    with pytest.raises(SourceRefused, match=r"public\.customers") as caught:
        feeder.feed(Truncate((customer_table.OID,), cascade=False, restart_identity=False))

    assert caught.value.facts["commit_lsn"] == 100
    assert "on_truncate" in caught.value.command


def test_ignored_truncate_is_counted_and_takes_an_ordinal() -> None:
    feeder = Feeder(_at(100), on_truncate="ignore")
    truncate = Truncate((customer_table.OID,), cascade=False, restart_identity=False)

    feeder.feed(server.begin(100), customer_table.relation(), truncate, _INSERT, server.commit(100, 110))

    assert feeder.ids == [(100, 2)]
    assert feeder.assembler.truncate_ignored_count == 1


def test_truncate_is_not_passed_before_its_keys_are_removed() -> None:
    feeder = Feeder(_at(100), on_truncate="delete", caps=BatchLimits(2, 1 << 30))
    parts: list[Message] = [server.begin(100), customer_table.relation(), _TRUNCATE, _INSERT, server.commit(100, 110)]

    taken = feeder.feed(*parts)
    assert isinstance(feeder.stop, Truncated)
    truncated, before = feeder.stop.tables, feeder.assembler.reach()
    full = [feeder.assembler.removed(1, 10), feeder.assembler.removed(1, 10)]
    within = feeder.assembler.reach()
    feeder.assembler.pass_truncate(truncated)
    behind = feeder.assembler.reach()
    feeder.feed(*parts[taken:])

    assert [(one.relation, one.ordinal, one.stamp.commit_lsn) for one in truncated] == [(customer_table.OID, 1, 100)]
    assert full == [False, True]
    assert [before, within, behind] == [_at(100), _at(100, 100, 1), _at(100, 100, 2)]
    assert feeder.ids == [(100, 2)]


def test_truncate_that_was_not_passed_is_met_again() -> None:
    feeder = Feeder(_at(100, 100, 2), on_truncate="delete")

    feeder.feed(server.begin(100), customer_table.relation(), _INSERT, _TRUNCATE)

    assert feeder.ids == []
    assert isinstance(feeder.stop, Truncated)


def test_truncate_of_left_out_tables_is_no_concern_of_ours() -> None:
    feeder = Feeder(_at(100))

    feeder.feed(server.begin(100), _LEFT_OUT, Truncate((2,), cascade=False, restart_identity=False))

    assert feeder.assembler.truncate_ignored_count == 0


def test_truncate_that_is_in_the_log_already_does_not_stop_capture() -> None:
    """The policy was ignore, then stop again: a TRUNCATE that was skipped once is not seen again."""
    truncate = Truncate((customer_table.OID,), cascade=False, restart_identity=False)
    feeder = Feeder(_at(110))

    feeder.feed(server.begin(100), customer_table.relation(), truncate, server.commit(100, 110))

    assert feeder.assembler.position.end_lsn == 110


_TRUNCATE = Truncate((customer_table.OID,), cascade=False, restart_identity=False)


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([_INSERT], id="row before any transaction"),
        pytest.param([*_transaction(100, 110), _INSERT], id="row behind a transaction"),
        pytest.param([*_transaction(80, 90), _INSERT], id="row behind a skipped transaction"),
        pytest.param([server.begin(100), _INSERT], id="row of a relation that was not announced"),
        pytest.param([customer_table.relation(), _TRUNCATE], id="truncate outside of a transaction"),
        pytest.param([server.begin(100), _TRUNCATE], id="truncate of a relation that was not announced"),
        pytest.param([server.commit(100, 110)], id="commit without begin"),
        pytest.param([server.begin(100), server.commit(120, 130)], id="commit of another transaction"),
        pytest.param([server.begin(100), server.begin(120)], id="begin inside a transaction"),
        pytest.param([*_transaction(120, 130), server.begin(110)], id="transactions out of commit order"),
        pytest.param([server.begin(100), _LEFT_OUT, server.frame(Insert(2, _ROW))[:-1]], id="broken row, left out"),
        pytest.param([b""], id="empty"),
        pytest.param([b"w" + b"\0" * 24], id="WAL data without a message"),
        pytest.param([b"k\0"], id="short keepalive"),
        pytest.param([b"x" * 40], id="neither WAL data nor a keepalive"),
        pytest.param([server.xlog(b"S\0\0\0\1\1")], id="message of protocol 2"),
    ],
)
def test_stream_that_breaks_the_protocol_is_a_decode_error(parts: list[Message | bytes]) -> None:
    for on_truncate in ("delete", "stop", "ignore"):
        with pytest.raises(DecodeError):
            Feeder(_at(100), on_truncate=on_truncate).feed(*parts)


def test_message_of_a_later_protocol_is_refused_by_its_name() -> None:
    with pytest.raises(DecodeError, match="Stream Start"):
        Feeder(_at(100)).feed(server.xlog(b"S\0\0\0\1\1"))
