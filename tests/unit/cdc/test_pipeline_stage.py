"""A stage of the pipeline: its rows and messages become records of its own topics, in the same Kafka transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from cdc.errors import SourceUnreachable
from cdc.lsn import Lsn
from cdc.model.change_records import TopicBuffer
from cdc.wire.pgoutput import Insert, LogicalMessage, Truncate
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.pipeline_rig import INSERT, Rig, transaction
from tests.fixtures.capture.scripted_capture import NotingTranscoder
from tests.fixtures.servers import customer_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc.capture.assembler import Assembler
    from cdc.model.change_records import Stamp
    from cdc.model.relation import Relation

OUTBOX = customer_table.relation(99, name="outbox")
EVENT = Insert(99, (b"7", b"e", None))


@dataclass
class Beside:
    """Implements `cdc.contracts.Stage` for the table `outbox` and messages with the prefix `event`."""

    refused: bool = False
    buffer: TopicBuffer = field(default_factory=lambda: TopicBuffer("shop.events.order", 1))
    waiting: TopicBuffer = field(default_factory=lambda: TopicBuffer("", 1))
    journal: list[str] = field(default_factory=list)

    def take(self, relation: Relation) -> NotingTranscoder | None:
        if relation.name != "outbox":
            return None
        if self.refused:
            raise SourceUnreachable("it was made while capture runs")
        return NotingTranscoder([], self.waiting)

    def message(self, prefix: str, content: bytes, stamp: Stamp, ordinal: int, *, transactional: bool) -> int | None:
        if prefix != "event" or not transactional:
            return None
        self.waiting.partitions[0].append((b"k", b"%d.%d" % (stamp.commit_lsn, ordinal), None))
        return len(content)

    def gather(self) -> Sequence[TopicBuffer]:
        self.journal.append("gather")
        self.buffer.partitions[0] += self.waiting.partitions[0]
        self.waiting.partitions[0].clear()
        return [self.buffer]


def planned(rig: Rig, *left_out: str) -> Assembler:
    rig.planner.left_out = frozenset(left_out)
    return rig.assembler


def test_rows_and_messages_of_a_stage_are_published_with_those_of_tables() -> None:
    message = LogicalMessage(True, Lsn(0), "event", b"x")
    beside = Beside()
    rig = Rig(
        [server.begin(100), customer_table.relation(), INSERT, OUTBOX, EVENT, message, server.commit(100, 110)],
        [server.begin(110), message, server.commit(110, 120)],
        stages=[beside],
    )
    planned(rig, "outbox")
    rig.run_until_silent()

    assert rig.published == ["100.1", "100.2", "100.3", "110.1"]
    assert beside.journal


def test_truncate_of_what_only_a_stage_takes_is_no_truncate() -> None:
    rig = Rig(
        [server.begin(100), OUTBOX, EVENT, Truncate((99,), False, False), EVENT, server.commit(100, 110)],
        stages=[Beside()],
    )
    planned(rig, "outbox")
    rig.run_until_silent()

    assert rig.published == ["100.1", "100.3"]


def test_table_that_is_captured_as_well_has_its_rows_in_both() -> None:
    rig = Rig([server.begin(100), OUTBOX, EVENT, server.commit(100, 110)], stages=[Beside()])
    rig.run_until_silent()

    assert rig.published == ["100.1", "100.1"]


def test_what_is_before_a_table_that_needs_a_new_start_is_published_first() -> None:
    rig = Rig(
        transaction(100, 110),
        [server.begin(110), customer_table.relation(), INSERT, OUTBOX, EVENT, server.commit(110, 120)],
        stages=[Beside(refused=True)],
    )

    with pytest.raises(SourceUnreachable):
        rig.run_until_silent()
    assert rig.published == ["100.1", "110.1"]
