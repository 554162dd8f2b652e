"""Checks that only `sinks.warehouse.spark.frames` converts Arrow tables to Spark frames; it says why."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_OF_PYTHON_ROWS: Final = {"warm_up.py", "incremental.py", "version_frame.py", "changes.py", "expected_rows.py"}


def test_rows_of_arrow_become_frames_in_one_place() -> None:
    using = {path.name for path in (_ROOT / "sinks").rglob("*.py") if ".createDataFrame(" in path.read_text("utf-8")}

    assert using == {"frames.py", *_OF_PYTHON_ROWS}
