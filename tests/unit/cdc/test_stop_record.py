"""The record of a stop: what is recorded, what is not, and that a failure to record it changes nothing."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cdc.config.load import parse
from cdc.errors import BrokerUnreachable, InvariantError, RowRefused, SourceUnreachable, TailraceError
from cdc.model.stop_record import StopRecord, decode, encode
from cdc.run import stop_note
from tests.fixtures.servers.manual_clock import ManualClock

CONFIG: Final = parse('name = "shop"\n[source]\ndsn = "dbname=shop"\n[kafka]\nbootstrap = "kafka:9092"\n', {})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes, bytes]]:
    """The records that are written."""
    found: list[tuple[str, bytes, bytes]] = []

    def send(_: Any, topic: str, key: bytes, value: bytes, *, timeout_s: float) -> int:
        assert timeout_s <= 5, "the supervisor waits for the end"
        found.append((topic, key, value))
        return 0

    monkeypatch.setattr(stop_note, "send", send)
    return found


def end_with(error: TailraceError) -> None:
    with pytest.raises(type(error)) as raised, stop_note.stops_recorded(CONFIG, ManualClock()):
        raise error
    assert raised.value is error


def test_stop_that_needs_an_operator_is_recorded(sent: list[tuple[str, bytes, bytes]]) -> None:
    end_with(RowRefused("a row of public.t is too large", hint="raise it"))

    ((topic, key, value),) = sent
    record = decode(value)
    assert (topic, key) == ("shop.__progress", b"shop/stop")
    assert record is not None
    assert (record.state, record.error, record.message, record.hint) == (
        "MISCONFIGURED",
        "RowRefused",
        "a row of public.t is too large",
        "raise it",
    )


@pytest.mark.parametrize("error", [SourceUnreachable("gone"), InvariantError("a value may be quoted here")])
def test_error_that_passes_and_a_bug_are_not_recorded(
    sent: list[tuple[str, bytes, bytes]], error: TailraceError
) -> None:
    end_with(error)

    assert sent == []


def test_stop_ends_with_its_own_error_when_it_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(*_: object, **__: object) -> int:
        raise BrokerUnreachable("no broker")

    monkeypatch.setattr(stop_note, "send", send)

    end_with(RowRefused("too large"))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x00", b'{"version":2,"at_ms":1,"state":"a","error":"b","message":"c"}']
)
def test_record_of_another_version_is_no_evidence(data: bytes) -> None:
    assert decode(data) is None


def test_record_is_read_as_it_was_written() -> None:
    record = StopRecord(at_ms=1, state="GAP", error="SourceGap", message="m", hint="h", command="c")

    assert decode(encode(record)) == record
