"""The position in the log where a cut of the lake ends. Spans, the open cut and published cuts have one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Partition: TypeAlias = tuple[str, int]
PartitionCount: TypeAlias = tuple[int, int]
"""(next offset, records so far) of a partition; see `cdc.model.progress_record.Cut`."""


@dataclass(frozen=True, slots=True)
class CutPosition:
    """A position where a cut can end; always a boundary of source transactions.

    Attributes:
        epoch: of the source's history; 0 before the first cut.
        end_lsn: the tables of the cut hold exactly the transactions up to here, of `epoch`.
        cuts_offset: the offset to continue from in ``<name>.__cuts``.
        accounts: counts of every partition that the index has named so far, including control topics.
        complete: ``schema.table`` -> complete or snapshotting.
        since_lsn: where the counts began; 0: at the beginning of the log.
        awaited: tables whose rows a repair of the log has not read again completely. No cut can end here until it is
            empty, so a published position never has any.
    """

    epoch: int
    end_lsn: int
    commit_lsn: int
    cuts_offset: int
    accounts: Mapping[Partition, PartitionCount]
    complete: Mapping[str, str]
    since_lsn: int
    awaited: frozenset[str] = frozenset()


START: Final = CutPosition(0, 0, 0, 0, {}, {}, 0)
"""Before the first cut."""


def partition_name(partition: Partition) -> str:
    """Return ``topic-3``."""
    return f"{partition[0]}-{partition[1]}"
