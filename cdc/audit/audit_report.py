"""What an audit has found: values, and the words for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cdc.audit.expected_counts import CutPosition, Partition
from cdc.audit.recomputed_counts import MEANING, DamageKind
from cdc.errors import LogDamaged
from cdc.lsn import Lsn

FINDINGS_MAX: Final = 1000
"""Kept of one audit, and counted beyond: a topic that was emptied has one in every cut."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A range of a partition that is not what the cut index says.

    Attributes:
        begin: the range, from this offset on,
        end: to the one before this.
        expected: records that the index says are there.
        found: records that a `read_committed` reader sees.
        cut: the cut that says so.
        offsets: the first of the records that are too many, where that can be told.
    """

    kind: DamageKind
    partition: Partition
    begin: int
    end: int
    expected: int
    found: int
    cut: CutPosition
    offsets: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """One line."""
        topic, index = self.partition
        where = f"{topic}-{index} between offsets {self.begin} and {self.end}"
        odd = f"; at offset {', '.join(map(str, self.offsets))}" if self.offsets else ""
        counts = f"{self.found} records, the cut index says {self.expected}"
        if self.kind is DamageKind.ALTERED:
            counts = f"{self.found} records with another hash than the cut index says"
        return f"{where}: {MEANING[self.kind]} ({counts}{odd}), cut {self.cut.end_lsn}"

    @property
    def document(self) -> dict[str, object]:
        """For programs. Keys are part of the interface."""
        topic, index = self.partition
        return {
            "kind": self.kind.value,
            "topic": topic,
            "partition": index,
            "from_offset": self.begin,
            "to_offset": self.end,
            "expected": self.expected,
            "found": self.found,
            "offsets": list(self.offsets),
            "epoch": self.cut.epoch,
            "lsn": str(self.cut.end_lsn),
            "cuts_offset": self.cut.offset,
        }


@dataclass(frozen=True, slots=True)
class NotAuditable:
    """What cannot be recomputed any more: ranges of a partition that end at `before` at the latest."""

    before: int
    ranges: int
    reason: str


@dataclass(slots=True)
class AuditReport:
    """What was compared so far.

    Attributes:
        began: the cut behind which everything was compared; None: from the first record of the log on.
        reached: the last cut that was compared.
        cuts: cuts whose records were compared.
        partitions: partitions that had any.
        records: records that were read back, tombstones included.
        bytes: of their keys and values.
        hidden: partitions with ranges that cannot be recomputed.
        finding_count: all of them; `findings` has the first FINDINGS_MAX.
    """

    began: CutPosition | None = None
    reached: CutPosition | None = None
    cuts: int = 0
    partitions: set[Partition] = field(default_factory=set)
    records: int = 0
    bytes: int = 0
    hidden: dict[Partition, NotAuditable] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    finding_count: int = 0

    def found(self, finding: Finding) -> None:
        """Note a finding."""
        self.finding_count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def hide(self, partition: Partition, before: int, reason: str) -> None:
        """Note a range that cannot be recomputed."""
        known = self.hidden.get(partition)
        if known is None:
            self.hidden[partition] = NotAuditable(before, 1, reason)
        else:
            self.hidden[partition] = NotAuditable(max(known.before, before), known.ranges + 1, reason)

    @property
    def hidden_texts(self) -> list[str]:
        """One line for each partition of `hidden`."""
        return [
            f"{topic}-{index} is not auditable before offset {hidden.before}: {hidden.reason} ({hidden.ranges} ranges)"
            for (topic, index), hidden in sorted(self.hidden.items())
        ]

    @property
    def document(self) -> dict[str, object]:
        """For programs. Keys are part of the interface."""
        return {
            "ok": not self.finding_count,
            "from_lsn": None if self.began is None else str(self.began.end_lsn),
            "to_lsn": None if self.reached is None else str(self.reached.end_lsn),
            "epoch": None if self.reached is None else self.reached.epoch,
            "cuts": self.cuts,
            "partitions": len(self.partitions),
            "records": self.records,
            "bytes": self.bytes,
            "finding_count": self.finding_count,
            "findings": [finding.document for finding in self.findings],
            "not_auditable": [
                {
                    "topic": topic,
                    "partition": index,
                    "before_offset": hidden.before,
                    "ranges": hidden.ranges,
                    "reason": hidden.reason,
                }
                for (topic, index), hidden in sorted(self.hidden.items())
            ],
        }


def damaged(finding: Finding, count: int, name: str) -> LogDamaged:
    """The named stop for a finding, the first of `count`."""
    more = f", and {count - 1} more" if count > 1 else ""
    topic, index = finding.partition
    return LogDamaged(
        f"the log is not what capture wrote: {finding.kind.value}, {finding.text}{more}",
        hint="another program writes to the topic, records were deleted, or the broker has lost what it had "
        "acknowledged; find out which, then read the tables anew into the same topics",
        command="cdc slot recreate --resnapshot",
        name=name,
        kind=finding.kind.value,
        topic=topic,
        partition=index,
        from_offset=finding.begin,
        to_offset=finding.end,
        lsn=Lsn(finding.cut.end_lsn),
        epoch=finding.cut.epoch,
        findings=count,
    )
