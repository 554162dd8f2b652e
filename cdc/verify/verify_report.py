"""The result of a verification, per table and in total. Contains keys, never row values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from cdc.lsn import Lsn

EXAMPLES_MAX: Final = 5  # keys shown of each kind; enough to start looking, few enough to read

Countable = Literal["exact", "compacted", "unknown"]
"""Whether the records could be compared with the cut index: ``exact`` when every record exists, ``compacted`` when
Kafka may have removed some, ``unknown`` when the index does not reach back to the first one."""


@dataclass(slots=True)
class LogFaults:
    """Counts of faults in the log; all are 0 in a correct log.

    Attributes:
        repeated: events whose id occurred before.
        disordered: events behind a later one of their partition; a repeated batch looks the same.
        misplaced: records that are not in the partition of their key.
        unpaired: tombstones without a delete, or deletes without a tombstone.
        foreign: records that capture did not write.
        miscounted: partitions whose number of records differs from the cut index.
        altered: partitions with the right number of records but other bytes than were published.
    """

    repeated: int = 0
    disordered: int = 0
    misplaced: int = 0
    unpaired: int = 0
    foreign: int = 0
    miscounted: int = 0
    altered: int = 0

    def named(self) -> dict[str, int]:
        """Return the counts that are not 0, by name."""
        return {name: count for name in self.__slots__ if (count := getattr(self, name))}

    def add(self, other: LogFaults) -> None:
        """Add the counts of another partition or topic."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Differences:
    """Differences between a topic and its table.

    Attributes:
        compared: rows of the table.
        missing: rows that the log does not have.
        extra: rows that only the log has.
        different: rows with other content; always 0 for a table without a key.
        partial: rows compared without columns that capture left out (`source.omitted`).
        examples: kind -> some keys, as JSON.
    """

    compared: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    partial: int = 0
    examples: dict[str, list[str]] = field(default_factory=dict)

    def show(self, kind: str, key: str) -> None:
        """Add a key to the examples, up to EXAMPLES_MAX."""
        keys = self.examples.setdefault(kind, [])
        if len(keys) < EXAMPLES_MAX:
            keys.append(key)

    @property
    def count(self) -> int:
        """Number of rows that differ."""
        return self.missing + self.extra + self.different


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table and its topic.

    Attributes:
        keyed: whether it has a key; without one, rows are compared by their counts.
        record_count: records read, tombstones included.
        tombstone_count: tombstones among them.
        live_count: live rows in the log.
        totals: column -> (sum in the log, sum in the table), for the requested columns.
        problem: why the table could not be compared; empty when it was.
    """

    table: str
    topic: str
    keyed: bool
    record_count: int = 0
    tombstone_count: int = 0
    live_count: int = 0
    countable: Countable = "exact"
    faults: LogFaults = field(default_factory=LogFaults)
    differences: Differences = field(default_factory=Differences)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Compared, and nothing found."""
        return not self.problem and not self.faults.named() and not self.differences.count


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """All tables at one cut.

    Attributes:
        end_lsn: the cut: it includes every transaction whose commit record starts below.
        cut_count: Kafka transactions in the cut index up to it.
        partition_count: partitions read.
    """

    end_lsn: Lsn
    cut_count: int
    partition_count: int
    tables: tuple[TableReport, ...]

    @property
    def ok(self) -> bool:
        """Whether every table was compared and agrees. False if there was no table."""
        return bool(self.tables) and all(table.ok for table in self.tables)

    @property
    def record_count(self) -> int:
        """Number of records read from all topics."""
        return sum(table.record_count for table in self.tables)

    @property
    def faults(self) -> LogFaults:
        """The sum over all topics."""
        faults = LogFaults()
        for table in self.tables:
            faults.add(table.faults)
        return faults
