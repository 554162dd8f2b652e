"""Resume tokens: where an ordered read stands, as a text that an application stores. Pure.

A token has the last boundary of the cut index before the event, and how far each partition was read behind it. So it is
exact whatever compaction removes later, and its size does not grow with the number of tables: a group has few
partitions. Only before the first boundary of the index it may name all of them.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from typing import Final, NamedTuple

import msgspec

from cdc.errors import UsageError
from cdc.lsn import Lsn
from cdc.progress.restore import Partition

TOKEN_VERSION: Final = 1
_FORM: Final = re.compile(r"t([pz])([0-9a-f]{8})\.([A-Za-z0-9_-]+)")
_COMPRESSED_FROM: Final = 1_000  # shorter ones take longer to compress than they save
_BYTES_MAX: Final = 16 << 20  # 8,000 partitions with long names have 2 MB
_STEPS_MAX: Final = 100  # events between two copies of the offsets of a group; a token goes through them


class LogIdentity(msgspec.Struct, frozen=True):
    """What a token belongs to.

    Attributes:
        name: of the pipeline.
        log_id: Kafka's id of the cut index, another one when the topics were recreated; empty if it is not readable.
        tables: the names or patterns that were chosen; empty for all tables.
    """

    name: str
    log_id: str
    tables: tuple[str, ...] = ()


class Boundary(msgspec.Struct, frozen=True):
    """A record of the cut index with `next_ordinal` 0: its offset there, and its position."""

    offset: int
    epoch: int
    end_lsn: int


class ReadState(msgspec.Struct, frozen=True):
    """Where a read stands.

    Attributes:
        boundary: the last one before the next event; None before the first one of the index.
        offsets: the next offset of each partition that was read further than `boundary`, by topic and partition.
    """

    boundary: Boundary | None = None
    offsets: dict[str, dict[int, int]] = {}

    def pairs(self) -> dict[Partition, int]:
        """Return `offsets` by partition."""
        return {(topic, index): at for topic, found in self.offsets.items() for index, at in found.items()}


class _Token(msgspec.Struct, frozen=True, rename={"log": "of", "state": "at"}):
    version: int
    log: LogIdentity
    state: ReadState


class _Version(msgspec.Struct):
    version: int


class Place(NamedTuple):
    """Where a read stood after one event. It is not changed by later events, and small: events share their parts."""

    log: LogIdentity
    boundary: Boundary | None
    base: dict[Partition, int]
    steps: list[tuple[Partition, int]]
    step_count: int

    def state(self) -> ReadState:
        """Return the state after the event."""
        offsets: dict[str, dict[int, int]] = {}
        for (topic, index), at in (self.base | dict(self.steps[: self.step_count])).items():
            offsets.setdefault(topic, {})[index] = at
        return ReadState(self.boundary, offsets)

    def token(self) -> str:
        """Return the token of this place."""
        return encode_token(self.log, self.state())


class ReadPlaces:
    """Follows a read, and returns the place after each event."""

    def __init__(self, log: LogIdentity, state: ReadState) -> None:
        self._log = log
        self._boundary = state.boundary
        self._base: dict[Partition, int] = state.pairs()
        self._steps: list[tuple[Partition, int]] = []

    def passed(self, partition: Partition, next_offset: int) -> Place:
        """An event was read."""
        if len(self._steps) >= _STEPS_MAX:
            self._base, self._steps = self._base | dict(self._steps), []
        self._steps.append((partition, next_offset))
        return self.here()

    def at(self, boundary: Boundary) -> None:
        """Everything up to a boundary was read."""
        self._boundary, self._base, self._steps = boundary, {}, []

    def here(self) -> Place:
        """Return the place now."""
        return Place(self._log, self._boundary, self._base, self._steps, len(self._steps))


def encode_token(log: LogIdentity, state: ReadState) -> str:
    """Return the token of a state."""
    data, form = msgspec.json.encode(_Token(TOKEN_VERSION, log, state)), "p"
    if len(data) >= _COMPRESSED_FROM:
        data, form = zlib.compress(data, 1), "z"
    return f"t{form}{zlib.crc32(data):08x}.{base64.urlsafe_b64encode(data).decode().rstrip('=')}"


def decode_token(text: str, log: LogIdentity) -> ReadState:
    """Return the state of a token. Raises UsageError for an invalid one, and for one of another log."""
    found = _decoded(text)
    if found.log.name != log.name:
        raise UsageError(
            f"the resume token is of pipeline {found.log.name!r}; this one is {log.name!r}",
            hint="use the configuration with which the token was made, or start from the beginning",
            command="cdc tail --ordered --from beginning --until now",
        )
    if found.log.log_id and log.log_id and found.log.log_id != log.log_id:
        raise stale_token("the topics of the pipeline were recreated since")
    if found.log.tables != log.tables:
        raise UsageError(
            f"the resume token is of {_named(found.log.tables)}; this read is of {_named(log.tables)}",
            hint="choose the same tables, or start from the beginning",
        )
    return found.state


def is_token(text: str) -> bool:
    """Whether a text has the form of a token, valid or not."""
    return re.match(r"t[pz][0-9a-f]{8}\.", text) is not None


def stale_token(reason: str) -> UsageError:
    """Return the error for a token whose place is not in the log."""
    return UsageError(
        f"the resume token does not fit the log: {reason}",
        hint="the events behind it cannot be determined; start from the beginning, or from an LSN",
        command="cdc tail --ordered --from beginning --until now",
    )


def _decoded(text: str) -> _Token:
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise _invalid(f"it has {len(text.strip())} characters and not the form of a token")
    form, checksum, encoded = match.groups()
    try:
        data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except binascii.Error:
        raise _invalid("it is not complete") from None
    if zlib.crc32(data) != int(checksum, 16):
        raise _invalid("its checksum is wrong")
    try:
        data = _plain(data) if form == "z" else data
        version = msgspec.json.decode(data, type=_Version).version
        if version != TOKEN_VERSION:
            raise UsageError.of_newer_release("the resume token", version, TOKEN_VERSION)
        return msgspec.json.decode(data, type=_Token)
    except (msgspec.MsgspecError, zlib.error):
        raise _invalid("its content is not that of a token") from None


def _plain(data: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    found = decompressor.decompress(data, _BYTES_MAX)
    if not decompressor.eof:
        raise _invalid("it is too large")
    return found


def _invalid(reason: str) -> UsageError:
    return UsageError(
        f"invalid resume token: {reason}",
        hint="copy it completely, as `cdc tail --ordered` printed it or `event.token` returned it",
    )


def _named(tables: tuple[str, ...]) -> str:
    return ", ".join(tables) or "all tables"


def shown(boundary: Boundary) -> str:
    """Return a boundary as text."""
    return f"cut {boundary.offset} (epoch {boundary.epoch}, {Lsn(boundary.end_lsn)})"
