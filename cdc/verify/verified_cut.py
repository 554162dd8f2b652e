"""Waits until the log reaches the cut to verify, and returns the counts of every partition there.

Reads ``<name>.__cuts``. Knows nothing about PostgreSQL.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cdc.clock import Clock
from cdc.cutindex.index_reader import PartitionCount, bounds, counts_of, cuts_between
from cdc.errors import CutNotReached
from cdc.kafka.log_reader import LogReader
from cdc.lsn import Lsn
from cdc.model.progress_record import Cut
from cdc.model.topic_names import cuts_topic
from cdc.progress.restore import Partition
from cdc.verify.capture_wait import NOTICE_S, Notify, silent

_POLL_S: Final = 0.1


@dataclass(slots=True)
class CutIndex:
    """The cut index up to its last cut between two source transactions.

    Attributes:
        accounts: every partition that capture ever opened; empty before the first full map.
        since_lsn: where the counts began; 0: with the log.
        began_ms: when its first cut was written; None when older records may have been removed.
        count: cuts read.
    """

    epoch: int = 0
    end_lsn: Lsn = Lsn(0)  # noqa: RUF009 - Lsn is an immutable int
    accounts: dict[Partition, PartitionCount] = field(default_factory=dict)
    since_lsn: Lsn = Lsn(0)  # noqa: RUF009
    began_ms: int | None = None
    count: int = 0
    _mapped: bool = False
    _behind: dict[Partition, PartitionCount] = field(default_factory=dict)

    def take(self, cut: Cut) -> None:
        """Add the next cut. Changes become effective when their source transaction is complete."""
        self._mapped = self._mapped or cut.full
        self.count += 1
        if not self._mapped:
            return
        if cut.full:
            self.since_lsn = Lsn(cut.since_lsn)
        self._behind |= counts_of(cut)
        if cut.next_ordinal == 0:
            self.accounts.update(self._behind)
            self._behind.clear()
            self.epoch, self.end_lsn = cut.epoch, Lsn(cut.end_lsn)

    def topic(self, topic: str) -> Mapping[int, PartitionCount]:
        """Return the counts of a topic by partition; empty when capture never opened it."""
        return {index: account for (name, index), account in self.accounts.items() if name == topic}


class CutFollower:
    """Reads the cut index incrementally. Used by one thread."""

    def __init__(self, reader: LogReader, name: str, clock: Clock, say: Notify = silent) -> None:
        self._reader = reader
        self._say = say
        self._topic = cuts_topic(name)
        self._clock = clock
        self._at = 0
        self.index = CutIndex()

    def until(self, lsn: Lsn, *, timeout_s: float) -> CutIndex:
        """Read until the index reaches `lsn` and to its end then. Raises CutNotReached after `timeout_s`."""
        lsn = lsn.before_header()
        began_s, reported = self._clock.monotonic_s(), False
        while True:
            self._poll()
            if self.index.accounts and self.index.end_lsn >= lsn:
                return self.index
            waited_s = self._clock.monotonic_s() - began_s
            if waited_s > timeout_s:
                raise CutNotReached(
                    f"capture did not catch up within {timeout_s:g} s: the topics are at {self.index.end_lsn}, and the "
                    f"tables at {lsn}",
                    hint="check that capture is running and keeps up",
                    command="cdc status",
                    lsn=lsn,
                )
            if waited_s > NOTICE_S and not reported:
                reported = True
                self._say(
                    f"waiting for capture: the topics are at {self.index.end_lsn}, and the tables at {lsn}; gives up "
                    f"after {timeout_s:g} s"
                )
            self._clock.wait(threading.Event(), _POLL_S)

    def _poll(self) -> None:
        low, high = bounds(self._reader, self._topic)
        for one in cuts_between(self._reader, self._topic, max(self._at, low), high):
            if not low and not self.index.count:
                self.index.began_ms = one.written_ms
            self.index.take(one.cut)
        self._at = max(self._at, high)


def wait_for_cut(reader: LogReader, name: str, lsn: Lsn, clock: Clock, *, timeout_s: float) -> CutIndex:
    """Read the index until it reaches `lsn` and to its end then. Raises CutNotReached after `timeout_s`."""
    return CutFollower(reader, name, clock).until(lsn, timeout_s=timeout_s)
