"""Capture without its edges, crashed anywhere: the log has every event exactly once, in order.

Pipeline, assembler, transcoder, reselector, publisher, ledger and restore are the real ones. The source and the broker
are in memory: the broker knows offsets, markers, aborted records, fencing and commits whose answer is lost.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cdc.capture.assembler import Assembler, BatchLimits
from cdc.capture.heartbeats import Heartbeats
from cdc.capture.pipeline import Parts, Pipeline
from cdc.capture.side_topics import SideTopics
from cdc.encode.json_transcoder import Transcoder
from cdc.encode.relation_schema import table_schema
from cdc.encode.row_records import TranscodeOptions
from cdc.encode.side_records import SideRecords
from cdc.encode.values import EncodeOptions
from cdc.errors import OutcomeUnknown, ProducerFenced, SourceUnreachable
from cdc.lsn import Lsn
from cdc.model.change_records import StreamPosition, TopicBuffer
from cdc.model.incomplete_record import IncompleteRecords
from cdc.model.progress_record import Cut, Progress, SchemaRecord
from cdc.model.relation import Relation
from cdc.progress.record_format import decode
from cdc.progress.restore import restore
from cdc.publish.live_keys import SpooledKeys
from cdc.publish.publisher import KafkaPublisher
from cdc.replication.key_read import ReadDeferred, ReadRequest, ReadResult
from cdc.replication.reselect import Reselector
from tests.fixtures.capture import pgoutput as server
from tests.fixtures.capture.memory_log import MemoryLog, ring
from tests.fixtures.capture.scripted_capture import NotingObserver, ScriptedStream
from tests.fixtures.servers.executors import Scripted, When
from tests.fixtures.servers.identities import identity
from tests.fixtures.servers.manual_clock import ManualClock
from tests.property.histories import FIRST_LSN, LEFT_OUT, Source, Step, Transaction

_TOPICS = {"shop.public.t1": 2, "shop.public.t2": 3}
_TRANSACTIONS = "shop.transaction"
_HEARTBEATS = "shop.heartbeat"
_IDENTITY = identity(_TOPICS)

_STEPS = [Step(kind, oid, shape, key) for kind in "IUHDT" for oid in (1, 2, 3) for shape in (1, 2) for key in range(4)]
_EXAMPLES = 150 if settings().derandomize else 4000  # of 30 steps; 25 ms each

EventId = tuple[int, int, str, int]
"""commit_lsn, ordinal, topic, key."""


@dataclass(slots=True)
class _Planned:
    buffer: TopicBuffer
    transcoder: Transcoder
    schemas: Sequence[SchemaRecord]


@dataclass(slots=True)
class _Planner:
    holes: IncompleteRecords
    buffers: dict[str, TopicBuffer] = field(default_factory=dict)

    def plan(self, relation: Relation, at: Lsn) -> _Planned | None:
        if relation.oid == LEFT_OUT:
            return None
        topic = f"shop.public.{relation.name}"
        buffer = self.buffers.setdefault(topic, TopicBuffer(topic, _TOPICS[topic]))
        schema = table_schema(relation, ("id",), {}, EncodeOptions())
        transcoder = Transcoder(schema, buffer, TranscodeOptions("shop", "d", 1 << 20), self.holes)
        return _Planned(buffer, transcoder, [schema.record(topic, 1, at)])


class _Capture:
    """One life of the service: starts from the log, and is never used again after an error."""

    def __init__(
        self, log: MemoryLog, clock: ManualClock, first: StreamPosition, caps: BatchLimits, when: When
    ) -> None:
        self.producers = ring(log)
        self.stream = ScriptedStream([])
        publisher = KafkaPublisher("shop", self.producers, clock, epoch=1, executor=Scripted(when))
        publisher.fence()
        publisher.write_sentinel(b"nonce")
        restored = restore(log, "shop")
        self.start = restored.position or first
        side = SideTopics(
            SideRecords("shop", "d"), transactions=TopicBuffer(_TRANSACTIONS, 1), messages=None, row_bytes_max=1 << 20
        )
        for (topic, index), (_, high) in log.end_offsets(
            [*_TOPICS, _TRANSACTIONS, _HEARTBEATS, "shop.__schema"]
        ).items():
            publisher.ledger.open((topic, index), end_offset=high, before=restored.accounts.get(f"{topic}-{index}"))
        publisher.introduce(_IDENTITY, restored.since_lsn)
        publisher.commit(self.start, Lsn(1 << 40))
        assembler = Assembler(self.start, epoch=1, caps=caps, on_truncate="delete", side=side)
        self.publisher = publisher
        holes, observer = IncompleteRecords(), NotingObserver()
        beats = Heartbeats(
            "shop", clock, epoch=1, interval_s=1.0, buffer=TopicBuffer(_HEARTBEATS, 1), observer=observer
        )
        self.looks_in_vain = 0
        self.pipeline = Pipeline(
            Parts(
                stream=self.stream,
                publisher=publisher,
                assembler=assembler,
                planner=_Planner(holes),
                live_keys=SpooledKeys(lambda: nullcontext(log), publisher.ledger),
                reselect=Reselector(
                    self._read,
                    holes,
                    clock,
                    threading.Event(),
                    observer=observer,
                    healthy=lambda: None,
                    owe=lambda _: False,
                ),
                observer=observer,
                clock=clock,
                verified=lambda: Lsn(1 << 40),
                batch_age_max_s=1.0,
                side_buffers=[*side.buffers, beats.buffer],
                asides=[beats],
            )
        )
        self.assembler = assembler

    def _read(self, asks: Sequence[ReadRequest], xids: frozenset[int]) -> list[ReadResult]:
        """Every row is there; it becomes visible after so many looks."""
        assert not self.publisher.is_open
        assert not self.publisher.settling
        if self.looks_in_vain > 0:
            self.looks_in_vain -= 1
            raise ReadDeferred(SourceUnreachable("not visible yet"))
        return [
            ReadResult(ask.columns, {at: (b"later",) * len(ask.columns) for at, _ in enumerate(ask.keys)})
            for ask in asks
        ]


class CrashMachine(RuleBasedStateMachine):
    """Rules are what happens to the service; the model is the list of transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryLog(partition_counts=dict(_TOPICS))
        self.clock = ManualClock()
        self.transactions: list[Transaction] = []
        self.wal_end = FIRST_LSN
        self.confirmed = FIRST_LSN  # what the slot knows
        self.seen = 0  # commits the invariant has looked at

    @initialize(rows=st.integers(1, 4), when=st.sampled_from(["at once", "unseen", "late"]))
    def first_start(self, rows: int, when: When) -> None:
        """`when` commits are done, and when that is known."""
        self.when = when
        self.caps = BatchLimits(rows, 1 << 30)
        self._start(earlier=0)

    @rule(
        gap=st.sampled_from([0, 0, 3]), size=st.sampled_from([0, 1, 2, 5, 9, 14]), first=st.integers(0, len(_STEPS) - 1)
    )
    def commit_a_transaction(self, gap: int, size: int, first: int) -> None:
        """Many are larger than twice the cap, so that they are spread."""
        steps = [_STEPS[(first + 29 * index) % len(_STEPS)] for index in range(size)]
        commit_lsn = self.wal_end + gap
        self.wal_end = commit_lsn + 1 + size % 3
        self.transactions.append(Transaction((), commit_lsn, self.wal_end, tuple(steps)))

    @rule(count=st.sampled_from([1, 4, 12, 25]))
    def read_some(self, count: int) -> None:
        frames = self._session()[self.sent : self.sent + count]
        self.sent += len(frames)
        self._step(frames, seconds=0.01)

    @rule(seconds=st.sampled_from([0.1, 1.1, 6.0]))
    def nothing_is_readable(self, seconds: float) -> None:
        self._step([], seconds=seconds)

    @rule(foreign=st.integers(0, 3))
    def read_a_keepalive(self, foreign: int) -> None:
        """Its position: in front of the next transaction, or, when all are sent, wherever foreign WAL ends."""
        if self.capture.assembler.in_transaction:
            at = self.wal_end
        else:
            ends = [t.commit_lsn for t in self.transactions[self.first :] if t.commit_lsn >= self._sent_up_to()]
            if not ends:
                self.wal_end += foreign
            at = ends[0] if ends else self.wal_end
        self._step([server.keepalive(at)], seconds=0.3)

    @rule(earlier=st.integers(0, 2))
    def crash(self, earlier: int) -> None:
        """The broker may still see the old producer for a while: its transaction is aborted by fencing."""
        if earlier % 2:
            self.capture.publisher.close()
        self._start(earlier=earlier)

    @rule(how=st.sampled_from(["lost", "late"]))
    def next_commit_gets_no_answer(self, how: Literal["lost", "late"]) -> None:
        for producer in self.capture.producers:
            producer.next_commit = how

    @rule(looks=st.integers(1, 12))
    def next_rows_are_not_visible_yet(self, looks: int) -> None:
        self.capture.looks_in_vain = looks

    @precondition(lambda self: self.capture.publisher.is_open)
    @rule()
    def zombie_tries_to_commit(self) -> None:
        zombie, position = self.capture.publisher, self.capture.assembler.position
        self._start(earlier=0)
        try:
            zombie.commit(position, Lsn(0))
        except ProducerFenced:
            return
        raise AssertionError("a fenced producer committed")

    @invariant()
    def log_is_a_beginning_of_history(self) -> None:
        if self.seen == len(self.log.committed):
            return
        self.seen = len(self.log.committed)
        found, wanted = self._found(), self._wanted()
        assert len(set(found)) == len(found)
        # Keys that a TRUNCATE removes have one ordinal, and come in an order of their own.
        last = found[-1][:2] if found else None
        whole = [event for event in found if event[:2] != last]
        assert whole == wanted[: len(whole)]
        assert set(found[len(whole) :]) <= {event for event in wanted if event[:2] == last}
        cut = decode(self.log.records("shop.__cuts")[-1].value or b"", Cut, "shop.__cuts")
        if not cut.next_ordinal:
            assert found == [event for event in wanted if event[0] < cut.end_lsn], "a cut is of whole transactions"

    @invariant()
    def nothing_is_confirmed_that_is_not_in_the_log(self) -> None:
        progress = restore(self.log, "shop").progress
        assert self.confirmed <= (progress.end_lsn if progress else FIRST_LSN)

    @invariant()
    def heartbeats_say_what_the_log_held_and_cuts_count_them(self) -> None:
        reached = [
            (record.end_lsn, record.commit_lsn, record.next_ordinal)
            for record in (
                decode(stored.value or b"", Progress, "shop.__progress")
                for stored in self.log.records("shop.__progress")
                if stored.key == b"shop"
            )
        ]
        beats = [json.loads(stored.value or b"") for stored in self.log.records(_HEARTBEATS)]
        said = [(beat["end_lsn"], beat["commit_lsn"], beat["next_ordinal"]) for beat in beats]
        assert said == sorted(said)
        assert set(said) <= set(reached)
        accounts = restore(self.log, "shop").accounts
        assert accounts.get(f"{_HEARTBEATS}-0", (0, 0, ""))[1] == len(beats)

    def teardown(self) -> None:
        """In the end everything arrives."""
        if not hasattr(self, "capture"):
            return
        for _ in range(8):  # a commit without an answer, a start, the rest, and idle progress; each is waited for
            frames = self._session()[self.sent :]
            self.sent += len(frames)
            self._step(frames, seconds=1.0)
        assert self._found() == self._wanted()
        assert self._told() == self._to_be_told()
        assert self.confirmed >= max((t.end_lsn for t in self.transactions), default=0)

    def _start(self, *, earlier: int) -> None:
        first = StreamPosition(Lsn(FIRST_LSN))
        self.capture = _Capture(self.log, self.clock, first, self.caps, self.when)
        source = Source(tuple(self.transactions), ())
        self.first = max(0, source.first_to_send(self.capture.start.end_lsn) - earlier)
        self.sent = 0

    def _step(self, frames: list[bytes], *, seconds: float) -> None:
        self.clock.now_s += seconds
        self.capture.stream.reads.append(frames)
        stream = self.capture.stream
        try:
            self.capture.pipeline.step()
        except OutcomeUnknown:
            self._start(earlier=0)
        self.confirmed = max([self.confirmed, *stream.confirmed])

    def _session(self) -> list[bytes]:
        return Source(tuple(self.transactions), ()).session(self.first)

    def _sent_up_to(self) -> int:
        """The end of the last transaction of this session that was sent whole."""
        left, end = self.sent, 0
        for index in range(self.first, len(self.transactions)):
            left = self.sent - len(Source(tuple(self.transactions[: index + 1]), ()).session(self.first))
            if left < 0:
                break
            end = self.transactions[index].end_lsn
        return end

    def _wanted(self) -> list[EventId]:
        """What the history makes of it: a TRUNCATE deletes every key that its table has in the log by then."""
        wanted: list[EventId] = []
        live: dict[str, set[int]] = {topic: set() for topic in _TOPICS}
        for commit_lsn, ordinal, step in Source(tuple(self.transactions), ()).changes:
            topic = f"shop.public.t{step.oid}"
            keys = sorted(live[topic]) if step.kind == "T" else [step.number]
            wanted += [(commit_lsn, ordinal, topic, key) for key in keys]
            live[topic] = live[topic] - set(keys) if step.kind in "TD" else live[topic] | set(keys)
        return wanted

    def _told(self) -> list[tuple[str, int, int | None]]:
        """What the topic of transactions says: (status, commit_lsn, events).

        One that was spread before its first event, of which it had none in the end, is left out with both its records.
        """
        told = []
        for stored in self.log.records(_TRANSACTIONS):
            value = json.loads(stored.value or b"")
            if value.get("op") == "t":
                told.append(("TRUNCATE", value["source"]["commit_lsn"], value["transaction"]["total_order"]))
            else:
                told.append((value["status"], int(value["id"].partition(":")[2]), value["event_count"]))
        empty = {commit_lsn for status, commit_lsn, count in told if status == "END" and count == 0}
        return [one for one in told if one[1] not in empty]

    def _to_be_told(self) -> list[tuple[str, int, int | None]]:
        told: list[tuple[str, int, int | None]] = []
        changes = Source(tuple(self.transactions), ()).changes
        for transaction in self.transactions:
            kinds = [step.kind for commit_lsn, _, step in changes if commit_lsn == transaction.commit_lsn]
            truncates = [("TRUNCATE", transaction.commit_lsn, n) for n, kind in enumerate(kinds, 1) if kind == "T"]
            if kinds:
                told += [("BEGIN", transaction.commit_lsn, None), *truncates]
                told.append(("END", transaction.commit_lsn, len(kinds)))
        return told

    def _found(self) -> list[EventId]:
        """Events of the log in total order; per partition they must already be in it."""
        found: list[EventId] = []
        for topic, count in _TOPICS.items():
            for index in range(count):
                ids: list[EventId] = []
                for stored in self.log.records(topic):
                    if stored.partition != index:
                        continue
                    key = json.loads(stored.key or b"")["id"]
                    if stored.value is None:
                        assert ids[-1][2:] == (topic, key), "a tombstone stands right behind its delete"
                        continue
                    source = json.loads(stored.value)["source"]
                    assert "unchanged" not in source, "a record is published before it is complete"
                    ids.append((source["commit_lsn"], source["ordinal"], topic, key))
                assert ids == sorted(ids)
                found += ids
        return sorted(found)


def test_log_has_every_event_exactly_once_over_any_crash() -> None:
    steps = settings(stateful_step_count=30, max_examples=_EXAMPLES)
    run_state_machine_as_test(CrashMachine, settings=steps)
