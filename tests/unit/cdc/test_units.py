"""Numbers for people."""

from __future__ import annotations

import pytest

from cdc.model import units


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 tables"), (1, "1 table"), (2, "2 tables"), (12000, "12,000 tables")]
)
def test_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert units.count(number, "table") == text
