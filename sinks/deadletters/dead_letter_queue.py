"""The dead-letter queue of a sink: blocked keys, and the records parked behind each.

Implements `sinks.contract.DeadLetters` on two topics: the sink's state (`sinks.state.state_topic`,
`sinks.deadletters.blocked_keys`) and ``<name>.__dlq.<sink>`` (`sinks.deadletters.dead_letter_record`,
`sinks.deadletters.dead_letter_topic`). It uses no Kafka transaction, so that no worker needs a transactional id. The
order of the writes makes a crash harmless:

    1. park: first the dead letters, then the block; the runner commits offsets after both.
       After a crash in between, no block refers to the dead letters. The record is read and tried again; a dead
       letter that was written twice counts once.
    2. settled: first remove the block, then the request.
       After a crash before both, the key is retried, which changes nothing. After a crash in between, the request for
       a key that is not blocked is dropped.

A worker that lost its partition without noticing may still write a block or remove one. A block is harmless: the key
stays blocked until an operator retries it. If it removes one, the partition's owner notices within LOOK_S and writes
the block again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cdc.clock import Clock
from cdc.errors import BrokerUnreachable, InvariantError, SinkUnfit
from cdc.model.change_records import Record
from cdc.model.log_record import LogRecord
from sinks.contract import Outcome, ParkedKey, TopicPartition, Verdict
from sinks.deadletters.blocked_keys import (
    Block,
    BlockedKey,
    BlockedKeys,
    KeyRequest,
    blocked_key,
    encode_block,
    parse_block,
    parse_key,
    parse_request,
    request_key,
)
from sinks.deadletters.dead_letter_record import BEHIND, DeadLetter, headers_of

LOOK_S: Final = 1.0  # between checks for requests; a check is one query to the broker
RETRY_KEYS_MAX: Final = 1_000  # returned by one call of `retries`
RETRY_BYTES_MAX: Final = 16 << 20  # of their records; a key with more is returned alone
GONE: Final = "records_gone"
"""The error of a key whose dead letters Kafka has removed (retention of the dead-letter topic)."""


class StateLog(Protocol):
    """The part of `sinks.state.state_topic.StateTopic` that is needed here."""

    topic: str

    def stream(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield all entries, oldest first."""

    def new(self) -> list[tuple[bytes, bytes | None]]:
        """Return the entries since the last read."""

    def put(self, entries: Sequence[tuple[bytes, bytes | None]]) -> list[int]:
        """Write entries durably, in this order."""

    def close(self) -> None:
        """End the connections."""


class DeadLetterLog(Protocol):
    """The part of `sinks.deadletters.dead_letter_topic.DeadLetterTopic` that is needed here."""

    def append(self, letters: Sequence[Record]) -> list[int]:
        """Write dead letters durably; return their offsets."""

    def read(self, start: int) -> Iterator[DeadLetter]:
        """Yield the dead letters from this offset to the current end."""

    def close(self) -> None:
        """End the connections."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings `[sinks.NAME]` on_refused and parked_keys_max."""

    sink: str
    stop: bool = False
    keys_max: int = 10_000


class KafkaDeadLetters:
    """See `sinks.contract.DeadLetters`. One thread."""

    def __init__(self, state: StateLog, letters: DeadLetterLog, policy: Policy, clock: Clock) -> None:
        self._state = state
        self._letters = letters
        self._policy = policy
        self._clock = clock
        self._keys = BlockedKeys()
        self._places: frozenset[TopicPartition] = frozenset()
        self._requests: dict[BlockedKey, KeyRequest] = {}
        self._under_way: set[BlockedKey] = set()
        self._looked_s: float | None = None

    def assigned(self, places: Iterable[TopicPartition]) -> None:
        """See `sinks.contract.DeadLetters`. Reads the state topic, because memory may be older than another owner's."""
        self._places = frozenset(places)
        self._keys.assign(self._places)
        self._requests.clear()
        self._under_way.clear()
        for entry, value in self._state.stream():
            self._load(entry, value)
        self._looked_s = self._clock.monotonic_s()

    def blocks(self, place: TopicPartition, key: bytes) -> bool:
        """See `sinks.contract.DeadLetters`."""
        return self._keys.has(place, key)

    def park(self, place: TopicPartition, key: bytes, records: Sequence[LogRecord], outcome: Outcome) -> None:
        """See `sinks.contract.DeadLetters`. Records that are parked already are left out."""
        if not self._keys.has_place(place):
            raise InvariantError(f"cannot park a record of {place[0]}-{place[1]}: the partition is not assigned")
        block = self._keys.get(place, key)
        if block is None:
            self._admit(place, outcome)
        fresh = [record for record in records if block is None or record.offset > block.last]
        if not fresh:
            return
        now_ms = int(self._clock.wall_s() * 1000)
        offsets = self._letters.append(_letters(fresh, outcome, now_ms, behind=block is not None))
        if block is None:
            block = Block(fresh[0][2], 0, 0, offsets[0], now_ms, 0, outcome.error)
        block = block._replace(last=fresh[-1][2], record_count=block.record_count + len(fresh))
        self._state.put([(blocked_key(place, key), encode_block(block))])
        self._keys.put(place, key, block)

    def retries(self) -> Sequence[ParkedKey]:
        """See `sinks.contract.DeadLetters`. Empty while the broker does not answer."""
        try:
            self._read_new()
            return self._wanted()
        except BrokerUnreachable:
            return ()

    def settled(self, parked: ParkedKey, outcome: Outcome) -> None:
        """See `sinks.contract.DeadLetters`. LATER: `retries` returns the key again."""
        place, key = parked.place, parked.key
        block = self._keys.get(place, key)
        self._under_way.discard((place, key))
        if block is None or outcome.verdict is Verdict.LATER:
            return  # LATER, or the partition was revoked
        if outcome.verdict is Verdict.REFUSED:
            self._keep(place, key, block._replace(tries=block.tries + 1, error=outcome.error))
            return
        self._state.put([(blocked_key(place, key), None), (request_key(place, key), None)])
        self._keys.drop(place, key)
        self._requests.pop((place, key), None)

    def close(self) -> None:
        """End the connections. May be called twice."""
        self._state.close()
        self._letters.close()

    def count(self) -> int:
        """Return the number of blocked keys in the assigned partitions."""
        return sum(self._keys.count(place) for place in self._places)

    def _admit(self, place: TopicPartition, outcome: Outcome) -> None:
        """Raise SinkUnfit unless one more key may be blocked."""
        topic, partition = place
        what = f"sink {self._policy.sink!r}: the store refuses a record of {topic}-{partition}: {outcome.error}"
        if self._policy.stop:
            raise SinkUnfit(
                f"{what}: {outcome.reason}",
                hint=f'fix the store or the row, or set sinks.{self._policy.sink}.on_refused = "park"',
                topic=topic,
                partition=partition,
            )
        if self._keys.count(place) >= self._policy.keys_max:
            raise SinkUnfit(
                f"{what}, and {self._policy.keys_max} keys of the partition are already blocked",
                hint=f"fix the cause and retry them, or raise sinks.{self._policy.sink}.parked_keys_max",
                command=f"cdc dlq list {self._policy.sink}",
                topic=topic,
                partition=partition,
            )

    def _load(self, entry: bytes, value: bytes | None) -> None:
        """Load an entry of the state at an assignment."""
        found = parse_key(entry)
        if found is None:
            return
        kind, (place, key) = found
        if place not in self._places:
            return
        if kind == "retry":
            self._load_request(place, key, value)
        elif value is None:
            self._keys.drop(place, key)
        else:
            self._keys.put(place, key, parse_block(value, self._state.topic))

    def _load_request(self, place: TopicPartition, key: bytes, value: bytes | None) -> None:
        request = None if value is None else parse_request(value)
        if request is None:
            self._requests.pop((place, key), None)
        else:
            self._requests[(place, key)] = request

    def _read_new(self) -> None:
        """Read what other processes wrote: requests, and blocks that differ from ours."""
        now_s = self._clock.monotonic_s()
        if self._looked_s is not None and now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        latest = dict(self._state.new())
        ours: list[tuple[bytes, bytes | None]] = []
        for entry, value in latest.items():
            found = parse_key(entry)
            if found is None or found[1][0] not in self._places:
                continue
            kind, (place, key) = found
            block = self._keys.get(place, key)
            if kind == "retry":
                self._load_request(place, key, value)
            elif block is None and value is not None:
                self._keys.put(place, key, parse_block(value, self._state.topic))
            elif block is not None and value != encode_block(block):
                ours.append((entry, encode_block(block)))
        if ours:
            self._state.put(ours)

    def _wanted(self) -> Sequence[ParkedKey]:
        """Return the next keys with a pending request."""
        idle = [wanted for wanted in self._requests if not self._keys.has(*wanted)]
        if idle:
            self._state.put([(request_key(*wanted), None) for wanted in idle])
            for wanted in idle:
                del self._requests[wanted]
        waiting = [wanted for wanted in self._requests if wanted not in self._under_way][:RETRY_KEYS_MAX]
        if not waiting:
            return ()
        skipped = [ParkedKey(*wanted, ()) for wanted in waiting if self._requests[wanted].action == "skip"]
        tried = self._found([wanted for wanted in waiting if self._requests[wanted].action == "retry"])
        self._under_way |= {(parked.place, parked.key) for parked in (*skipped, *tried)}
        return [*skipped, *tried]

    def _found(self, wanted: Sequence[BlockedKey]) -> list[ParkedKey]:
        """Return keys with their dead letters, up to RETRY_BYTES_MAX; keys whose dead letters are gone stay blocked."""
        blocks = {one: block for one in wanted if (block := self._keys.get(*one)) is not None}
        complete: list[ParkedKey] = []
        for (place, key), records in _gathered(self._letters, blocks).items():
            block = blocks[(place, key)]
            if sum(record.offset <= block.last for record in records) < block.record_count:
                self._keep(place, key, block._replace(tries=block.tries + 1, error=GONE))
            else:
                complete.append(ParkedKey(place, key, records))
        return complete

    def _keep(self, place: TopicPartition, key: bytes, block: Block) -> None:
        """Keep the key blocked, and remove the request."""
        self._state.put([(blocked_key(place, key), encode_block(block)), (request_key(place, key), None)])
        self._keys.put(place, key, block)
        self._requests.pop((place, key), None)


def _letters(records: Sequence[LogRecord], outcome: Outcome, now_ms: int, *, behind: bool) -> list[Record]:
    """Return dead letters for records of one key; those of a new block were folded into the refused change."""
    error, reason = (BEHIND, "") if behind else (outcome.error, outcome.reason)
    return [(record.key, record.value, headers_of(record, error, reason, now_ms)) for record in records]


def _gathered(letters: DeadLetterLog, blocks: Mapping[BlockedKey, Block]) -> dict[BlockedKey, list[LogRecord]]:
    """Return the dead letters of these keys in log order, each once; keys blocked last are left out when too large."""
    if not blocks:
        return {}
    found: dict[BlockedKey, dict[int, LogRecord]] = {one: {} for one in blocks}
    latest_first = sorted(blocks, key=lambda one: -blocks[one].at)
    size = 0
    for letter in letters.read(min(block.at for block in blocks.values())):
        one = (letter.place, letter.record.key or b"")
        offset = letter.record.offset
        if one not in found or offset < blocks[one].first or offset in found[one]:
            continue
        found[one][offset] = letter.record
        size += len(letter.record.value or b"")
        while size > RETRY_BYTES_MAX and len(found) > 1:
            dropped = found.pop(latest_first.pop(0))
            size -= sum(len(record.value or b"") for record in dropped.values())
    return {one: [records[offset] for offset in sorted(records)] for one, records in found.items()}
