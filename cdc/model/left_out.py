"""A selected table that is not captured, with the reason; `cdc.replication.eligibility` decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from cdc.errors import TopicMismatch

Reason: TypeAlias = Literal[
    "no_key", "key_changed", "not_published", "not_readable", "no_topic", "partitions_apart", "unlogged", "foreign"
]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A selected table that is not captured.

    Attributes:
        table: ``schema.table``.
        oid: pg_class.oid.
        reason: a word for metrics and programs.
        problem: the reason as a clause that follows the name of the table.
        statement: SQL that fixes it; a comment where no statement can.
        by: the person or role that can run it.
    """

    table: str
    oid: int
    reason: Reason
    problem: str
    statement: str
    by: str = ""

    def document(self) -> dict[str, str]:
        """Return the JSON document for /status and logs."""
        return {
            "table": self.table,
            "reason": self.reason,
            "problem": self.problem,
            "statement": self.statement,
            "by": self.by,
        }


def no_topic(table: str, oid: int, error: TopicMismatch) -> LeftOut:
    """Return the entry for a table whose topic cannot be written to."""
    return LeftOut(table, oid, "no_topic", error.message, error.command or f"-- {error.hint}", "a Kafka administrator")
