"""Sets up the comparison of topics with the source, and repairs topics through signals."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cdc.clock import Clock
from cdc.config.settings import Config
from cdc.errors import CutNotReached, SourceRefused, UsageError
from cdc.inspect.snapshot_state import SnapshotView, ask, await_answer
from cdc.lsn import Lsn
from cdc.model.topic_names import data_topic
from cdc.patterns import matches
from cdc.replication.connect import Connection, connect
from cdc.replication.table_shape import SourceTable
from cdc.verify.capture_wait import WAIT_S, Notify, PatientReader, noticed, silent
from cdc.verify.findings import TableFindings
from cdc.verify.key_states import Sample
from cdc.verify.source_check import SourceCheck, SourceComparison
from cdc.verify.source_rows import KeyedRows
from cdc.verify.source_tables import SourceRows, refuse_compatibility
from cdc.verify.store_check import ProgressCallback
from cdc.verify.topic_formats import TopicFormats
from cdc.verify.verified_cut import CutFollower, CutIndex
from snapshot.signal_parsing import KEYS_MAX, Signal, SignalError, in_order

_LOOK_S: Final = 0.2
_SIGNAL_BYTES: Final = 900_000  # of keys, below snapshot.signal_parsing.KEYS_BYTES_MAX


def verify_source(
    config: Config,
    patterns: Sequence[str],
    *,
    clock: Clock,
    sample: Sample,
    repair: bool,
    on_progress: ProgressCallback = lambda _, __, ___: None,
    wait_s: float = WAIT_S,
    say: Notify = silent,
) -> list[TableFindings]:
    """Compare each captured table with its topic, while both are written.

    Waits up to `wait_s` for Kafka, and up to `wait_s` for capture to catch up; `say` receives a line about such a wait.

    Raises:
        CutNotReached: the log stays behind the source.
        UsageError: topics in Avro cannot be repaired by key, and topics with `encode.compatibility` not be compared.
        TailraceError: errors of Kafka, PostgreSQL and the schema registry.
    """
    refuse_compatibility(config)
    _refuse_repair(config, repair=repair)
    with (
        PatientReader(config.kafka, wait_s=wait_s, say=say) as reader,
        contextlib.closing(connect(config.source.dsn, application_name="cdc verify")) as connection,
        contextlib.ExitStack() as held,
    ):
        connection.autocommit = True
        source = SourceRows(config, connection)
        forms = held.enter_context(contextlib.closing(TopicFormats(config, reader)))
        follower = CutFollower(reader, config.name, clock, say)

        def cut(lsn: Lsn) -> CutIndex:
            return follower.until(lsn, timeout_s=wait_s)

        columns = {table.table: [one.name for one in table.columns if one.name in table.key] for table in source.tables}

        def request_repair(table: str, keys: Sequence[bytes]) -> Sequence[bytes]:
            named = [key for key in keys if _can_be_asked_for(key, columns[table])]
            with noticed(say, f"waiting for capture to read keys of {table} again; gives up after {wait_s:g} s"):
                read_again(config, table, named, clock, wait_s)
            return named

        sides = SourceComparison(
            reader=reader, cut=cut, clock=clock, sample=sample, repair=request_repair if repair else None, form=forms.of
        )
        tables = [table for table in source.tables if not patterns or matches(table.table, patterns)]
        return [_check(config, source, connection, table, sides, on_progress) for table in tables]


def _check(
    config: Config,
    source: SourceRows,
    connection: Connection,
    table: SourceTable,
    sides: SourceComparison,
    on_progress: ProgressCallback,
) -> TableFindings:
    topic = data_topic(config.name, table.namespace, table.name)
    shape = source.shape(table)
    problem = table.problem or ("" if shape is not None else "it is not in the publication")
    problem = problem or ("" if table.key else "it has no key, so rows cannot be distinguished")
    if problem or shape is None:
        return TableFindings(table=table.table, topic=topic, problem=problem)
    rows = KeyedRows(connection, table, shape)
    with contextlib.closing(
        SourceCheck(sides, table.table, topic, rows, lambda what, count: on_progress(table.table, what, count))
    ) as check:
        return check.run()


def _can_be_asked_for(key: bytes, columns: Sequence[str]) -> bool:
    """Return whether a signal can name the key: keys that another program wrote in a different form are skipped."""
    try:
        return in_order(key, columns) == key
    except (SignalError, msgspec.MsgspecError, UnicodeDecodeError):
        return False


def _refuse_repair(config: Config, *, repair: bool) -> None:
    if repair and config.encode.format == "avro":
        raise UsageError(
            'cannot repair topics with encode.format = "avro": capture cannot look up keys in Avro',
            hint="verify without --repair, then read the differing rows again with a condition",
            command="cdc snapshot start TABLE --where CONDITION",
        )


def read_again(config: Config, table: str, keys: Sequence[bytes], clock: Clock, wait_s: float = WAIT_S) -> None:
    """Make capture read these keys of a table again, and delete from its topic keys that the table does not have.

    Raises CutNotReached when capture does not answer within `wait_s`, SourceRefused.
    """
    for some in _lists(keys):
        with SnapshotView(config) as view:
            _await_rest(view, table, clock, wait_s)
            offset = ask(config, Signal(uuid.uuid4().hex, "start", (table,), keys=tuple(some)))
            answer = await_answer(view, offset, wait_s, clock)
        if answer is None:
            raise CutNotReached(
                f"capture did not start reading keys of {table} again within {wait_s:g} s",
                hint="it does so as soon as it runs; then verify again",
                command="cdc status",
            )
        if answer.refused:
            raise SourceRefused(
                f"capture refuses to read keys of {table} again: {'; '.join(answer.refused.values())}", table=table
            )


def _await_rest(view: SnapshotView, table: str, clock: Clock, wait_s: float) -> None:
    """Wait until earlier requests for keys are done; after `wait_s`, capture itself refuses the next one."""
    end_s = clock.monotonic_s() + wait_s
    view.look()
    while (record := view.records.get(table)) is not None and record.state != "complete":
        if clock.monotonic_s() > end_s:
            return
        clock.wait(threading.Event(), _LOOK_S)
        view.look()


def _lists(keys: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Divide keys into lists that fit into one signal."""
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
