"""Configurable value forms: values survive a round trip, and any text gives a value or a DecodeError."""

from __future__ import annotations

import base64 as rfc4648
import datetime as dt
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.encode.hstore import hstore_object
from cdc.encode.temporal import day_micros, epoch_days, epoch_micros, interval_parts
from cdc.encode.values import base64, base64url
from cdc.errors import DecodeError
from tests.property.messages import texts

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps without a zone
_ENCODERS = (epoch_days, day_micros, epoch_micros, interval_parts, base64, base64url, hstore_object)


@given(st.datetimes())
def test_timestamps_dates_and_times_are_counted_from_their_beginnings(moment: dt.datetime) -> None:
    since = moment - _EPOCH
    text = moment.isoformat(" ").encode()
    if moment.microsecond:
        text = text.rstrip(b"0")  # as PostgreSQL prints it
    micros = (since.days * 86400 + since.seconds) * 10**6 + since.microseconds

    assert int(epoch_micros(text)) == micros
    assert int(epoch_days(text[:10])) == since.days
    assert int(day_micros(text[11:])) == micros - since.days * 86400 * 10**6


@given(st.binary())
def test_bytes_survive(value: bytes) -> None:
    text = b"\\x" + value.hex().encode()

    assert rfc4648.b64decode(json.loads(base64(text)), validate=True) == value
    assert json.loads(base64url(text)) == rfc4648.urlsafe_b64encode(value).decode()


@given(st.dictionaries(texts(), st.one_of(st.none(), texts()), max_size=4))
def test_hstore_survives(pairs: dict[str, str | None]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    printed = ", ".join(f"{quoted(key)}=>{'NULL' if value is None else quoted(value)}" for key, value in pairs.items())

    assert json.loads(hstore_object(printed.encode())) == pairs


@pytest.mark.parametrize("encode", _ENCODERS)
@given(text=st.text(st.sampled_from('0123456789-:. BCPYMDTHS"\\=>,NULxaé'), max_size=24), start=st.integers(0, 5))
def test_any_text_is_a_value_or_a_decode_error(encode: Callable[[bytes], bytes], text: str, start: int) -> None:
    begin = ("", "2026-11-21 ", "P", "\\x", '"a"=>', "infinity")[start]
    try:
        encoded = encode((begin + text).encode())
    except DecodeError:
        return
    json.loads(encoded)


@pytest.mark.parametrize("text", [b'"a"', b'"a"=>b', b'"a"=>"b",', b'"a"=>"b", ', b'"a"=>"b""c"=>"d"', b'a=>"b"', b" "])
def test_pairs_that_hstore_does_not_print_are_refused(text: bytes) -> None:
    with pytest.raises(DecodeError):
        hstore_object(text)
