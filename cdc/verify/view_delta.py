"""Finds the rows of a table that a cut of the lake has and a snapshot of PostgreSQL does not, or the other way round.

The cut lies behind the snapshot, so it has everything that the snapshot sees, and transactions that followed. A key
that such a transaction wrote is replaced by its state in the log, as of the cut. All other rows are PostgreSQL's own.

    1. E0: the ends of the topics. Everything below was committed by transactions that had begun by then.
    2. X: the next transaction id to be assigned.
    3. S: a snapshot in which every transaction below X has ended. So it sees everything in the log below E0.
    4. L: the insert position of the WAL, after S. Everything that S sees lies below L.
    5. P: a cut of the lake that ends at L or behind it. So it has everything that S sees.
    6. A key without a record in [E0, P) that S does not see is the same in S and in P.

A commit can be in the log long before it is visible, so positions alone would not decide this (docs/internals/
snapshots.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from cdc.model.log_record import LogRecord
from cdc.model.visibility import PgSnapshot
from cdc.verify.key_states import KeyState, records_by_key, states_after

ROWS_MAX: Final = 200_000
BYTES_MAX: Final = 64 << 20
"""Keys and rows that one query gets as a parameter. PostgreSQL allows 1 GB."""


class Undecided(Exception):
    """The rows cannot be compared now; the message says why. Another snapshot may help."""


class RecordReader(Protocol):
    """The part of `cdc.kafka.log_reader.LogReader` that is used."""

    def read(
        self, assignments: Mapping[tuple[str, int], int], until: Mapping[tuple[str, int], int] | None = None
    ) -> Iterator[list[LogRecord]]:
        """Yield the committed records between two offsets of each partition."""


@dataclass(slots=True)
class TableDelta:
    """Keys whose state at the cut is not the one in the snapshot: key -> row as JSON, None if it was deleted."""

    rows: dict[bytes, bytes | None] = field(default_factory=dict)

    def document(self) -> str:
        """Return the delta as a JSON array of ``{"key": {...}, "row": {...} or null}``."""
        items = (b'{"key":' + key + b',"row":' + (row or b"null") + b"}" for key, row in self.rows.items())
        return (b"[" + b",".join(items) + b"]").decode()


def table_delta(
    reader: RecordReader,
    topic: str,
    start: Mapping[tuple[str, int], int],
    until: Mapping[tuple[str, int], int],
    snapshot: PgSnapshot,
) -> TableDelta:
    """Read the records of a topic between two positions and return what the snapshot does not see.

    Args:
        reader: of the log.
        topic: of the table.
        start: E0, by partition; a partition that is missing is read from its beginning.
        until: where the cut ends, by partition.
        snapshot: S.

    Raises Undecided if a row is incomplete in the log or there are too many; TopicMismatch.
    """
    ends = {at: end for at, end in until.items() if at[0] == topic}
    states: dict[bytes, list[KeyState]] = {}
    size = 0
    for batch in reader.read({at: start.get(at, 0) for at in ends}, ends):
        for key, records in records_by_key(batch).items():
            known = states.setdefault(key, [])
            before = known[-1] if known else None
            known[:] = [*_invisible(known, snapshot), *states_after(records, before)]
            size += sum(len(record.value or b"") + len(key) for record in records)
        if len(states) > ROWS_MAX or size > BYTES_MAX:
            raise Undecided(
                f"too many rows of {topic} changed between the snapshot and the lake's cut ({len(states):,} keys)"
            )
    return TableDelta(dict(_differing(topic, states, snapshot)))


def _invisible(states: Sequence[KeyState], snapshot: PgSnapshot) -> Iterable[KeyState]:
    """Keep the states of a key that decide whether it is replaced; one suffices."""
    return [state for state in states[:-1] if not _sees(snapshot, state)][:1] + list(states[-1:])


def _differing(
    topic: str, states: Mapping[bytes, Sequence[KeyState]], snapshot: PgSnapshot
) -> Iterator[tuple[bytes, bytes | None]]:
    for key, of_key in states.items():
        if all(_sees(snapshot, state) for state in of_key):
            continue
        last = of_key[-1]
        if last.absent or last.change.kept:
            columns = ", ".join(sorted({*last.absent, *last.change.kept}))
            raise Undecided(f"a row of {topic} changed meanwhile, and the log lacks its {columns}")
        yield key, last.change.row


def _sees(snapshot: PgSnapshot, state: KeyState) -> bool:
    """Whether the snapshot sees the record. One that names no transaction was read again, at an unknown time."""
    return state.xid is not None and not state.read and snapshot.sees(state.xid)
