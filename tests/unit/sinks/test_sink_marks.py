"""Where a partition is read from, and which offsets belong to another history."""

from __future__ import annotations

import pytest

from cdc.errors import SinkGap, SinkStale
from cdc.kafka.group_member import CommittedOffset, PartitionStart
from cdc.model.log_record import LogRecord
from sinks.contract import Topic
from sinks.runner.frontier import Frontier
from sinks.runner.partition_progress import Partition, lag_of, uncommitted
from sinks.state.offset_metadata import Mark, SinkNames, Window, left_s, mark_of, metadata, start_offset, window_of

DAY_S = 86_400.0
NOW_S = 1_700_000_000.0
PLACE = ("shop.public.t", 3)
WINDOW = Window(8 * DAY_S, None)
WHY = SinkNames("cache", "shop.sink.cache")


def start(offset: int | None, *, text: str = "", low: int = 0, high: int = 100, first: int | None = None) -> int:
    committed = None if offset is None else CommittedOffset(offset, text)
    return start_offset(PLACE, PartitionStart(committed, low, high), "id-1", WINDOW, NOW_S, WHY, first)


def test_new_group_begins_at_the_beginning_or_the_given_offset() -> None:
    assert [start(None, low=7), start(None, low=7, first=50), start(None, low=7, first=2)] == [7, 50, 7]


def test_known_group_goes_on_where_it_was() -> None:
    assert start(42, text=metadata("id-1", NOW_S - 6 * DAY_S)) == 42
    assert start(42, text="") == 42, "offsets that were set by hand say nothing of a topic"
    assert start(100, text=metadata("id-1", NOW_S - 99 * DAY_S)) == 100, "who has missed nothing may sleep"


@pytest.mark.parametrize(
    ("offset", "text", "low", "error", "says"),
    [
        (42, metadata("id-0", NOW_S), 0, SinkStale, "recreated"),
        (101, metadata("id-1", NOW_S), 0, SinkStale, "which ends at 100"),
        (42, metadata("id-1", NOW_S), 43, SinkGap, "begins at offset 43"),
        (
            42,
            metadata("id-1", NOW_S - 6.5 * DAY_S),
            0,
            SinkStale,
            "6.5 days ago, but the topic keeps deletes for 8.0 days",
        ),
    ],
)
def test_offset_of_another_history_is_refused_with_the_command_that_repairs_it(
    offset: int, text: str, low: int, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        start(offset, text=text, low=low)

    # A topic that lacks records does not bring back what they said.
    mends = "cdc verify cache --repair" if error is SinkGap else "cdc sink rebuild cache"
    assert getattr(caught.value, "command") == mends  # noqa: B009 - of either class


def test_window_is_what_the_topic_keeps() -> None:
    compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000", "delete.retention.ms": "604800000"}
    assert window_of(compacted) == Window(8 * DAY_S, None)
    assert window_of({**compacted, "cleanup.policy": "compact,delete", "retention.ms": "3600000"}).shortest_s == 3600
    assert left_s(WINDOW, DAY_S) == 7 * DAY_S
    assert left_s(Window(None, None), DAY_S) is None


def test_mark_survives_what_others_write_beside_offsets() -> None:
    assert mark_of(metadata("id-1", 12.9)) == Mark("id-1", 12)
    assert [mark_of(text) for text in ("", "null", "{}", "[1]", '{"topic_id": 1}')] == [None] * 5


def _partition(start: int = 0) -> Partition:
    return Partition(Topic("t", "id-1", 1, "public.t", ("id",)), WINDOW, 0, Frontier(start))


def test_lag_is_of_the_oldest_record_that_is_not_applied() -> None:
    one = _partition()
    for offset, ts_ms in enumerate([1_000, 2_000, 9_000]):
        one.batch_begins(LogRecord("t", 0, offset, ts_ms, b"k", b"", None))
        one.frontier.took(offset)
    one.high = 3
    assert lag_of([one], 10_000) == (3, 9.0, 8 * DAY_S - 9.0)

    one.frontier.finished(0)
    assert one.behind_s(10_000) == 8.0
    one.frontier.finished(1)
    one.frontier.finished(2)
    one.ended(5)
    assert lag_of([one], 10_000) == (0, 0.0, 8 * DAY_S)
    assert lag_of([one], 10_000, still_s=DAY_S).left_s == 7 * DAY_S, "while it stands still nobody knows"


def test_positions_that_moved_are_committed_and_all_of_them_now_and_then() -> None:
    still, moved = _partition(5), _partition(7)
    still.committed, still.committed_s = 5, 100.0
    moved.committed, moved.committed_s = 6, 100.0
    both = {("t", 0): still, ("t", 1): moved}

    assert uncommitted(both, 101.0, again_s=60.0) == {("t", 1): 7}
    assert uncommitted(both, 160.0, again_s=60.0) == {("t", 0): 5, ("t", 1): 7}
