"""Events, their ids and their text."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from outbox.errors import EventRefused, MessageInvalid, OutboxError, PayloadInvalid, PayloadTooLarge
from outbox.event import Event, check_size, json_text, read_message, to_message
from outbox.ids import IdSource, time_ms
from outbox.table_names import Names, quoted


def an_event(**fields: Any) -> Event:
    return Event(**{"aggregate_type": "order", "aggregate_id": "7", "type": "OrderPlaced", **fields})


def source(times: list[int], entropy: Callable[[int], bytes] | None = None) -> IdSource:
    return IdSource(iter(times).__next__, entropy or (lambda count: b"\x01" * count))


def test_ids_are_version_seven_and_hold_their_time() -> None:
    made = source([1_700_000_000_123]).next()

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert time_ms(made) == 1_700_000_000_123
    assert time_ms(uuid.uuid4()) is None


def test_ids_grow_within_a_millisecond_and_while_the_clock_goes_backwards() -> None:
    times = [5_000, 5_000, 4_000, 1, 4_999, 5_001]
    made = [source_.next() for source_ in [source(times)] for _ in times]

    assert made == sorted(set(made))
    assert [time_ms(one) for one in made] == [5_000, 5_000, 5_000, 5_000, 5_000, 5_001]


def test_millisecond_that_is_used_up_borrows_the_next_one() -> None:
    largest = source([10] * 2000, lambda count: b"\xff" * count)
    largest.next()
    largest._tail = (1 << 74) - 2
    before, after = largest.next(), largest.next()

    assert before < after
    assert time_ms(after) == 11


def test_forked_process_restarts_its_ids() -> None:
    made = source([10, 10])
    made.next()

    made.forget()

    assert made._last_ms == -1


def test_message_keeps_the_payload_to_the_byte() -> None:
    event = an_event(payload='{"total": 1.00,  "é": [1E2, "\\u00e9"]}')

    text = to_message(event)

    assert read_message(text) == event
    assert read_message(text.encode()).payload == event.payload


def test_message_may_leave_out_what_has_a_default() -> None:
    given = uuid.uuid4()

    event = read_message(f' {{"id": "{given}", "aggregate_type":"a","aggregate_id":"1","type":"t", "payload": null}} ')

    assert event == Event(aggregate_type="a", aggregate_id="1", type="t", payload="null", id=given)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"id":1}',
        '{"id":"x","aggregate_type":"secret","aggregate_id":"1","type":"t"}',
        '{"id":"0199-","id":"secret"}',
        '{"secret":"secret"}',
        '{"a" "secret"}',
        '{"a":NaN}',
        '{"a":1}{"secret":1}',
        "[" * 100_000,
    ],
)
def test_message_that_is_no_event_is_refused_without_its_values(text: str) -> None:
    with pytest.raises(MessageInvalid) as caught:
        read_message(text)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "field",
    [
        {"payload_bytes": "?"},
        {"created_at": "yesterday"},
        {"headers": {"a": 1}},
        {"version": 0},
        {"version": True},
        {"payload": {}, "payload_bytes": "AA=="},
    ],
)
def test_message_with_a_field_of_another_kind_is_refused(field: dict[str, object]) -> None:
    fields = {"id": str(uuid.uuid4()), "aggregate_type": "a", "aggregate_id": "1", "type": "t", **field}

    with pytest.raises(MessageInvalid):
        read_message(json_text(fields))


def test_numbers_of_any_length_are_json_and_published_as_written() -> None:
    digits = "1" * 5000
    event = an_event(payload=f'{{"n":{digits}}}')

    assert read_message(to_message(event)).payload == f'{{"n":{digits}}}'


def test_headers_that_a_record_has_of_its_own_are_left_out_of_a_message_written_by_hand() -> None:
    fields = {"id": str(uuid.uuid4()), "aggregate_type": "a", "aggregate_id": "1", "type": "t"}

    event = read_message(json_text({**fields, "headers": {"type": "mine", "trace": "x"}}))

    assert event.headers == {"trace": "x"}


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"aggregate_type": ""}, EventRefused),
        ({"aggregate_id": "a\0b"}, EventRefused),
        ({"aggregate_id": "\ud800"}, EventRefused),
        ({"aggregate_id": "x" * 2001}, EventRefused),
        ({"type": 7}, EventRefused),
        ({"version": 0}, EventRefused),
        ({"version": 1 << 31}, EventRefused),
        ({"id": "0199"}, EventRefused),
        ({"created_at": datetime(2026, 1, 1)}, EventRefused),  # noqa: DTZ001 - that is the point
        ({"headers": {"n": 1}}, EventRefused),
        ({"headers": {"n": "a\0"}}, EventRefused),
        ({"headers": {"type": "mine"}}, EventRefused),
        ({"payload": "{", "payload_bytes": None}, PayloadInvalid),
        ({"payload": "NaN"}, PayloadInvalid),
        ({"payload": '"\ud800"'}, PayloadInvalid),
        ({"payload": {"a": 1}}, PayloadInvalid),
        ({"payload": "{}", "payload_bytes": b""}, EventRefused),
        ({"payload_bytes": "text"}, PayloadInvalid),
    ],
)
def test_event_that_no_table_takes_is_refused_when_it_is_made(
    fields: dict[str, object], refusal: type[OutboxError]
) -> None:
    with pytest.raises(refusal):
        an_event(**fields)


def test_invalid_json_is_reported_by_position_and_not_by_text() -> None:
    with pytest.raises(PayloadInvalid, match="line 1, column 12") as caught:
        an_event(payload='{"secret": hidden}')

    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, datetime(2026, 1, 1, tzinfo=UTC), {"a": b"secret"}])
def test_value_that_json_has_not_is_refused_without_it(value: object) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        json_text(value)

    assert "secret" not in str(caught.value)
    assert "2026" not in str(caught.value)


def test_event_above_the_limit_is_refused_and_one_at_it_is_not() -> None:
    event = an_event(payload_bytes=b"x" * 1000, headers={"h": "v"})

    check_size(event, event.size_bytes)
    with pytest.raises(PayloadTooLarge, match="the limit is"):
        check_size(event, event.size_bytes - 1)


def test_names_are_quoted_and_checked() -> None:
    assert Names(schema='my "own"').qualified("outbox") == '"my ""own"""."outbox"'
    assert quoted("select") == '"select"'
    for wrong in ({"schema": ""}, {"outbox": "x" * 64}, {"inbox": "outbox"}):
        with pytest.raises(OutboxError):
            Names(**wrong)
