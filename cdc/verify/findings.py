"""The result of comparing a sink with its topics, or topics with the source. Contains keys, never rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.verify_report import EXAMPLES_MAX


@dataclass(slots=True, kw_only=True)
class TableFindings:
    """The result for one table.

    Attributes:
        table: ``schema.table``.
        topic: topic of the table.
        compared: keys that at least one side has.
        again: keys that were checked more than once, because they changed meanwhile or differed.
        undecided: keys that kept changing until the time was up; they do not count as correct.
        expired: keys that the store may lack: their time is over, or they were evicted.
        blocked: keys that wait behind a dead letter, so the store differs from the topic.
        counts: keys that differ, by kind.
        repaired: differing keys that agree after the repair.
        unrepaired: differing keys that still differ after the repair.
        examples: kind (or ``undecided``, ``blocked``) -> some keys.
        offsets: partition -> offset up to which it was compared.
        problem: why the table was not compared; empty when it was.
    """

    table: str
    topic: str
    compared: int = 0
    again: int = 0
    undecided: int = 0
    expired: int = 0
    blocked: int = 0
    counts: dict[DifferenceKind, int] = field(default_factory=lambda: dict.fromkeys(DifferenceKind, 0))
    repaired: int = 0
    unrepaired: int = 0
    examples: dict[str, list[str]] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)
    problem: str = ""

    @property
    def differing(self) -> int:
        """Keys that differ, or did before they were repaired."""
        return sum(self.counts.values())

    @property
    def ok(self) -> bool:
        """Everything was compared, and everything agrees now."""
        left = self.differing - self.repaired
        return not (self.problem or left or self.undecided or self.blocked or self.unrepaired)

    def add(self, kind: DifferenceKind, name: str) -> None:
        """Count a key that differs."""
        self.counts[kind] += 1
        self.show(kind, name)

    def show(self, kind: str, name: str) -> None:
        """Add a key to the examples of a kind, up to EXAMPLES_MAX."""
        some = self.examples.setdefault(str(kind), [])
        if len(some) < EXAMPLES_MAX:
            some.append(name)

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "ok": self.ok,
            "table": self.table,
            "topic": self.topic,
            "compared": self.compared,
            "looked_again": self.again,
            "undecided": self.undecided,
            "expired": self.expired,
            "blocked": self.blocked,
            **{str(kind): count for kind, count in self.counts.items()},
            "repaired": self.repaired,
            "unrepaired": self.unrepaired,
            "offsets": {str(partition): offset for partition, offset in sorted(self.offsets.items())},
            "examples": self.examples,
            "problem": self.problem or None,
        }
