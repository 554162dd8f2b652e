"""No record of the signals topic breaks its reader: 20,000 random and structured ones, with the real merger."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.errors import SourceUnreachable
from cdc.lsn import Lsn
from cdc.model.log_record import LogRecord
from cdc.model.relation import ReplicaIdentity
from cdc.model.signal_record import SignalsRecord
from cdc.model.snapshot_record import SnapshotRecord
from cdc.progress.record_format import encode
from cdc.replication.table_shape import SourceColumn, SourceTable
from cdc.startup.signal_actions import Catalog
from cdc.startup.signal_reader import SignalHandler
from snapshot.condition import Condition, as_sql
from snapshot.key_filter import key_condition
from snapshot.merger import Merger
from snapshot.signal_parsing import SignalError
from snapshot.snapshot_requests import SnapshotRequests
from snapshot.table_patterns import PatternError, compiled, selected
from snapshot.table_state import RowSelection, TableState
from tests.fixtures.capture.signal_fuzz import REGULAR, SHELL, TABLES, fuzzed

_COUNT: Final = 20_000
_SEED: Final = int(os.environ.get("TAILRACE_SIGNAL_SEED", "19"))


class Desk:
    """The real merger without threads."""

    def __init__(self) -> None:
        self.boundary = Lsn(100)
        self.merger = Merger()
        records = {
            name: SnapshotRecord(table=name, relation=number, state="complete")
            for number, name in enumerate(TABLES[:3])
        }
        self.merger.resume(records, ())

    @contextmanager
    def merging(self) -> Iterator[Merger]:
        yield self.merger


class Tables:
    """A catalog that accepts every condition that can be written as SQL."""

    def tables(self) -> Mapping[str, SourceTable]:
        return {name: _table(number, name) for number, name in enumerate(TABLES)}

    def problem(self, table: SourceTable, condition: Condition | None) -> str:
        if condition is not None:
            as_sql(condition).as_bytes(None)
        return ""


def _table(oid: int, name: str) -> SourceTable:
    namespace, _, plain = name.partition(".")
    columns = tuple(
        SourceColumn(column, 23, -1, "integer", not_null=True, generated=False, toastable=False)
        for column in ("id", "a", "status")
    )
    key = ("id", "a") if oid == 1 else ("id",)
    return SourceTable(
        oid=oid, namespace=namespace, name=plain, kind="r", persistence="p", replica_identity=ReplicaIdentity.DEFAULT,
        key=key, key_problem="", keyless=False, columns=columns,
    )  # fmt: skip


@dataclass
class Seen:
    """What a handler reported."""

    refused: Counter[bool] = field(default_factory=Counter)

    def signals_listening(self, alive: object) -> None: ...

    def signals_failed(self, cause: object) -> None: ...

    def signal_handled(self, *, refused: bool, next_offset: int) -> None:
        self.refused[refused] += 1


@contextmanager
def _catalog() -> Iterator[Catalog]:
    yield Tables()


def _handler(desk: Desk, seen: Seen) -> SignalHandler:
    return SignalHandler("shop", desk, _catalog, SignalsRecord(topic_id="t", next_offset=0), seen)


@pytest.mark.timeout(120)
def test_every_signal_is_answered_and_leaves_a_state_that_capture_can_restart_from() -> None:
    desk, seen, kinds = Desk(), Seen(), Counter[str]()
    handler = _handler(desk, seen)
    relation = _table(0, "public.t").relation(None)

    for offset, (key, value) in enumerate(fuzzed(_SEED, _COUNT)):
        handler.handle(LogRecord("shop.__signals", 0, offset, 0, key, value, None))

        assert handler.record.next_offset == offset + 1
        if handler.record.answers and (answer := handler.record.answers[-1]).offset == offset:
            assert answer.done or answer.refused or answer.action == "log"
            assert not any("it failed" in why for why in answer.refused.values()), (value, answer)
            kinds[answer.action] += bool(answer.done)
        # As after a commit and a crash: what is recorded must be readable, and its keys must be searchable.
        encode(handler.record)
        for name, record in desk.merger.notes().records.items():
            encode(record)
            restored = TableState.resumed(record)
            key_condition(relation, sorted(restored.repair)[:50]).as_bytes(None)
            if restored.live and not offset % 3:
                desk.merger.requests.stop(name)  # so that the next signal finds it complete
        desk.merger.noted(desk.merger.notes(), lambda _: {})

    assert sum(seen.refused.values()) > _COUNT / 2
    assert seen.refused[False] > _COUNT / 50
    assert min(kinds["start"], kinds["pause"], kinds["stop"]) > 10, kinds


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pattern", [*REGULAR, *SHELL])
def test_pattern_is_matched_in_linear_time_or_refused(pattern: str) -> None:
    names = {f"public.{'a' * 120}{number}" for number in range(200)} | {"public.t"}

    for regular in (True, False):
        try:
            found = selected(pattern, names, regular=regular)
        except PatternError:
            continue
        assert set(found) <= names


@settings(max_examples=3000)
@given(st.text(alphabet="ab-!]*?[\\^.é", max_size=14), st.text(alphabet="ab-!]*?[\\^.é\n", max_size=8))
def test_shell_pattern_selects_what_fnmatch_does(pattern: str, name: str) -> None:
    found = selected(pattern, {name}, regular=False)

    assert found == ([name] if name == pattern or fnmatchcase(name, pattern) else []), (pattern, name)


@pytest.mark.parametrize("pattern", ["a{1001}", "a{99999999999}", "a{5,4294967297}", "a{,99999}", "x{0000001001}"])
def test_repeat_above_a_thousand_is_refused_and_not_read_as_text(pattern: str) -> None:
    with pytest.raises(PatternError, match="more than 1000 times"):
        compiled(pattern)


def test_regular_expression_that_re2_does_not_support_is_refused_with_the_reason() -> None:
    with pytest.raises(PatternError, match="lookaround"):
        compiled("(?=x)x")


class Failing(SnapshotRequests):
    """Fails at every order."""

    def order(self, name: str, relation: int, at: Lsn, rows: RowSelection) -> None:
        raise KeyError(name)


class Broken(Desk):
    """A merger whose orders fail."""

    def __init__(self) -> None:
        super().__init__()
        self.merger.requests.__class__ = Failing


def _start(offset: int) -> LogRecord:
    return LogRecord("shop.__signals", 0, offset, 0, b"shop", b'{"command":"start","tables":["public.t"]}', None)


def test_exception_while_a_signal_is_carried_out_is_its_refusal_and_the_offset_moves_on() -> None:
    handler = _handler(Broken(), Seen())

    handler.handle(_start(7))

    assert handler.record.next_offset == 8
    assert "it failed with KeyError" in handler.record.answers[-1].refused[""]


class Breaking(Tables):
    def problem(self, table: SourceTable, condition: Condition | None) -> str:
        raise SourceUnreachable("the connection broke")


def test_signal_over_which_the_connection_breaks_each_time_is_refused_in_the_end() -> None:
    @contextmanager
    def catalog() -> Iterator[Catalog]:
        yield Breaking()

    handler = SignalHandler("shop", Desk(), catalog, SignalsRecord(topic_id="t", next_offset=0), Seen())
    for _ in range(2):
        with pytest.raises(SourceUnreachable):
            handler.handle(_start(0))

    handler.handle(_start(0))

    assert handler.record.next_offset == 1
    assert "the connection broke" in handler.record.answers[-1].refused[""]


def test_signal_waits_as_long_as_postgresql_is_away() -> None:
    def away() -> AbstractContextManager[Catalog]:
        raise SourceUnreachable("no answer")

    handler = SignalHandler("shop", Desk(), away, SignalsRecord(topic_id="t", next_offset=0), Seen())
    for _ in range(20):
        with pytest.raises(SourceUnreachable):
            handler.handle(_start(0))

    assert handler.record.next_offset == 0


def test_payload_and_patterns_are_bounded() -> None:
    handler = _handler(Desk(), Seen())
    values = [
        b'{"command":"stop","id":"' + b"x" * (2 << 20) + b'"}',
        b'{"command":"stop","tables":["' + b"*" * 501 + b'"]}',
        b'{"command":"stop","tables":[' + b",".join([b'"*"'] * 1001) + b"]}",
    ]

    for offset, value in enumerate(values):
        handler.handle(LogRecord("shop.__signals", 0, offset, 0, None, value, None))

    why = [answer.refused[""] for answer in handler.record.answers]
    assert "bytes; at most" in why[0]
    assert "length <= 500" in why[1]
    assert "length <= 1000" in why[2]


def test_patterns_over_very_many_tables_are_refused() -> None:
    from snapshot.signal_parsing import Signal

    signal = Signal("", "stop", tuple(f"x{number}*" for number in range(1000)))

    with pytest.raises(SignalError, match="too many"):
        signal.check({f"public.t{number}" for number in range(201)})
