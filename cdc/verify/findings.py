"""What a comparison of a sink, or of the topics with the source, found: values, and a document. Keys, never rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc.verify.key_verdict import DifferenceKind
from cdc.verify.verify_report import EXAMPLES_MAX


@dataclass(slots=True, kw_only=True)
class TableFindings:
    """One table.

    Attributes:
        table: ``schema.table``.
        topic: of it.
        compared: keys that one side or the other has.
        again: keys that were looked at more than once, because they changed meanwhile or differed.
        undecided: keys that kept changing until time was up: neither right nor wrong, and not clean.
        expired: keys that the store need not have any more: their time is over, or they were evicted.
        blocked: keys that wait behind a dead letter, and so are not what the topic says.
        counts: keys that differ, by kind.
        repaired: of those, how many are right now.
        unrepaired: and how many are not.
        examples: kind (or ``undecided``, ``blocked``) -> some keys.
        offsets: partition -> up to where it was compared.
        problem: why it was not compared; empty when it was.
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
        """Remember a key, unless there are enough of the kind."""
        some = self.examples.setdefault(str(kind), [])
        if len(some) < EXAMPLES_MAX:
            some.append(name)

    def document(self) -> dict[str, Any]:
        """For programs."""
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
