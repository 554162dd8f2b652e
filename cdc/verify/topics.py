"""Puts a comparison of the topics with the source together."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import CutNotReached, SourceRefused
from cdc.kafka.consumer import LogReader
from cdc.lsn import Lsn
from cdc.model.names import data_topic
from cdc.patterns import matches
from cdc.replication.connect import Connection, connect
from cdc.replication.table import SourceTable
from cdc.snapshots import SnapshotView, ask, await_answer
from cdc.verify.cut import CutFollower, CutIndex
from cdc.verify.findings import TableFindings
from cdc.verify.keyedrows import KeyedRows
from cdc.verify.latest import Sample
from cdc.verify.source import SourceRows
from cdc.verify.sourcecheck import SourceCheck, SourceSides
from cdc.verify.stores import Told, refuse_other_formats
from snapshot.signals import KEYS_MAX, Signal, SignalError, in_order

_WAIT_S: Final = 60.0  # for the log to have what a snapshot of the source sees
_ANSWER_S: Final = 30.0
_LOOK_S: Final = 0.2
_SIGNAL_BYTES: Final = 900_000  # of keys, below snapshot.signals.KEYS_BYTES_MAX


def verify_source(
    config: Config,
    patterns: Sequence[str],
    *,
    clock: Clock,
    sample: Sample,
    repair: bool,
    told: Told = lambda _, __, ___: None,
) -> list[TableFindings]:
    """Compare each captured table with its topic, while both are written.

    Raises CutNotReached when the log stays behind the source, and what Kafka and PostgreSQL say.
    """
    refuse_other_formats(config)
    with (
        LogReader(config.kafka, client_id="tailrace-verify") as reader,
        contextlib.closing(connect(config.source.dsn, application_name="cdc verify")) as connection,
    ):
        connection.autocommit = True
        source = SourceRows(config, connection)
        follower = CutFollower(reader, config.name, clock)

        def cut(lsn: Lsn) -> CutIndex:
            return follower.until(lsn, timeout_s=_WAIT_S)

        columns = {table.table: [one.name for one in table.columns if one.name in table.key] for table in source.tables}

        def mend(table: str, keys: Sequence[bytes]) -> Sequence[bytes]:
            named = [key for key in keys if _can_be_asked_for(key, columns[table])]
            read_again(config, table, named, clock)
            return named

        sides = SourceSides(reader=reader, cut=cut, clock=clock, sample=sample, repair=mend if repair else None)
        tables = [table for table in source.tables if not patterns or matches(table.table, patterns)]
        return [_check(config, source, connection, table, sides, told) for table in tables]


def _check(
    config: Config, source: SourceRows, connection: Connection, table: SourceTable, sides: SourceSides, told: Told
) -> TableFindings:
    topic = data_topic(config.name, table.namespace, table.name)
    shape = source.shape(table)
    problem = table.problem or ("" if shape is not None else "it is not in the publication")
    problem = problem or ("" if table.key else "it has no key, so rows cannot be told apart")
    if problem or shape is None:
        return TableFindings(table=table.table, topic=topic, problem=problem)
    rows = KeyedRows(connection, table, shape)
    with contextlib.closing(
        SourceCheck(sides, table.table, topic, rows, lambda what, count: told(table.table, what, count))
    ) as check:
        return check.run()


def _can_be_asked_for(key: bytes, columns: Sequence[str]) -> bool:
    """Whether a signal can name the key: one that somebody else wrote in a form of his own is left as it is."""
    try:
        return in_order(key, columns) == key
    except (SignalError, msgspec.MsgspecError, UnicodeDecodeError):
        return False


def read_again(config: Config, table: str, keys: Sequence[bytes], clock: Clock) -> None:
    """Have capture read these keys of a table again, and delete from its topic those that it does not have.

    Raises CutNotReached when nobody answers, SourceRefused.
    """
    for some in _lists(keys):
        with SnapshotView(config) as view:
            _await_rest(view, table, clock)
            offset = ask(config, Signal(uuid.uuid4().hex, "start", (table,), keys=tuple(some)))
            answer = await_answer(view, offset, _ANSWER_S, clock)
        if answer is None:
            raise CutNotReached(
                f"capture did not act within {_ANSWER_S:.0f} s on reading keys of {table} again",
                hint="it acts on it as soon as it runs; verify again then",
                command="cdc status",
            )
        if answer.refused:
            raise SourceRefused(
                f"capture will not read keys of {table} again: {'; '.join(answer.refused.values())}", table=table
            )


def _await_rest(view: SnapshotView, table: str, clock: Clock) -> None:
    """Keys that were asked for before are read first; what takes longer is said by capture's refusal."""
    end_s = clock.monotonic_s() + _WAIT_S
    view.look()
    while (record := view.records.get(table)) is not None and record.state != "complete":
        if clock.monotonic_s() > end_s:
            return
        clock.wait(threading.Event(), _LOOK_S)
        view.look()


def _lists(keys: Sequence[bytes]) -> Iterator[list[bytes]]:
    """As many keys as one signal takes."""
    some: list[bytes] = []
    size = 0
    for key in keys:
        if some and (len(some) >= KEYS_MAX or size + len(key) > _SIGNAL_BYTES):
            yield some
            some, size = [], 0
        some.append(key)
        size += len(key)
    if some:
        yield some
