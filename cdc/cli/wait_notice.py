"""Texts that say what a command waits for, and the time limit of `cdc tail` for a broker that does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from cdc.cli import output
from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import BrokerUnreachable

WAIT_DEFAULT_S: Final = 30.0
_CHECK_S: Final = 5.0  # without a record, then the broker is checked
_ANSWER_S: Final = 3.0
T = TypeVar("T")


def kafka(config: Config, wait_s: float | None = None) -> str:
    """Return the text for waiting for the brokers of a configuration."""
    return f"waiting for Kafka at {config.kafka.bootstrap}{_at_most(wait_s)}"


def source(config: Config) -> str:
    """Return the text for waiting for the PostgreSQL server of a configuration."""
    from psycopg import ProgrammingError, conninfo

    try:
        known = conninfo.conninfo_to_dict(config.source.dsn.reveal())
    except ProgrammingError:
        known = {}
    return f"waiting for PostgreSQL at {known.get('host') or 'the local socket'}:{known.get('port') or 5432}"


def patient(
    batches: Iterator[list[T]], check: Callable[[float], object], what: str, wait_s: float, clock: Clock
) -> Iterator[list[T]]:
    """Yield the batches of an endless read, and stop it when the broker is lost; the reader alone would wait for ever.

    While nothing arrives, `check(timeout_s)` asks the broker every few seconds. A lost broker is reported once on
    stderr, and so is its return.

    Raises:
        BrokerUnreachable: it has not answered for `wait_s` seconds.
    """
    heard_s = checked_s = clock.monotonic_s()
    lost = False
    for batch in batches:
        now_s = clock.monotonic_s()
        answers = bool(batch)
        if not batch and now_s - checked_s >= _CHECK_S:
            try:
                check(min(_ANSWER_S, wait_s))
                answers = True
            except BrokerUnreachable:
                now_s = clock.monotonic_s()
                if now_s - heard_s >= wait_s:
                    raise
                if not lost:
                    output.note(what)
                lost = True
            checked_s = now_s
        if answers:
            if lost:
                output.note("Kafka answers again")
            heard_s, checked_s, lost = now_s, now_s, False
        yield batch


def _at_most(wait_s: float | None) -> str:
    return "" if wait_s is None else f", for at most {wait_s:g} s"
