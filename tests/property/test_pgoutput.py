"""The exact decoder is total: any bytes give a message or a DecodeError, and every message survives a round trip."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.errors import DecodeError
from cdc.wire.pgoutput import Message, decode
from tests.fixtures.capture.pgoutput import encode
from tests.property.messages import damaged, messages

_TAGS = b"BCORYIUDTM"


@given(messages())
def test_every_message_survives_a_round_trip(message: Message) -> None:
    assert decode(encode(message)) == message


@given(messages())
def test_every_truncation_is_a_decode_error(message: Message) -> None:
    data = encode(message)

    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:end])


@given(messages(), st.binary(min_size=1, max_size=3))
def test_bytes_behind_a_message_are_a_decode_error(message: Message, extra: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(encode(message) + extra)


@given(st.sampled_from(_TAGS), st.binary(max_size=80))
def test_any_bytes_give_a_message_or_a_decode_error(tag: int, rest: bytes) -> None:
    _message_or_decode_error(bytes([tag]) + rest)
    _message_or_decode_error(rest)


@settings(max_examples=50)  # each example is some hundred messages
@given(messages())
def test_every_changed_byte_gives_a_message_or_a_decode_error(message: Message) -> None:
    """And one that still decodes is one that the server could have sent."""
    data = encode(message)

    for at in range(len(data)):
        for broken in damaged(data, at):
            decoded = _message_or_decode_error(broken)
            if decoded is not None:
                assert decode(encode(decoded)) == decoded


def _message_or_decode_error(data: bytes) -> Message | None:
    try:
        return decode(data)
    except DecodeError:
        return None
