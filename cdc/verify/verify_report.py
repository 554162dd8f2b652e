"""What a verification found, as values: per table, and as a verdict. Keys are shown, row values never."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from cdc.lsn import Lsn

EXAMPLES_MAX: Final = 5  # keys shown of each kind; enough to start looking, few enough to read

Countable = Literal["exact", "compacted", "unknown"]
"""Whether the cut index could be held against the records: ``exact`` when every record is there to be counted,
``compacted`` when Kafka may have removed some, ``unknown`` when the index does not reach back to the first one."""


@dataclass(slots=True)
class LogFaults:
    """What no log may have; every field is a count and 0 in a sound one.

    Attributes:
        repeated: an event id that was there already.
        disordered: an event behind a later one of its partition; so does a repeated batch look.
        misplaced: a record in another partition than its key's.
        unpaired: a tombstone without its delete, or the other way round.
        foreign: a record that is no event of ours.
        miscounted: partitions with another number of records than the cut index says.
        altered: partitions with the right number of records, but not the bytes that were published.
    """

    repeated: int = 0
    disordered: int = 0
    misplaced: int = 0
    unpaired: int = 0
    foreign: int = 0
    miscounted: int = 0
    altered: int = 0

    def named(self) -> dict[str, int]:
        """Those that are not 0, by name."""
        return {name: count for name in self.__slots__ if (count := getattr(self, name))}

    def add(self, other: LogFaults) -> None:
        """Count those of another partition or topic too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Differences:
    """What the fold of a topic and its table do not agree on.

    Attributes:
        compared: rows of the table.
        missing: rows that the log does not have.
        extra: rows that only the log has.
        different: rows with another content; always 0 for a table without a key.
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
        """Remember a key, unless there are enough."""
        keys = self.examples.setdefault(kind, [])
        if len(keys) < EXAMPLES_MAX:
            keys.append(key)

    @property
    def count(self) -> int:
        """Rows that do not agree."""
        return self.missing + self.extra + self.different


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table and its topic.

    Attributes:
        keyed: whether it has a key; without one it is compared as a bag of rows.
        record_count: records read, tombstones included.
        tombstone_count: of those, tombstones.
        live_count: rows the log folds to.
        totals: column -> (sum over the fold, sum over the table), for the columns asked for.
        problem: why it could not be compared; empty when it was.
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
        end_lsn: the cut: every transaction whose commit record starts below it was folded.
        cut_count: Kafka transactions in the cut index up to it.
        partition_count: partitions read.
    """

    end_lsn: Lsn
    cut_count: int
    partition_count: int
    tables: tuple[TableReport, ...]

    @property
    def ok(self) -> bool:
        """Every table was compared and agrees. False when there was no table at all."""
        return bool(self.tables) and all(table.ok for table in self.tables)

    @property
    def record_count(self) -> int:
        """Records read from all topics."""
        return sum(table.record_count for table in self.tables)

    @property
    def faults(self) -> LogFaults:
        """Those of all topics."""
        faults = LogFaults()
        for table in self.tables:
            faults.add(table.faults)
        return faults
