"""Checks that the page of faults is complete, and that each row names its test or says why there is none."""

from __future__ import annotations

import re
from typing import Final

from tests.tidy.tree import ROOT, text_of

_ROWS: Final = [
    *(f"A{number}" for number in range(1, 15)),
    *("B3", "B6", "B7", "B8"),
    *(f"C{number}" for number in range(1, 11)),
    *(f"D{number}" for number in range(1, 9)),
    *(f"E{number}" for number in range(1, 8)),
    *("F1", "F4"),
]
_NAMED: Final = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_fault_has_its_row_and_names_a_test_that_is_there_or_says_why_not() -> None:
    rows = re.findall(
        r"^\| ([A-F]\d+) \| .+ \|([^|]*)\|$", text_of(ROOT / "docs" / "reference" / "faults.md"), re.MULTILINE
    )
    named = {row: _NAMED.findall(cell) for row, cell in rows}

    assert [row for row, _ in rows] == _ROWS
    assert {row for row, cell in rows if not named[row] and "not covered, because" not in cell} == set()
    missing = [
        f"{row}: {file}::{test}"
        for row, tests in named.items()
        for file, test in tests
        if not (ROOT / file).is_file() or f"def {test}(" not in text_of(ROOT / file)
    ]
    assert missing == []
