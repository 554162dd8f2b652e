"""The result of an audit: findings, what could not be audited, and their texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cdc.audit.expected_counts import CutPosition, Partition
from cdc.audit.recomputed_counts import MEANING, DamageKind
from cdc.errors import LogDamaged
from cdc.lsn import Lsn

FINDINGS_MAX: Final = 1000
"""Findings kept of one audit; more are only counted. An emptied topic has a finding in every cut."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A range of a partition that does not match the cut index.

    Attributes:
        begin: first offset of the range.
        end: the offset after its last one.
        expected: number of records in the cut index.
        found: number of records that a `read_committed` reader sees.
        cut: the cut that was compared.
        offsets: the first additional records, where they can be determined.
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
        """The finding in one line."""
        topic, index = self.partition
        where = f"{topic}-{index} between offsets {self.begin} and {self.end}"
        odd = f"; at offset {', '.join(map(str, self.offsets))}" if self.offsets else ""
        counts = f"{self.found} records, expected {self.expected}"
        if self.kind is DamageKind.ALTERED:
            counts = f"{self.found} records, their hash differs from the cut index"
        return f"{where}: {MEANING[self.kind]} ({counts}{odd}), cut {self.cut.end_lsn}"

    @property
    def document(self) -> dict[str, object]:
        """The JSON document. Its keys are part of the interface."""
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
    """Ranges of a partition that can no longer be recomputed; all end at or before offset `before`."""

    before: int
    ranges: int
    reason: str


@dataclass(slots=True)
class AuditReport:
    """What was compared so far.

    Attributes:
        began: everything after this cut was compared; None: everything from the first record of the log on.
        reached: the last compared cut.
        cuts: number of compared cuts.
        partitions: partitions with records in these cuts.
        records: records read, tombstones included.
        bytes: of their keys and values.
        hidden: partitions with ranges that cannot be recomputed.
        finding_count: number of all findings; `findings` has the first FINDINGS_MAX.
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
        """Add a finding."""
        self.finding_count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def hide(self, partition: Partition, before: int, reason: str) -> None:
        """Add a range that cannot be recomputed."""
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
        """The JSON document. Its keys are part of the interface."""
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
    """Return the error that stops capture for a finding, the first of `count`."""
    more = f", and {count - 1} more" if count > 1 else ""
    topic, index = finding.partition
    return LogDamaged(
        f"the log is not what capture wrote: {finding.kind.value}, {finding.text}{more}",
        hint="another program wrote to the topic, records were deleted, or the broker lost acknowledged records; find "
        "the cause, then read the tables again into the same topics",
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
