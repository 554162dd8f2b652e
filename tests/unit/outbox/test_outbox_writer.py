"""The statements of the writer, and the events that it refuses, without a database."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

from outbox import trace
from outbox.errors import EventRefused, OutboxError, PayloadTooLarge
from outbox.event import Event, read_message
from outbox.table_names import Names
from outbox.writer import Writer, avro


class Recording:
    """A cursor that records statements."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def execute(self, operation: Any, parameters: Any, /) -> None:
        self.asked.append((operation, parameters))


def an_event(**fields: Any) -> Event:
    return Event(**{"aggregate_type": "order", "aggregate_id": "7", "type": "OrderPlaced", "payload": "{}", **fields})


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A stand-in for OpenTelemetry, with a span whose headers the test sets."""
    carried: dict[str, str] = {}

    def inject(carrier: MutableMapping[str, str]) -> None:
        carrier.update(carried)

    for name in ("opentelemetry", "opentelemetry.propagate"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules["opentelemetry.propagate"], "inject", inject, raising=False)
    trace._inject.cache_clear()
    yield carried
    trace._inject.cache_clear()


def test_applications_import_the_writer_and_nothing_of_the_service() -> None:
    program = (
        "import sys, outbox.writer, outbox.event, outbox.inbox\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(roots & {'cdc', 'sinks', 'snapshot', 'confluent_kafka', 'sqlalchemy', 'alembic', 'psycopg',"
        " 'jsonschema_rs', 'msgspec', 'tenacity', 'structlog'}))"
    )

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert done.stdout.strip() == "[]"


def test_refused_event_sends_nothing_not_even_those_before_it() -> None:
    cursor = Recording()

    with pytest.raises(PayloadTooLarge):
        Writer(bytes_max=100).write(cursor, an_event(), an_event(payload='"' + "x" * 100 + '"'))

    assert cursor.asked == []


def test_many_events_are_a_few_statements_in_their_order() -> None:
    cursor = Recording()
    events = [an_event(aggregate_id=str(number)) for number in range(1001)]

    Writer(traced=False).write(cursor, *events)

    ids = [value for _, values in cursor.asked for value in values[2::10]]
    assert ids == [event.aggregate_id for event in events]
    assert len(cursor.asked) == 3


def test_names_and_paramstyle_are_those_of_the_application() -> None:
    cursor = Recording()

    Writer(Names(schema="my app", outbox="events"), paramstyle="qmark").write(cursor, an_event())

    statement, values = cursor.asked[0]
    assert statement.startswith('insert into "my app"."events" (id, ')
    assert statement.count("?") == len(values) == 10


def test_message_is_the_event() -> None:
    cursor = Recording()
    event = an_event(payload='{"a": 1.50}', headers={"h": "v"})

    Writer(traced=False).emit(cursor, event)

    ((statement, (prefix, text)),) = cursor.asked
    assert "pg_logical_emit_message(true," in statement
    assert (prefix, read_message(text)) == ("outbox", event)


def test_trace_context_of_the_caller_goes_into_the_headers(spans: dict[str, str]) -> None:
    spans.update({"traceparent": "00-aa-bb-01", "tracestate": "v=1", "x-other": "secret"})

    written = Writer().checked(an_event(headers={"own": "1"}))

    assert written.headers == {"own": "1", "traceparent": "00-aa-bb-01", "tracestate": "v=1"}


def test_trace_context_that_an_event_has_is_its_own(spans: dict[str, str]) -> None:
    spans["traceparent"] = "00-of-the-caller-01"

    assert Writer().checked(an_event(headers={"traceparent": "mine"})).headers == {"traceparent": "mine"}
    assert Writer(traced=False).checked(an_event()).headers == {}


def test_without_opentelemetry_there_are_no_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", None)
    trace._inject.cache_clear()

    assert trace.current() == {}
    trace._inject.cache_clear()


def test_avro_has_the_frame_of_the_registry() -> None:
    assert avro(b"\x02a", 258) == b"\x00\x00\x00\x01\x02\x02a"
    with pytest.raises(OutboxError):
        avro(b"", 0)


def test_event_that_is_no_event_is_refused_before_the_writer_sees_it() -> None:
    with pytest.raises(EventRefused):
        Writer().write(Recording(), an_event(aggregate_type=""))
