"""Records in Kafka why capture stopped, so that `cdc why` can name it after the process has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import BrokerUnreachable, TailraceError
from cdc.kafka.sender import send
from cdc.model.stop_record import StopRecord, encode, stop_key
from cdc.model.topic_names import progress_topic
from cdc.telemetry import log

WRITE_S: Final = 3.0
"""Short: the process ends afterwards, and its supervisor waits for it."""


@contextmanager
def stops_recorded(config: Config, clock: Clock) -> Iterator[None]:
    """Record an error that needs an operator and ends the block. Best effort: without Kafka the log alone has it."""
    try:
        yield
    except TailraceError as error:
        if error.retry == "operator" and error.state is not None:
            _record(config, clock, error, error.state)
        raise


def _record(config: Config, clock: Clock, error: TailraceError, state: str) -> None:
    record = StopRecord(
        at_ms=int(clock.wall_s() * 1000),
        state=state,
        error=type(error).__name__,
        message=error.message,
        hint=error.hint,
        command=error.command,
    )
    try:
        send(config.kafka, progress_topic(config.name), stop_key(config.name), encode(record), timeout_s=WRITE_S)
    except TailraceError as failure:
        # A pipeline that never ran has no topic, and a broker that refuses capture refuses this record too.
        kind = log.get().debug if not isinstance(failure, BrokerUnreachable) else log.get().info
        kind("stop_not_recorded", **log.error_fields(failure))
