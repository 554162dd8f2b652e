"""Lines of COPY in the documented format are read back exactly; anything else is a DecodeError."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cdc.errors import DecodeError
from cdc.wire.copy_text import texts
from tests.fixtures.capture.copy_text import copy_line

_HOSTILE = [
    b"\\",
    b"\\\\",
    b"\t",
    b"\n",
    b"\r",
    b"\b",
    b"\f",
    b"\v",
    b"N",
    b"\\N",
    b"\\.",
    b"n",
    b"\x00",
    b"\xff",
    b"a",
]
values = st.lists(st.one_of(st.sampled_from(_HOSTILE), st.binary(max_size=4)), max_size=6).map(b"".join)
rows = st.lists(st.one_of(st.none(), values), max_size=6)


@given(rows)
def test_every_row_survives(row: list[bytes | None]) -> None:
    assert texts(copy_line(row), len(row)) == row


@given(rows, st.data())
def test_every_cut_is_a_decode_error(row: list[bytes | None], data: st.DataObject) -> None:
    line = copy_line(row)
    end = data.draw(st.integers(0, len(line) - 1))

    with pytest.raises(DecodeError):
        texts(line[:end], len(row))


@given(rows, st.integers(0, 8))
def test_another_number_of_columns_is_a_decode_error(row: list[bytes | None], count: int) -> None:
    assume(count != len(row) and {count, len(row)} != {0, 1})  # an empty line is also one empty text
    with pytest.raises(DecodeError):
        texts(copy_line(row), count)


@given(st.lists(st.sampled_from([*_HOSTILE, b"0", b"x41"]), max_size=8).map(b"".join), st.integers(0, 3))
def test_any_bytes_are_a_row_that_is_written_so_or_a_decode_error(line: bytes, count: int) -> None:
    try:
        row = texts(line, count)
    except DecodeError:
        return
    assert copy_line(row) == line


@pytest.mark.parametrize(
    "line", [b"", b"a", b"a\rb\n", b"\\x41\n", b"\\101\n", b"\\.\n", b"a\\\n", b"\\Na\n", b"a\nb\n"]
)
def test_what_the_server_never_writes_is_refused(line: bytes) -> None:
    with pytest.raises(DecodeError):
        texts(line, 1)


def test_null_the_empty_text_and_the_letter_are_three_things() -> None:
    assert texts(b"\\N\t\tN\t\\\\N\n", 4) == [None, b"", b"N", b"\\N"]
