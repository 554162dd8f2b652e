"""Transaction and message records beside the tables' topics: their contents, and that memory stays bounded."""

from __future__ import annotations

import json
from typing import Any

from cdc.capture.assembler import Assembler, BatchFull, BatchLimits, DescribedAgain, Stop, Unplanned
from cdc.capture.side_topics import SideTopics
from cdc.encode.side_records import SideRecords
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition, TopicBuffer
from cdc.model.load_reading import LOAD_PREFIX
from cdc.wire.pgoutput import Insert, LogicalMessage, Message
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.scripted_capture import NotingTranscoder
from tests.fixtures.servers import customer_table

_INSERT = Insert(customer_table.OID, (b"7", b"Ann", None))
_LARGE = bytes(10_000)


class Told:
    """An assembler with all side topics; feeds until a batch is full or the frames end."""

    def __init__(self, start: StreamPosition = StreamPosition(Lsn(100)), *, bytes_max: int = 1 << 30) -> None:  # noqa: B008 - frozen
        self.transactions = TopicBuffer("shop.transaction", 1)
        self.messages = TopicBuffer("shop.message", 1)
        side = SideTopics(
            SideRecords("shop", "d"), transactions=self.transactions, messages=self.messages, row_bytes_max=1 << 20
        )
        self.stop: Stop | None = None
        caps = BatchLimits(1000, bytes_max)
        self.assembler = Assembler(start, epoch=1, caps=caps, on_truncate="stop", side=side)

    def feed(self, *messages: Message) -> int:
        frames = [server.frame(message) for message in messages]
        at, self.stop = 0, None
        while at < len(frames) and self.stop is None:
            at, self.stop = self.assembler.feed(frames, at)
            if isinstance(self.stop, Unplanned):
                ours = self.stop.relation.name != "left_out"
                transcoder = NotingTranscoder([], TopicBuffer(customer_table.TOPIC, 1)) if ours else None
                self.assembler.plan(self.stop.relation, transcoder)
                self.stop = None
            elif isinstance(self.stop, DescribedAgain):
                self.stop = None
        return at

    @property
    def statuses(self) -> list[tuple[str, int | None]]:
        told: list[dict[str, Any]] = [json.loads(value or b"") for _, value, _ in self.transactions.partitions[0]]
        return [(one["status"], one["event_count"]) for one in told]


def test_transaction_of_messages_alone_is_spread_when_it_is_large() -> None:
    told = Told(bytes_max=30_000)

    taken = told.feed(server.begin(100), *[_inside(100)] * 20, server.commit(100, 110))

    assert taken < 10
    assert told.stop == BatchFull()
    assert told.assembler.reach() == StreamPosition(Lsn(100), Lsn(100), taken)


def test_message_of_the_load_guard_is_not_published_and_has_an_ordinal() -> None:
    told = Told()

    told.feed(
        server.begin(100),
        LogicalMessage(True, Lsn(100), LOAD_PREFIX, b""),
        LogicalMessage(True, Lsn(100), "theirs", b"x"),
        server.commit(100, 110),
    )

    (record,) = told.messages.partitions[0]
    assert json.loads(record[1] or b"")["message"]["prefix"] == "theirs"
    assert told.assembler.position.end_lsn == 110
    assert told.statuses == [], "a transaction without events has no metadata"


def test_messages_outside_of_transactions_end_a_batch_when_they_are_large() -> None:
    told = Told(bytes_max=30_000)

    taken = told.feed(*[LogicalMessage(False, Lsn(100 + 10 * n), "alone", _LARGE) for n in range(20)])

    assert taken == 3
    assert told.stop == BatchFull()
    assert told.assembler.position.end_lsn == 121


def test_transaction_metadata_that_has_begun_is_written_to_its_end() -> None:
    """The transaction was spread before it was known that it has no captured row."""
    told = Told()
    left_out = customer_table.relation(2, name="left_out")

    told.feed(server.begin(100), left_out, Insert(2, (b"7", b"Ann", None)))
    spread = told.assembler.reach()
    told.feed(server.commit(100, 110))

    assert spread.next_ordinal == 2
    assert told.statuses == [("BEGIN", None), ("END", 0)]


def test_transaction_that_goes_on_after_a_restart_is_not_begun_twice() -> None:
    told = Told(StreamPosition(Lsn(100), Lsn(100), 2))

    told.feed(server.begin(100), customer_table.relation(), _INSERT, _INSERT, server.commit(100, 110))

    assert told.statuses == [("END", 2)]


def _inside(lsn: int) -> LogicalMessage:
    return LogicalMessage(True, Lsn(lsn), "inside", _LARGE)
