"""What applications use: wait until a sink holds what a transaction has committed, and read a database as one sequence.

Read your own writes:

    from cdc.client import Waiter, written_lsn

    waiter = Waiter("cdc.toml")                 # once in a process; threads may share it
    ...
    connection.commit()
    waiter.wait("cache", written_lsn(connection), timeout_s=2)

The waiter reads Kafka and the sink's store directly; no Tailrace process needs to run. Of cdc.toml it needs `name`,
`[kafka]` and the sink. For applications in other languages the daemon answers the same question over HTTP.

All tables in the order of the source:

    from cdc.client import ordered

    with ordered("cdc.toml", start=stored_token or "beginning", until="now") as events:
        for event in events:
            apply(event.table, event.op, event.key, event.after)
            store(event.token)                  # in the same transaction as the effect
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from cdc.clock import Clock, SystemClock
from cdc.config.load import load
from cdc.config.settings import Config
from cdc.errors import SinkBehind
from cdc.inspect.ordered_read import WAIT_S, OrderedRead
from cdc.run.app import sink_probe
from cdc.web.wait_endpoint import GRACE_S, Check, shared
from sinks.operate.lsn_wait import SinkProbe, WaitRequest, is_at, parse_wait_key, parse_wait_lsn

TIMEOUT_S: Final = 10.0


class Connection(Protocol):
    """The part of a DB-API connection to PostgreSQL that is used; psycopg's connections have it."""

    def cursor(self) -> Any:
        """Return a cursor."""

    def commit(self) -> None:
        """End the transaction."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a sink holds: every transaction that committed before `lsn`, as of the cut with this number.

    `blocked` are (table, key) pairs whose newest record was refused, so that the sink has an older state of the row.
    """

    lsn: str
    cut: int
    waited_s: float
    blocked: Sequence[tuple[str, str]] = ()


class Waiter:
    """Waits for the sinks of a configuration. Thread-safe; all waiting threads share the polls of a sink."""

    def __init__(
        self, config: Config | Path | str = "cdc.toml", *, pipeline: str = "", clock: Clock | None = None
    ) -> None:
        """Connections are made when a sink is first waited for. Raises ConfigError.

        `pipeline` chooses one of a file with `[pipelines.*]`.
        """
        self._config = config if isinstance(config, Config) else load(Path(config), os.environ, pipeline)
        self._clock = clock or SystemClock()
        self._probes: dict[str, SinkProbe] = {}
        self._lock = threading.Lock()
        self._closing = ExitStack()
        self._stop = threading.Event()
        self._hangs = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def wait(
        self, sink: str, lsn: str, *, key: str | None = None, table: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> Held:
        """Return when readers of `sink` see every transaction that committed before `lsn` (``0/1B60CC8``).

        With `key`, a JSON object in the form of the topic's keys, it also waits for the newest row of that key. Other
        tables may have the same key; `table` (``schema.table``) selects one.

        Raises SinkBehind when the time is up, KeyBlocked if a record of the key was refused, UsageError for an invalid
        sink, LSN or key, BrokerUnreachable and SinkUnreachable if the position cannot be read now.
        """
        wanted, probe = (
            WaitRequest(parse_wait_lsn(lsn), None if key is None else parse_wait_key(key), table),
            self._probe(sink),
        )
        began_s = self._clock.monotonic_s()
        check = Check(probe, wanted, timeout_s, self._clock, self._stop)
        threading.Thread(target=check.run, args=(lambda: None,), name="wait", daemon=True).start()
        if not check.ended.wait(timeout_s + GRACE_S):
            self._hangs = True
            raise SinkBehind(
                f"the check of sink {sink!r} did not finish within {timeout_s:g} s: Kafka or the store does not answer",
                hint="check that Kafka and the store are reachable from this machine",
                command="cdc status",
                lsn=wanted.lsn,
            )
        if check.error is not None:
            raise check.error
        reach = check.reach
        waited_s = self._clock.monotonic_s() - began_s
        if reach is None or not is_at(reach, wanted.lsn):
            if reach is not None and wanted.lsn <= reach.end_lsn:
                tables = reach.unread.tables
                more = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
                raise SinkBehind(
                    f"sink {sink!r} is at {reach.end_lsn}, but snapshots are still reading {tables[0]}{more}: "
                    f"changes before {reach.unread.lsn} may be missing there",
                    hint="wait until the snapshots are complete",
                    command="cdc snapshot status",
                    lsn=wanted.lsn,
                )
            at = reach.end_lsn if reach else "none of the cuts that were searched"
            raise SinkBehind(
                f"sink {sink!r} is at {at} and not at {wanted.lsn} after {waited_s:.0f} s",
                hint="check that capture and the sink are running",
                command="cdc status",
                lsn=wanted.lsn,
            )
        return Held(str(reach.end_lsn), reach.cut, waited_s, check.blocked)

    def close(self) -> None:
        """Release waiting threads and close the connections. May be called twice."""
        self._stop.set()
        if self._hangs:  # closing waits for the check
            threading.Thread(target=self._close, name="wait-close", daemon=True).start()
        else:
            self._close()

    def _close(self) -> None:
        with self._lock:
            self._closing.close()

    def _probe(self, sink: str) -> SinkProbe:
        with self._lock:
            if sink not in self._probes:
                self._probes[sink] = shared(sink_probe(self._config, sink, self._closing), self._clock)
            return self._probes[sink]


def ordered(
    config: Config | Path | str = "cdc.toml",
    *,
    start: str = "beginning",
    until: str = "now",
    tables: Sequence[str] = (),
    pipeline: str = "",
    wait_s: float = WAIT_S,
) -> OrderedRead:
    """Return all events of all tables, in the total order of the source, up to a cut. Close it, or use it in `with`.

    The order is that of commits, and of changes within a transaction. Memory is bounded, also for a transaction of
    millions of rows. The read gives what the log has: compaction removes older events of a key, one day after they were
    written or later, and leaves the order of the others as it is.

    Args:
        config: the configuration, or its file; `name` and `[kafka]` are used.
        start: ``beginning``, the `token` of the last event that was processed, or an LSN: everything committed there or
            later.
        until: ``now``, the newest cut, or an LSN: everything committed before it, as `written_lsn` returns it.
        tables: names or shell patterns; all tables by default. A token belongs to one choice.
        pipeline: one of a file with `[pipelines.*]`.
        wait_s: how long to wait for the log to reach `until`, and for Kafka.

    Raises:
        ConfigError: the configuration is invalid.
        UsageError: an invalid name, start, end or token; a token of another log; a table in Avro.
        CutNotReached: the log does not reach `until` in time.
        TopicMismatch: a topic was deleted or recreated, or lost records that the read needs; also while reading.
        BrokerUnreachable: Kafka does not answer; also while reading.
    """
    chosen = config if isinstance(config, Config) else load(Path(config), os.environ, pipeline)
    return OrderedRead(chosen, start=start, until=until, tables=tables, wait_s=wait_s)


def written_lsn(connection: Connection) -> str:
    """Return the LSN to wait for, right after a COMMIT: everything committed until now lies before it.

    It reads the LSN in a transaction of its own, which it ends.
    """
    cursor = connection.cursor()
    try:
        cursor.execute("select pg_current_wal_insert_lsn()::text")
        (lsn,) = cursor.fetchone()
    finally:
        cursor.close()
    connection.commit()
    return str(lsn)
