"""Maintains the identity record while capture runs: the log's tables and topics, as tables join and leave.

The next commit writes every change. Used by the capture thread only.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from cdc.kafka.cluster_facts import TopicFacts
from cdc.lsn import Lsn
from cdc.model.progress_record import Identity
from cdc.publish.publisher import KafkaPublisher

_NOT_A_MEMBER: Final = 0


class IdentityRecord:
    """The identity record of one start."""

    def __init__(self, publisher: KafkaPublisher, identity: Identity, since_lsn: Lsn) -> None:
        """`since_lsn` is where the counts of the cut index began."""
        self._publisher = publisher
        self._identity = identity
        self._since_lsn = since_lsn

    @property
    def tables(self) -> frozenset[str]:
        """The captured tables."""
        return frozenset(self._identity.tables)

    def write(self) -> None:
        """Write the record with the next commit."""
        self._publisher.introduce(self._identity, self._since_lsn)

    def topic_opened(self, topic: str, facts: TopicFacts) -> None:
        """Add a topic that was not written to before."""
        self._identity = structs.replace(
            self._identity,
            partitions=self._identity.partitions | {topic: facts.partition_count},
            topic_ids=self._identity.topic_ids | {topic: facts.topic_id},
        )
        self.write()

    def table_joined(self, table: str, oid: int, member: int = _NOT_A_MEMBER) -> None:
        """Add a captured table; `member` is the oid of its row in pg_publication_rel."""
        self._identity = structs.replace(self._identity, tables=self._identity.tables | {table: (oid, member)})
        self.write()

    def table_left(self, table: str) -> None:
        """Remove a table that is no longer captured. If it joins again, it is read from scratch."""
        if table in self._identity.tables:
            rest = {name: known for name, known in self._identity.tables.items() if name != table}
            self._identity = structs.replace(self._identity, tables=rest)
            self.write()
