"""Reads the newest events, and those of one key, for the page.

The position of a reader is an offset of the cut index, so it is one number whatever the number of partitions: the cuts
behind it say which partitions have new records. An event may be returned twice when two polls meet at its cut; topic,
partition and offset identify it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cdc.cutindex.index_reader import IndexedCut, counts_of, cuts_between
from cdc.errors import TopicMismatch, UsageError
from cdc.inspect.log_reading import Event, EventMerger
from cdc.lsn import Lsn
from cdc.model.key_match import key_matches
from cdc.model.topic_names import cuts_topic
from cdc.patterns import matches
from cdc.progress.restore import Partition

if TYPE_CHECKING:
    from cdc.kafka.log_reader import LogReader

LIMIT_MAX: Final = 1000
OPS: Final = frozenset("curd")
_WINDOW: Final = 384
"""Offsets of the cut index that are read: those of 128 Kafka transactions, each with an empty record and a marker."""

_BEHIND_MAX: Final = 4096  # a reader that was away for longer continues at the newest cuts
_PARTITIONS_MAX: Final = 200
_KEY_RECORDS_MAX: Final = 2_000_000
_KEY_EVENTS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which events to return: tables by name or shell pattern, operations and a key; empty or None: all."""

    tables: Sequence[str] = ()
    ops: frozenset[str] = frozenset()
    key: object = None
    limit: int = 200

    def fits(self, event: Event) -> bool:
        """Whether to return an event; a tombstone is part of its delete."""
        envelope = event.envelope
        return (
            envelope is not None
            and (not self.ops or envelope.op in self.ops)
            and (self.key is None or key_matches(self.key, event.record.key))
        )


def newest_events(
    reader: LogReader, name: str, topics: Mapping[str, str], wanted: Wanted, cursor: int | None, *, values: bool
) -> dict[str, Any]:
    """Return the newest events, or with `cursor` those behind it, the oldest first, and the next cursor.

    `topics`: topic -> table. Without `values`, keys and rows are left out. Raises UsageError for a table that does not
    exist, BrokerUnreachable, BrokerRefused.
    """
    chosen = _chosen(topics, wanted.tables)
    index = cuts_topic(name)
    try:
        low, high = reader.end_offsets([index])[index, 0]
    except TopicMismatch:
        return _answer([], topics, None, values=values)
    if cursor is not None and low <= cursor <= high and high - cursor <= _BEHIND_MAX:
        begin = cursor
    elif wanted.tables and cursor is None:
        ends = reader.end_offsets(sorted(chosen)[:_PARTITIONS_MAX])
        spans = {at: (max(first, end - wanted.limit), end, 0) for at, (first, end) in ends.items()}
        return _answer(_read(reader, spans, wanted), topics, high, values=values)
    else:
        begin = max(low, high - _WINDOW)
    before = list(cuts_between(reader, index, max(low, begin - _WINDOW), begin))
    cuts = list(cuts_between(reader, index, begin, high))
    spans = _spans(before, cuts, chosen, wanted.limit)
    lows = {at: first for at, (first, _) in reader.end_offsets({topic for topic, _ in spans}).items()} if spans else {}
    spans = {at: (max(lows.get(at, 0), first), end, since) for at, (first, end, since) in spans.items()}
    return _answer(_read(reader, spans, wanted), topics, high, values=values)


def key_events(reader: LogReader, topic: str, table: str, key: object) -> dict[str, Any]:
    """Return the newest events of one key that the topic still has, the oldest first."""
    ends = reader.end_offsets([topic])
    starts = {at: max(first, end - _KEY_RECORDS_MAX) for at, (first, end) in ends.items()}
    wanted = Wanted(key=key, limit=_KEY_EVENTS_MAX)
    spans = {at: (start, ends[at][1], 0) for at, start in starts.items()}
    found = _answer(_read(reader, spans, wanted), {topic: table}, None, values=True)
    complete = all(starts[at] == first for at, (first, _) in ends.items())
    return {"table": table, "complete": complete, "events": found["events"]}


def _chosen(topics: Mapping[str, str], patterns: Sequence[str]) -> Mapping[str, str]:
    if not patterns:
        return topics
    known = set(topics.values())
    for pattern in patterns:
        if not any(matches(table, [pattern]) for table in known):
            raise UsageError(f"no captured table matches {pattern!r}", hint="write schema.table, or a shell pattern")
    return {topic: table for topic, table in topics.items() if matches(table, patterns)}


def _spans(
    before: Sequence[IndexedCut], cuts: Sequence[IndexedCut], chosen: Mapping[str, str], limit: int
) -> dict[Partition, tuple[int, int, int]]:
    """Return partition -> (first offset, end, no older than this time) for the records of `cuts`.

    The first offset of a partition is where an earlier cut ended. If no cut that was read names it, records that are
    older than the last cut before are not of these cuts: there is one Kafka transaction at a time.
    """
    starts: dict[Partition, int] = {}
    for one in before:
        starts.update((at, count.next_offset) for at, count in counts_of(one.cut).items())
    since_ms = before[-1].written_ms if before else 0
    ends: dict[Partition, int] = {}
    for one in cuts:
        for at, count in counts_of(one.cut).items():
            if at[0] in chosen and count.next_offset > starts.get(at, -1):
                ends.pop(at, None)  # the partitions that changed last are read
                ends[at] = count.next_offset
    return {
        at: (max(starts.get(at, 0), end - limit, 0), end, 0 if at in starts else since_ms)
        for at, end in list(ends.items())[-_PARTITIONS_MAX:]
    }


def _read(reader: LogReader, spans: Mapping[Partition, tuple[int, int, int]], wanted: Wanted) -> list[Event]:
    """Return the newest wanted events of these spans, in the order of the log."""
    merger = EventMerger()
    found: list[Event] = []

    def keep(events: Sequence[Event]) -> None:
        found.extend(event for event in events if wanted.fits(event))
        del found[: -wanted.limit]

    starts = {at: first for at, (first, end, _) in spans.items() if first < end}
    for batch in reader.read(starts, {at: spans[at][1] for at in starts}):
        keep(merger.add(record for record in batch if record.timestamp_ms >= spans[record.topic_partition][2]))
    keep(merger.flush())
    return found


def _answer(events: Sequence[Event], topics: Mapping[str, str], cursor: int | None, *, values: bool) -> dict[str, Any]:
    shown = list(_shown(events, topics, values=values))
    hint = "" if values else "keys and rows are shown with the bearer token (http.token)"
    return {"cursor": None if cursor is None else str(cursor), "events": shown, "values": values, "hint": hint}


def _shown(events: Sequence[Event], topics: Mapping[str, str], *, values: bool) -> Iterator[dict[str, Any]]:
    for event in events:
        record, envelope = event.record, event.envelope
        assert envelope is not None
        at = datetime.fromtimestamp(envelope.ts_ms / 1000, UTC).isoformat(timespec="milliseconds")
        yield {
            "at": at.replace("+00:00", "Z"),
            "lsn": str(Lsn(envelope.source.commit_lsn)),
            "op": envelope.op,
            "table": topics.get(record.topic, record.topic),
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": _value(record.key) if values else None,
            "before": _value(envelope.before) if values else None,
            "after": _value(envelope.after) if values else None,
        }


def _value(data: bytes | msgspec.Raw | None) -> object:
    """Return a JSON value, or text of bytes that are not JSON."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(bytes(data))
    except msgspec.MsgspecError:
        return bytes(data).decode(errors="replace")
