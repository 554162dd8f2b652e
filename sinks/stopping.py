"""Dead letters for a sink that has none: the first record its store will never take stops it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cdc.errors import SinkUnfit
from cdc.progress.restore import LogRecord
from sinks.contract import Outcome, Parked, Place


class StopAtRefusal:
    """See `sinks.contract.DeadLetters`. Nothing is ever parked, so nothing is blocked."""

    def assigned(self, places: Iterable[Place]) -> None:
        """See `DeadLetters`."""

    def blocks(self, place: Place, key: bytes) -> bool:  # noqa: ARG002 - the signature of the contract
        """See `DeadLetters`."""
        return False

    def park(self, place: Place, key: bytes, records: Sequence[LogRecord], outcome: Outcome) -> None:  # noqa: ARG002
        """Raises SinkUnfit, which names the record and not what is in it."""
        topic, partition = place
        raise SinkUnfit(
            f"record {records[0][2]} of {topic}-{partition} is refused by the store: {outcome.error}: {outcome.reason}",
            hint="mend the store or its mapping; nothing behind the record is committed",
            topic=topic,
            partition=partition,
            offset=records[0][2],
        )

    def retries(self) -> Sequence[Parked]:
        """See `DeadLetters`."""
        return ()

    def settled(self, parked: Parked, outcome: Outcome) -> None:
        """See `DeadLetters`."""
