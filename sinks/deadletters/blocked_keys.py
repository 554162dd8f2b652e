"""The blocked keys of a sink: their records in the state topic, and their form in a worker's memory. Pure.

``{"blocked":[topic,partition,key]}`` -> Block: a record of the key was refused, and all later records of it are parked.
``{"retry":[topic,partition,key]}`` -> KeyRequest: an operator wants the key retried or skipped; the worker that owns
the partition does it. A key that is not UTF-8 is ``{"base64":…}``. See `sinks.state.state_topic`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from cdc.errors import SinkUnfit
from sinks.contract import TopicPartition

STATE_VERSION: Final = 1
ERRORS_MAX: Final = 1000  # error classes kept in memory; a store has a few dozen

Action: TypeAlias = Literal["retry", "skip"]
BlockedKey: TypeAlias = tuple[TopicPartition, bytes]


class Block(NamedTuple):
    """A blocked key.

    Attributes:
        first: offset of the record that was refused.
        last: offset of the newest parked record; all records of the key from `first` to it are parked.
        record_count: the number of parked records.
        at: offset of the first one in the dead-letter topic.
        since_ms: when it was blocked, by the worker's clock.
        tries: number of failed retries.
        error: class of the last refusal.
    """

    first: int
    last: int
    record_count: int
    at: int
    since_ms: int
    tries: int
    error: str


class KeyRequest(NamedTuple):
    """An operator's request for a blocked key; `id` is unique."""

    action: Action
    id: str


class _Versioned(msgspec.Struct):
    version: int


class _BlockRecord(msgspec.Struct, frozen=True):
    version: int
    first: int
    last: int
    record_count: int
    at: int
    since_ms: int
    tries: int = 0
    error: str = ""


class _RequestRecord(msgspec.Struct, frozen=True):
    version: int
    action: Action
    id: str = ""


class _Bytes(msgspec.Struct, frozen=True):
    base64: str


_Named: TypeAlias = tuple[str, int, str | _Bytes]


class _Key(msgspec.Struct, frozen=True, omit_defaults=True):
    blocked: _Named | None = None
    retry: _Named | None = None


_key: Final = msgspec.json.Decoder(_Key).decode
_encode: Final = msgspec.json.Encoder().encode


def blocked_key(place: TopicPartition, key: bytes) -> bytes:
    """The key of a Block in the state topic."""
    return _encode(_Key(blocked=_named(place, key)))


def request_key(place: TopicPartition, key: bytes) -> bytes:
    """The key of a KeyRequest in the state topic."""
    return _encode(_Key(retry=_named(place, key)))


def encode_block(block: Block) -> bytes:
    """Encode a Block for the state topic."""
    return _encode(_BlockRecord(STATE_VERSION, *block))


def encode_request(request: KeyRequest) -> bytes:
    """Encode a KeyRequest for the state topic."""
    return _encode(_RequestRecord(STATE_VERSION, *request))


def parse_key(data: bytes) -> tuple[Literal["blocked", "retry"], BlockedKey] | None:
    """Parse the key of an entry; None for an entry that does not belong to dead letters."""
    try:
        found = _key(data)
        if found.blocked is not None:
            return "blocked", _unnamed(found.blocked)
        if found.retry is not None:
            return "retry", _unnamed(found.retry)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        pass
    return None


def parse_block(data: bytes, where: str) -> Block:
    """Read a Block. Raises SinkUnfit when it is not readable, or of another version."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != STATE_VERSION:
            record = f"a record of a blocked key in {where}"
            raise SinkUnfit.of_newer_release(record, version, STATE_VERSION, topic=where)
        found = msgspec.json.decode(data, type=_BlockRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _unreadable(where) from None
    return Block(found.first, found.last, found.record_count, found.at, found.since_ms, found.tries, found.error)


def parse_request(data: bytes) -> KeyRequest | None:
    """Read a KeyRequest; None when it is not readable: a bad request must not stop a worker."""
    try:
        found = msgspec.json.decode(data, type=_RequestRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return KeyRequest(found.action, found.id) if found.version == STATE_VERSION else None


def _named(place: TopicPartition, key: bytes) -> _Named:
    try:
        return (*place, key.decode())
    except UnicodeDecodeError:
        return (*place, _Bytes(base64.b64encode(key).decode()))


def _unnamed(named: _Named) -> BlockedKey:
    topic, partition, key = named
    return (topic, partition), key.encode() if isinstance(key, str) else base64.b64decode(key.base64, validate=True)


def _unreadable(where: str) -> SinkUnfit:
    return SinkUnfit(
        f"a record of a blocked key in {where} is not readable, so the blocked keys are unknown",
        hint="another program, or another version of Tailrace, wrote it",
        topic=where,
    )


_PACKED: Final = struct.Struct("<qqqqqiH")


class BlockedKeys:
    """The blocked keys of the assigned partitions: about 250 bytes each, plus the key.

    The check for each record is one dictionary lookup.
    """

    def __init__(self) -> None:
        self._keys: dict[TopicPartition, dict[bytes, bytes]] = {}
        self._errors: list[str] = ["other"]
        self._error_at: dict[str, int] = {}

    def assign(self, places: Iterable[TopicPartition]) -> None:
        """Forget all keys, and accept keys of these partitions from now on."""
        self._keys = {place: {} for place in places}

    def has_place(self, place: TopicPartition) -> bool:
        """Whether the partition is assigned."""
        return place in self._keys

    def has(self, place: TopicPartition, key: bytes) -> bool:
        """Whether the key is blocked."""
        return key in self._keys.get(place, ())

    def get(self, place: TopicPartition, key: bytes) -> Block | None:
        """Return the Block of the key."""
        packed = self._keys.get(place, {}).get(key)
        if packed is None:
            return None
        first, last, record_count, at, since_ms, tries, error = _PACKED.unpack(packed)
        return Block(first, last, record_count, at, since_ms, tries, self._errors[error])

    def put(self, place: TopicPartition, key: bytes, block: Block) -> None:
        """Block a key of an assigned partition."""
        self._keys[place][key] = _PACKED.pack(*block[:6], self._error(block.error))

    def drop(self, place: TopicPartition, key: bytes) -> None:
        """Unblock the key."""
        self._keys.get(place, {}).pop(key, None)

    def count(self, place: TopicPartition) -> int:
        """Return the number of blocked keys of a partition."""
        return len(self._keys.get(place, ()))

    def _error(self, error: str) -> int:
        at = self._error_at.get(error)
        if at is None:
            if len(self._errors) >= ERRORS_MAX:
                return 0
            at = self._error_at[error] = len(self._errors)
            self._errors.append(error)
        return at
