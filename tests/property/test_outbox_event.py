"""Events and their messages, for any input of an application."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from outbox.errors import MessageInvalid
from outbox.event import RESERVED_HEADERS, Event, json_text, read_message, to_message
from outbox.ids import IdSource

_CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
_TEXT = st.text(_CHARACTERS, min_size=1, max_size=40)
_JSON: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=10,
)
_BODIES = st.one_of(
    st.just({}),
    st.builds(lambda value: {"payload": json_text(value)}, _JSON),
    st.builds(lambda value: {"payload": json.dumps(value, indent=1)}, _JSON),
    st.builds(lambda data: {"payload_bytes": data}, st.binary(max_size=50)),
)
EVENTS = st.builds(
    lambda body, **fields: Event(**body, **fields),
    _BODIES,
    aggregate_type=_TEXT,
    aggregate_id=_TEXT,
    type=_TEXT,
    version=st.integers(1, 2**31 - 1),
    id=st.uuids(),
    headers=st.dictionaries(_TEXT.filter(lambda name: name not in RESERVED_HEADERS), st.text(_CHARACTERS)),
    ordering_key=st.none() | _TEXT,
    created_at=st.none() | st.datetimes(timezones=st.just(UTC)),
)


@given(EVENTS)
def test_event_comes_out_of_its_message_as_it_went_in(event: Event) -> None:
    assert read_message(to_message(event)) == event
    json.loads(to_message(event))


@given(EVENTS, st.data())
def test_damaged_message_is_an_event_or_refused(event: Event, data: st.DataObject) -> None:
    raw = bytearray(to_message(event).encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))

    with contextlib.suppress(MessageInvalid):
        read_message(bytes(raw[: data.draw(st.integers(at, len(raw)))]))


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_an_event_or_refused(raw: bytes) -> None:
    with contextlib.suppress(MessageInvalid):
        read_message(raw)


@given(st.lists(st.integers(0, 2**48), min_size=1, max_size=50), st.randoms())
def test_ids_grow_whatever_the_clock_does(times: list[int], random: Random) -> None:
    ids = IdSource(iter(times).__next__, random.randbytes)

    made = [ids.next() for _ in times]

    assert made == sorted(set(made))
    assert {one.version for one in made} == {7}
