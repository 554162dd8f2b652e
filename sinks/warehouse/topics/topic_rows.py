"""Reads which rows a view's topic holds, when no version of the lake says it.

That is so if the lake is in a new folder, if the sink has a new name, or if the version is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from cdc.errors import ViewRefused
from sinks.warehouse.views.version_diff import Versions, differences, digest

if TYPE_CHECKING:
    from cdc.model.log_record import LogRecord
    from sinks.warehouse.views.view_records import Difference

    Partition = tuple[str, int]


class RowReader(Protocol):
    """What this module needs of `cdc.kafka.log_reader.LogReader`."""

    def end_offsets(self, topics: Iterable[str]) -> Mapping[Partition, tuple[int, int]]:
        """Return the first offset and the end of each partition."""

    def read(self, assignments: Mapping[Partition, int], until: Mapping[Partition, int]) -> Iterator[list[LogRecord]]:
        """Yield the committed records between two offsets of each partition."""


class _Event(msgspec.Struct):
    after: msgspec.Raw


def rows_in(reader: RowReader, topic: str) -> dict[bytes, bytes]:
    """Return key -> digest of the newest row of each key. Raises ViewRefused for a record that is not of a view."""
    bounds = reader.end_offsets([topic])
    starts = {place: low for place, (low, high) in bounds.items() if low < high}
    found: dict[bytes, bytes] = {}
    if not starts:
        return found
    for batch in reader.read(starts, {place: bounds[place][1] for place in starts}):
        for record in batch:
            key, row = record.key or b"", _row(record, topic)
            if row is None:
                found.pop(key, None)
            else:
                found[key] = digest(row)
    return found


def _row(record: LogRecord, topic: str) -> bytes | None:
    if record.value is None:
        return None
    try:
        row = bytes(msgspec.json.decode(record.value, type=_Event).after)
    except msgspec.MsgspecError:
        raise ViewRefused(
            f"{topic} has a record that no lake has written, in partition {record.partition} at offset {record.offset}",
            hint="publish the view under another name, in another file, or delete the topic while the lake is stopped",
        ) from None
    return None if row == b"null" else row


@dataclass(frozen=True)
class TopicVersions(Versions):
    """The rows of a topic and a version of its view; `held` is what `rows_in` returns, 200 bytes per row."""

    held: Mapping[bytes, bytes]

    def differences(self) -> Iterator[Difference]:
        """See `Versions`."""
        return differences(dict(self.held), self.form, self._now.parts(without=set()))
