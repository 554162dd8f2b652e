"""The file of `cdc state export`: what capture needs to continue on another Kafka cluster. Pure.

JSON lines. The first is the header, the last a count, so that a file that was cut off is noticed. In between are
records of ``<name>.__progress`` and one digest for each partition. The file has no row values, keys or secrets: a
digest is a hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from cdc.errors import UsageError
from cdc.model.log_record import LogRecord

STATE_FILE_VERSION: Final = 1
KIND: Final = "tailrace-state"
TAIL_RECORDS: Final = 100
"""Last records of a partition without keys that are compared; its older ones may be removed at any time."""

_MASK: Final = (1 << 64) - 1


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """What a partition holds, so that its copy can be compared.

    Compaction removes other records in a copy than in the original. So records with a key count by the newest one of
    each key, without tombstones; of records without a key the last ones count.

    Attributes:
        live_count: keys whose newest record has a value.
        live_hash: the sum of the hashes of these records, 64 bits.
        tail: hashes of the last TAIL_RECORDS records without a key, oldest first.
    """

    topic: str
    partition: int
    live_count: int = 0
    live_hash: str = "0" * 16
    tail: tuple[str, ...] = ()

    def differs(self, copy: Digest) -> str:
        """Return how the copy differs; empty if it does not. Both may lack old records without a key."""
        if self.live_count != copy.live_count:
            return f"it has {copy.live_count:,} rows, the original {self.live_count:,}"
        if self.live_hash != copy.live_hash:
            return "it has other rows than the original"
        common = min(len(self.tail), len(copy.tail))
        if self.tail[len(self.tail) - common :] != copy.tail[len(copy.tail) - common :]:
            return "its last records are not those of the original"
        return f"it is empty, the original has {len(self.tail)} records" if self.tail and not common else ""


class Digesting:
    """Computes the digest of one partition. Memory: about 150 bytes for each live key."""

    def __init__(self, topic: str, partition: int) -> None:
        self._at = (topic, partition)
        self._live: dict[bytes, int] = {}
        self._tail: list[str] = []

    def add(self, records: Iterable[LogRecord]) -> None:
        """Add records in their order."""
        for record in records:
            key, value = record.key, record.value
            if key is None:
                self._tail.append(f"{xxh3_64_intdigest(value or b''):016x}")
            elif value is None:
                self._live.pop(key, None)
            else:
                self._live[key] = xxh3_64_intdigest(value, xxh3_64_intdigest(key))
        del self._tail[:-TAIL_RECORDS]

    def done(self) -> Digest:
        """Return the digest."""
        return Digest(
            topic=self._at[0],
            partition=self._at[1],
            live_count=len(self._live),
            live_hash=f"{sum(self._live.values()) & _MASK:016x}",
            tail=tuple(self._tail),
        )


@dataclass(frozen=True, slots=True)
class StateFile:
    """An exported state.

    Attributes:
        name: of the pipeline.
        release: that exported it.
        exported_at: time in UTC.
        records: key -> value of the records of ``<name>.__progress`` that the new cluster gets.
        digests: of every partition.
    """

    name: str
    release: str
    exported_at: str
    records: Mapping[bytes, bytes] = field(default_factory=dict)
    digests: tuple[Digest, ...] = ()


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    version: int
    name: str
    release: str
    exported_at: str


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line behind the header: a record, a digest, or the number of lines before it."""

    key: str | None = None
    value: msgspec.Raw = msgspec.Raw(b"")
    digest: Digest | None = None
    lines: int | None = None


class _Beginning(msgspec.Struct):
    kind: str
    version: int


def encode(state: StateFile) -> Iterator[bytes]:
    """Yield the lines of the file."""
    header = _Header(
        kind=KIND, version=STATE_FILE_VERSION, name=state.name, release=state.release, exported_at=state.exported_at
    )
    lines: list[_Header | _Line] = [header]
    lines += [_Line(key=key.decode(), value=msgspec.Raw(value)) for key, value in state.records.items()]
    lines += [_Line(digest=digest) for digest in state.digests]
    for line in (*lines, _Line(lines=len(lines))):
        yield msgspec.json.encode(line) + b"\n"


def decode(data: bytes) -> StateFile:
    """Read a file. Raises UsageError if it is damaged, incomplete or of another version."""
    lines = data.splitlines()
    try:
        beginning = msgspec.json.decode(lines[0] if lines else b"", type=_Beginning)
        if beginning.kind != KIND:
            raise UsageError("the file is not an exported state", command="cdc state export FILE")
        if beginning.version != STATE_FILE_VERSION:
            raise UsageError(
                f"the file has version {beginning.version}; this release reads version {STATE_FILE_VERSION}",
                hint="a newer release of Tailrace exported it; import it with that release or a later one",
                command="cdc --version",
            )
        header = msgspec.json.decode(lines[0], type=_Header)
        found = [msgspec.json.decode(line, type=_Line) for line in lines[1:]]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _damaged("a line is not readable") from None
    if not found or found[-1].lines != len(found):
        raise _damaged("it is cut off")
    records = {one.key.encode(): bytes(one.value) for one in found if one.key is not None}
    digests = tuple(one.digest for one in found if one.digest is not None)
    return StateFile(header.name, header.release, header.exported_at, records, digests)


def _damaged(why: str) -> UsageError:
    return UsageError(f"the exported state is damaged: {why}", hint="export it again", command="cdc state export FILE")
