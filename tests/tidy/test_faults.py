"""Checks that the page of faults is complete, and that each row names its test or says why there is none."""

from __future__ import annotations

import re
from typing import Final

from cdc.why.cause import KINDS
from tests.tidy.tree import ROOT, text_of

_ROWS: Final = [
    *(f"A{number}" for number in range(1, 16)),
    *("B3", "B6", "B7", "B8"),
    *(f"C{number}" for number in range(1, 11)),
    *(f"D{number}" for number in range(1, 10)),
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


def test_first_causes_that_are_named_are_declared_and_the_share_that_is_injected_is_right() -> None:
    text = text_of(ROOT / "docs" / "reference" / "faults.md").partition("## First cause named by cdc why")[2]
    rows = re.findall(r"^\| (?!Fault)([^|]+) \| (`[^|]+) \| ([^|]+) \|$", text.partition("\n## ")[0], re.MULTILINE)
    codes = {code for _, named, _ in rows for code in re.findall(r"`([a-z-]+)`", named)}
    injected = [fault for fault, _, how in rows if _NAMED.search(how)]

    assert codes <= {kind.code for kind in KINDS}
    assert {fault for fault, _, how in rows if not how.startswith("not injected: ")} == set(injected)
    assert f"Injected: {len(injected)} of {len(rows)} ({100 * len(injected) // len(rows)} %)" in text
    missing = [name for _, _, how in rows for file, name in _NAMED.findall(how) if f"def {name}(" not in _of(file)]
    assert missing == []


def _of(file: str) -> str:
    path = ROOT / file
    return text_of(path) if path.is_file() else ""
