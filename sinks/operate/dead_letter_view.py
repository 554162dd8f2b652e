"""Reads the blocked keys and dead letters of a sink, and requests retries and skips. Needs Kafka only.

A request is a record in the sink's state topic; the worker that owns the partition carries it out.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Self

from cdc.clock import Clock
from cdc.config.settings import Applied, Config
from cdc.config.sink_kinds import sink_of
from cdc.errors import TopicMismatch, UsageError
from cdc.kafka.durable_writer import RecordWriter
from cdc.kafka.log_reader import LogReader
from cdc.model.key_match import key_matches
from cdc.model.topic_names import dead_letters_topic, sink_state_topic, table_of
from cdc.patterns import matches
from sinks.contract import TopicPartition
from sinks.deadletters.blocked_keys import (
    Action,
    Block,
    BlockedKey,
    KeyRequest,
    encode_request,
    parse_block,
    parse_key,
    parse_request,
    request_key,
)
from sinks.deadletters.dead_letter_record import DeadLetter, parse_dead_letter

_POLL_S: Final = 0.2  # between checks whether a request was carried out


@dataclass(frozen=True, slots=True)
class BlockedRow:
    """A blocked key; `requested` is the pending request for it."""

    at: BlockedKey
    block: Block
    requested: Action | None = None

    @property
    def table(self) -> str:
        """``schema.table``."""
        return ".".join(table_of(self.at[0][0]))

    @property
    def key(self) -> str:
        """As the topic has it."""
        return self.at[1].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Selects blocked keys by table patterns, error class, or columns of the key; empty: all."""

    tables: Sequence[str] = ()
    error: str = ""
    key: object = None

    def fits(self, row: BlockedRow) -> bool:
        """Whether the key is selected."""
        return (
            (not self.tables or matches(row.table, self.tables))
            and (not self.error or row.block.error == self.error)
            and (self.key is None or key_matches(self.key, row.at[1]))
        )


def applied_sinks(config: Config) -> list[str]:
    """Return the sinks that can have dead letters."""
    return sorted(name for name, sink in config.sinks.items() if isinstance(sink, Applied))


class DeadLetterView:
    """The blocked keys of a sink. Close it.

    Raises UsageError for a sink without dead letters; every method raises BrokerUnreachable and BrokerRefused.
    """

    def __init__(self, config: Config, sink: str) -> None:
        """No connection is made yet."""
        if not isinstance(sink_of(config, sink), Applied):
            raise UsageError(
                f"sink {sink!r} is a warehouse, which has no dead letters: it applies every record or stops",
                hint="name a sink that applies one key at a time, such as search or cache",
            )
        self.sink = sink
        self._state = sink_state_topic(config.name, sink)
        self._letters = dead_letters_topic(config.name, sink)
        self._reader = LogReader(config.kafka, client_id="tailrace-dlq")
        self._writer = RecordWriter(config.kafka, client_id="tailrace-dlq")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._writer.close()

    def blocked(self) -> list[BlockedRow]:
        """Return all blocked keys by table, partition and offset. Empty when the sink never ran."""
        blocks: dict[BlockedKey, Block] = {}
        requests: dict[BlockedKey, Action] = {}
        for entry, (_, value) in self._newest().items():
            found = parse_key(entry)
            if found is None:
                continue
            kind, at = found
            if kind == "blocked":
                blocks[at] = parse_block(value, self._state)
            elif (request := parse_request(value)) is not None:
                requests[at] = request.action
        rows = [BlockedRow(at, block, requests.get(at)) for at, block in blocks.items()]
        return sorted(rows, key=lambda row: (row.at[0], row.block.first))

    def letters(self, rows: Sequence[BlockedRow]) -> Iterator[DeadLetter]:
        """Yield the dead letters of these keys, each record once, in the order they were parked."""
        wanted = {row.at: row.block for row in rows}
        if not wanted:
            return
        seen: set[tuple[BlockedKey, int]] = set()
        place = (self._letters, 0)
        low, high = self._reader.end_offsets([self._letters])[place]
        start = max(low, min(block.at for block in wanted.values()))
        for batch in self._reader.read({place: start}, {place: high}):
            for letter in map(parse_dead_letter, batch):
                at, offset = (letter.place, letter.record.key or b""), letter.record.offset
                if at in wanted and offset >= wanted[at].first and (at, offset) not in seen:
                    seen.add((at, offset))
                    yield letter

    def ask(self, rows: Sequence[BlockedRow], action: Action) -> None:
        """Request an action for these keys. It is durable when this returns; the sink handles it when it runs."""
        request = encode_request(KeyRequest(action, uuid.uuid4().hex))
        self._writer.write([(self._state, 0, request_key(*row.at), request, None) for row in rows])

    def settled(
        self,
        rows: Sequence[BlockedRow],
        clock: Clock,
        *,
        within_s: float,
        report: Callable[[int], None] = lambda _: None,
    ) -> tuple[list[BlockedRow], list[BlockedRow]]:
        """Wait until the requests are handled: (keys that are still blocked, keys not handled in time)."""
        wanted = {row.at for row in rows}
        end_s = clock.monotonic_s() + within_s
        while True:
            left = [row for row in self.blocked() if row.at in wanted]
            waiting = [row for row in left if row.requested is not None]
            report(len(waiting))
            if not waiting or clock.monotonic_s() > end_s:
                return [row for row in left if row.requested is None], waiting
            clock.wait(threading.Event(), _POLL_S)

    def _newest(self) -> dict[bytes, tuple[int, bytes]]:
        try:
            return self._reader.last_records(self._state)
        except TopicMismatch:
            return {}


def _table(place: TopicPartition) -> str:
    return ".".join(table_of(place[0]))


class BlockedKeyReader:
    """Returns the keys that are blocked now; reads only new records each time. Close it."""

    def __init__(self, config: Config, sink: str) -> None:
        """No connection is made yet."""
        self._reader = LogReader(config.kafka, client_id="tailrace-dlq")
        self._place = (sink_state_topic(config.name, sink), 0)
        self._next = 0
        self._keys: dict[TopicPartition, set[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def of(self, place: TopicPartition) -> frozenset[bytes]:
        """Return those of a partition; empty when no key was ever blocked."""
        self._look()
        return frozenset(self._keys.get(place, ()))

    def has(self, key: bytes, table: str | None = None) -> bool:
        """Whether the key is blocked, in that table or in any table."""
        self._look()
        return any(key in keys and table in {None, _table(place)} for place, keys in self._keys.items())

    def count(self) -> int:
        """Return how many keys are blocked."""
        self._look()
        return sum(len(keys) for keys in self._keys.values())

    def some(self, count: int) -> list[tuple[str, str]]:
        """Return the table and key of up to `count` blocked keys."""
        self._look()
        found = ((_table(place), key.decode(errors="replace")) for place, keys in self._keys.items() for key in keys)
        return sorted(islice(found, count))

    def _look(self) -> None:
        try:
            low, high = self._reader.end_offsets([self._place[0]])[self._place]
        except TopicMismatch:
            return
        for batch in self._reader.read({self._place: max(low, self._next)}, {self._place: high}):
            for record in batch:
                found = parse_key(record.key or b"")
                if found is not None and found[0] == "blocked":
                    at, key = found[1]
                    keys = self._keys.setdefault(at, set())
                    (keys.discard if record.value is None else keys.add)(key)
        self._next = high
