"""LSNs: text and number are two spellings of one position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.lsn import Lsn
from tests.property.messages import lsns


@given(lsns)
def test_text_and_back_is_the_same_position(lsn: Lsn) -> None:
    assert Lsn.parse(str(lsn)) == lsn


@given(lsns, lsns)
def test_positions_compare_as_numbers_not_as_text(one: Lsn, other: Lsn) -> None:
    assert (Lsn.parse(str(one)) < Lsn.parse(str(other))) == (int(one) < int(other))


@pytest.mark.parametrize(
    ("text", "value"), [("16/B374D848", 0x16B374D848), ("0/0", 0), ("ffffffff/FFFFFFFF", 2**64 - 1)]
)
def test_text_is_read_as_postgresql_writes_it(text: str, value: int) -> None:
    assert Lsn.parse(text) == value
    assert str(Lsn.parse(text)) == text.upper()


@pytest.mark.parametrize(
    "text", ["", "1", "1/", "/1", "1/2/3", "g/0", "100000000/0", "0/100000000", "-1/0", "1/ 2", "٣/0"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid LSN"):
        Lsn.parse(text)


@given(st.text(max_size=12))
def test_any_text_is_an_lsn_or_refused(text: str) -> None:
    try:
        lsn = Lsn.parse(text)
    except ValueError:
        return
    assert 0 <= lsn < 2**64


def test_insert_position_behind_a_page_header_is_the_end_of_the_page_before() -> None:
    assert Lsn.parse("0/2F1A018").before_header() == Lsn.parse("0/2F1A000")
    assert Lsn.parse("0/3000028").before_header() == Lsn.parse("0/3000000")
    for other in ("0/2F1A000", "0/2F1A028", "0/2F1A020", "0/0", "0/3000030"):
        assert Lsn.parse(other).before_header() == Lsn.parse(other)
