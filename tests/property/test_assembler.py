"""The assembler against a simple model: every history, split, committed and crashed anywhere.

The model is `Source.events`. Whatever the pieces, the pauses and the caps are: what is committed is a beginning of
it, and a new assembler at any committed position delivers exactly the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from cdc.capture.assembler import Assembler, BatchLimits, DescribedAgain, Unplanned
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition, TopicBuffer
from cdc.wire.pgoutput import Delete, Insert, Update, decode
from tests.fixtures.capture.scripted_capture import NotingTranscoder, Row, no_side_topics
from tests.property.histories import FIRST_LSN, LEFT_OUT, Event, Source, sources

caps = st.builds(BatchLimits, st.integers(1, 7), st.sampled_from([1 << 30, 1500, 3000]))
START = StreamPosition(Lsn(FIRST_LSN))


@dataclass(slots=True)
class Capture:
    """What the pipeline does with an assembler, without its edges: `commits` are the Kafka transactions."""

    start: StreamPosition
    caps: BatchLimits
    commits: list[tuple[StreamPosition, list[Event]]] = field(default_factory=list)
    spread_by_pause: bool = False
    _rows: list[Row] = field(default_factory=list)
    _assembler: Assembler = field(init=False)

    def __post_init__(self) -> None:
        self._assembler = Assembler(self.start, epoch=1, caps=self.caps, on_truncate="ignore", side=no_side_topics())

    def feed(self, frames: list[bytes]) -> None:
        """Frames that were readable at once."""
        at = 0
        while at < len(frames):
            at, stop = self._assembler.feed(frames, at)
            if isinstance(stop, Unplanned):
                transcoder = NotingTranscoder(self._rows, TopicBuffer("topic", 1))
                self._assembler.plan(stop.relation, None if stop.relation.oid == LEFT_OUT else transcoder)
            elif stop is not None and not isinstance(stop, DescribedAgain):
                self._commit()

    def pause(self, *, long: bool = False) -> None:
        """Nothing more is readable; `long`: so long that an open transaction of the source must be spread."""
        if not self._assembler.in_transaction:
            if self._rows or self._assembler.advanced:
                self._commit()
        elif long and self._rows:
            self.spread_by_pause = True
            self._commit()

    def _commit(self) -> None:
        inside = self._assembler.in_transaction
        position = self._assembler.reach() if inside else self._assembler.position
        self.commits.append((position, [_event(row) for row in self._rows]))
        self._rows.clear()
        self._assembler.taken()

    @property
    def events(self) -> list[Event]:
        """Everything committed."""
        return [event for _, events in self.commits for event in events]


@given(st.data(), sources(), caps)
def test_log_has_every_event_once_and_in_order(data: st.DataObject, source: Source, limits: BatchLimits) -> None:
    capture = _run(data, source, START, limits)

    assert capture.events == source.events


@given(st.data(), sources(), caps)
def test_crash_behind_any_commit_repeats_nothing_and_loses_nothing(
    data: st.DataObject, source: Source, limits: BatchLimits
) -> None:
    """Exactly once, for every committed position; and again for every position the second run commits."""
    before = _run(data, source, START, limits)
    crash = data.draw(st.integers(0, len(before.commits) - 1)) if before.commits else 0
    published = [event for _, events in before.commits[: crash + 1] for event in events]
    position = before.commits[crash][0] if before.commits else START

    after = _run(data, source, position, data.draw(caps))

    assert published + after.events == source.events
    for index, (again, _) in enumerate(after.commits):
        rest = _run(data, source, again, limits)
        done = [event for _, events in after.commits[: index + 1] for event in events]
        assert published + done + rest.events == source.events


@given(st.data(), sources(), caps)
def test_pieces_in_which_the_stream_arrives_do_not_matter(
    data: st.DataObject, source: Source, limits: BatchLimits
) -> None:
    frames = source.session(0)
    pieces, whole = Capture(START, limits), Capture(START, limits)

    for piece in _pieces(data, frames):
        pieces.feed(piece)
    pieces.pause()
    whole.feed(frames)
    whole.pause()

    assert pieces.commits == whole.commits


@given(st.data(), sources(), caps)
def test_positions_only_move_forward(data: st.DataObject, source: Source, limits: BatchLimits) -> None:
    capture = _run(data, source, START, limits)

    order = [(position.end_lsn, position.commit_lsn, position.next_ordinal) for position, _ in capture.commits]
    ends = [(end_lsn, commit_lsn if ordinal else end_lsn, ordinal) for end_lsn, commit_lsn, ordinal in order]
    assert ends == sorted(ends)


@given(sources(rows_max=25), st.integers(1, 7))
def test_only_a_transaction_larger_than_the_cap_is_spread(source: Source, rows_max: int) -> None:
    capture = Capture(START, BatchLimits(rows_max, 1 << 30))

    capture.feed(source.session(0))
    capture.pause()

    rows = {transaction.commit_lsn: 0 for transaction in source.transactions}
    for event in source.events:
        rows[event.commit_lsn] += 1
    for position, events in capture.commits:
        assert len(events) <= 2 * rows_max
        if position.next_ordinal:
            assert rows[position.commit_lsn] > rows_max


@given(st.data(), sources(), caps)
def test_position_at_a_boundary_has_exactly_the_transactions_below_it(
    data: st.DataObject, source: Source, limits: BatchLimits
) -> None:
    """G8: a cut with next_ordinal 0 holds the transactions that commit below its end_lsn, and no other."""
    capture = _run(data, source, START, limits)

    published: list[Event] = []
    for position, events in capture.commits:
        published += events
        if not position.next_ordinal:
            assert published == [event for event in source.events if event.commit_lsn < position.end_lsn]


def _run(data: st.DataObject, source: Source, start: StreamPosition, limits: BatchLimits) -> Capture:
    """Capture from `start` to the end; the server may begin earlier than it must, arrives in pieces, and pauses."""
    capture = Capture(start, limits)
    must = source.first_to_send(start.end_lsn)
    always = data.draw(st.sampled_from(["", "short", "long"]))
    frames = source.session(data.draw(st.integers(0, must)))
    if data.draw(st.booleans()):  # another session, other keepalives
        frames = [frame for frame in frames if frame[:1] != b"k"]
    for piece in _pieces(data, frames):
        capture.feed(piece)
        pause = always or data.draw(st.sampled_from(["none", "short", "long"]))
        if pause != "none":
            capture.pause(long=pause == "long")
    capture.pause()
    return capture


def _pieces(data: st.DataObject, frames: Sequence[bytes]) -> list[list[bytes]]:
    """Cut in a few places, or everywhere."""
    if data.draw(st.booleans()):
        return [[frame] for frame in frames]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(frames)), max_size=4)))
    return [list(frames[start:end]) for start, end in zip([0, *cuts], [*cuts, len(frames)], strict=True)]


def _event(row: Row) -> Event:
    commit_lsn, ordinal, payload = row
    message = decode(payload)
    assert isinstance(message, Insert | Update | Delete)
    return Event(commit_lsn, ordinal, message)
