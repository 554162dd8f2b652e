"""A checker shares no code with what it checks: what tests compare the product with imports none of it."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.tidy.tree import ROOT

_PRODUCT: Final = {"cdc", "sinks", "snapshot", "outbox"}
_ORACLES: Final = (
    "tests/fixtures/array_text.py",
    "tests/fixtures/asevents.py",
    "tests/fixtures/avroread.py",
    "tests/fixtures/copy_text.py",
    "tests/fixtures/faults/workload.py",
    "tests/fixtures/murmur2.py",
    "tests/fixtures/oracle.py",
    "tests/fixtures/rolling.py",
    "tests/fixtures/topiclog.py",
    "tests/fixtures/transactionstate.py",
    "tests/fixtures/typeforms.py",
    "tests/integration/test_capture_cuts.py",
    "tests/readers/clickhouse_reader.py",
    "tests/readers/flink_reader.py",
)
_LIMITED: Final = {
    # The referee reads records of the product; it must not use the code that made them.
    "tests/simulation/referee.py": {"cdc.model.event", "cdc.model.progress"},
}


@pytest.mark.parametrize("path", [*_ORACLES, *_LIMITED])
def test_oracle_imports_no_code_that_it_checks(path: str) -> None:
    found = {name for name in _imported(path) if name.split(".")[0] in _PRODUCT}

    assert found - _LIMITED.get(path, set()) == set()


def _imported(path: str) -> set[str]:
    """Modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found
