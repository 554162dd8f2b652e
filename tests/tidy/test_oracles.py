"""Checks that the oracles of tests import no code of the product that they check."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.tidy.tree import ROOT

_PRODUCT: Final = {"cdc", "sinks", "snapshot", "outbox"}
_ORACLES: Final = (
    "tests/fixtures/capture/array_text.py",
    "tests/fixtures/capture/as_events.py",
    "tests/fixtures/capture/avro_reader.py",
    "tests/fixtures/capture/copy_text.py",
    "tests/fixtures/faults/workload.py",
    "tests/fixtures/capture/murmur2.py",
    "tests/fixtures/capture/referee.py",
    "tests/fixtures/capture/rolling_hash.py",
    "tests/fixtures/capture/topic_log.py",
    "tests/fixtures/servers/transaction_state.py",
    "tests/fixtures/capture/type_forms.py",
    "tests/integration/test_capture_cuts.py",
    "tests/property/pattern_oracle.py",
    "tests/readers/clickhouse_reader.py",
    "tests/readers/flink_reader.py",
    "tests/sqlfuzz/comparison.py",
    "tests/sqlfuzz/core_rules.py",
    "tests/sqlfuzz/drawing.py",
    "tests/sqlfuzz/expressions.py",
    "tests/sqlfuzz/kinds.py",
    "tests/sqlfuzz/moments.py",
    "tests/sqlfuzz/on_postgres.py",
    "tests/sqlfuzz/queries.py",
    "tests/sqlfuzz/rules.py",
    "tests/sqlfuzz/sources.py",
    "tests/sqlfuzz/tables.py",
    "tests/sqlfuzz/tree.py",
)
_LIMITED: Final = {
    # The referee reads records of the product; it must not use the code that made them.
    "tests/simulation/referee.py": {"cdc.model.change_records", "cdc.model.progress_record"},
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
